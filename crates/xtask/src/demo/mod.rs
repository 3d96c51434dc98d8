//! `cargo xtask demo`: runs Operating System Manager on a real control plane on this machine.

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

/// Time in which services sync their watches and check their rights.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of log lines to print for each service after a failure.
const LOG_LINES: usize = 20;

/// Start etcd, kube-apiserver and the services, and show what they publish for a MachineDeployment
///
/// All processes listen on loopback. They end with this command, and their files are deleted. The first run builds the control plane from
/// source, which takes minutes. Alternatively, KUBEBUILDER_ASSETS names a directory with etcd and kube-apiserver.
#[derive(clap::Args)]
pub struct Demo {
    /// Exit after printing; fail unless all user data is published
    #[arg(long)]
    once: bool,
    /// Manifest to apply instead of those in examples/; may be repeated
    #[arg(long, value_name = "FILE")]
    machine_deployment: Vec<PathBuf>,
}

impl Demo {
    /// Runs until Ctrl-C or SIGTERM, or with `--once` until everything is printed.
    ///
    /// # Errors
    /// A program that can't be started, or user data that is not published.
    pub async fn run(&self) -> Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        // When this returns, it drops the future of `play`, and with it all processes and files.
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
        eprintln!("\nstopping all processes and deleting their files");
        Ok(())
    }

    async fn play(&self, progress: Progress) -> Result<()> {
        progress.step("looking for the binaries of etcd and kube-apiserver");
        assets::ensure(&Options::default().components(), |line| progress.step(line)).await?;
        progress.step("building the services");
        let binaries = build::services(Profile::Dev).await?;
        progress.step("starting etcd and kube-apiserver");
        let control_plane = ControlPlane::start(Options::default()).await?;
        progress.step("installing the custom resources, the namespaces, and an identity with its own rights for each service");
        let mut installed = Installed::install(&control_plane, Installation::default(), &binaries).await?;
        for service in Service::ALL {
            progress.step(&format!("starting {}", service.name()));
            installed.start(service).await?;
        }
        let outcome = self.show(progress, &control_plane, &installed).await;
        if outcome.is_err() {
            show::logs(&installed, LOG_LINES);
        }
        outcome?;
        if !self.once {
            show::next_steps(&control_plane, &installed)?;
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
        installed.ready(READY_TIMEOUT).await?;
        let mut pools = Pools::new(control_plane.admin()?, installed.installation().namespace.clone());
        for file in self.manifests() {
            progress.step(&format!(
                "applying {}",
                file.strip_prefix(crate::root()).unwrap_or(&file).display()
            ));
            let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            pools.take(
                control_plane
                    .apply_yaml(&text)
                    .await
                    .with_context(|| file.display().to_string())?,
            );
        }
        progress.step("setting the revision of each MachineDeployment in place of machine-controller");
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
            [
                "machinedeployment-ubuntu-aws.yaml",
                "machinedeployment-ubuntu-openstack.yaml",
            ]
            .map(|name| examples.join(name))
            .to_vec()
        } else {
            self.machine_deployment.clone()
        }
    }
}
