//! `cargo xtask demo`: the whole of Operating System Manager on a real control plane, on this machine.

mod mask;
mod pools;
mod show;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use osm_api::rbac::{Installation, Service};
use osm_testkit::control_plane::assets;
use osm_testkit::installation::Installed;
use osm_testkit::{ControlPlane, Options};
use tokio::signal::unix::{SignalKind, signal};

use self::pools::Pools;
use crate::build::{self, Profile};
use crate::progress::Progress;

/// How long services may take until their watches are synced and their rights checked.
const READY: Duration = Duration::from_secs(30);

/// Lines of a service's log that a failure shows.
const LOG_TAIL: usize = 20;

/// Start a real etcd, kube-apiserver and the three services, and show what they make of a MachineDeployment
///
/// Everything listens on loopback and is gone when this command ends, however it ends. The first run builds the control
/// plane from source, which takes minutes; KUBEBUILDER_ASSETS may name a folder with etcd and kube-apiserver instead.
#[derive(clap::Args)]
pub struct Demo {
    /// End after the show; succeed only if everything is published
    #[arg(long)]
    once: bool,
    /// Manifests to apply instead of those in examples/; may be repeated
    #[arg(long, value_name = "FILE")]
    machine_deployment: Vec<PathBuf>,
}

impl Demo {
    /// Runs until the show is over (`--once`), or until Ctrl-C or SIGTERM.
    ///
    /// # Errors
    /// What could not be started, or is not published.
    pub async fn run(&self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        // When this returns, the future of `play` is dropped, and with it every process and file.
        tokio::select! {
            outcome = self.play(Progress::start()) => outcome,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                self.interrupted()
            }
            _ = terminate.recv() => self.interrupted(),
        }
    }

    fn interrupted(&self) -> Result<()> {
        if self.once {
            bail!("interrupted");
        }
        eprintln!("\nstopping, and removing everything");
        Ok(())
    }

    async fn play(&self, progress: Progress) -> Result<()> {
        progress.step("etcd and kube-apiserver: looking for the binaries");
        assets::ensure(&Options::default().components(), |line| progress.step(line)).await?;
        progress.step("building osp-controller, osc-controller and secret-syncer");
        let binaries = build::services(Profile::Dev).await?;
        progress.step("starting etcd and kube-apiserver");
        let control_plane = ControlPlane::start(Options::default()).await?;
        progress.step("installing the custom resources, namespaces and one identity for each service, with its own rights");
        let mut installed = Installed::install(&control_plane, Installation::default(), &binaries).await?;
        for service in Service::ALL {
            progress.step(&format!("starting {}", service.name()));
            installed.start(service).await?;
        }
        let outcome = self.show(progress, &control_plane, &installed).await;
        if outcome.is_err() {
            show::logs(&installed, LOG_TAIL);
        }
        outcome?;
        if !self.once {
            show::how_to_go_on(&control_plane, &installed)?;
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn show(
        &self,
        progress: Progress,
        control_plane: &ControlPlane,
        installed: &Installed,
    ) -> Result<()> {
        installed.ready(READY).await?;
        let mut pools = Pools::new(control_plane.admin()?, installed.installation().namespace.clone());
        for file in self.manifests() {
            progress
                .step(&format!("applying {}", file.strip_prefix(crate::root()).unwrap_or(&file).display()));
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            pools.take(control_plane.apply_yaml(&text).await.with_context(|| file.display().to_string())?);
        }
        progress.step("machine-controller's stand-in gives each MachineDeployment its revision");
        pools.stamp().await?;
        let published = pools.wait(progress).await;
        show::everything(control_plane, installed, &pools).await?;
        match published {
            Ok(()) => progress.step("everything is published"),
            Err(error) if self.once => return Err(error),
            Err(error) => progress.warn(&format!("{error:#}")),
        }
        Ok(())
    }

    fn manifests(&self) -> Vec<PathBuf> {
        if self.machine_deployment.is_empty() {
            let examples = crate::root().join("examples");
            ["machinedeployment-ubuntu-aws.yaml", "machinedeployment-ubuntu-openstack.yaml"]
                .map(|name| examples.join(name))
                .to_vec()
        } else {
            self.machine_deployment.clone()
        }
    }
}
