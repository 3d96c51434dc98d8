//! `cargo xtask bench`: how fast many MachineDeployments become user data, and at what cost.

mod baseline;
mod meter;
mod pools;
mod report;
mod watched;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kube::{Api, Client, ResourceExt};
use osm_api::rbac::{Installation, Service};
use osm_api::{OperatingSystemConfig, OperatingSystemProfile, condition, names};
use osm_testkit::control_plane::assets;
use osm_testkit::installation::Installed;
use osm_testkit::{ControlPlane, Options, check, wait_for};

use self::meter::Meter;
use self::pools::Pools;
use self::report::{Figures, Phase};
use self::watched::Watched;
use crate::build::{self, Profile};
use crate::progress::Progress;

/// How long services may take to become ready and to accept the default profile.
const READY: Duration = Duration::from_secs(60);

/// Measure many MachineDeployments on a real control plane: time to user data, absence, requests, CPU and memory
///
/// The figures are of this machine, which the control plane, the services and this program share.
#[derive(clap::Args)]
pub struct Bench {
    /// MachineDeployments that are created, rotated and deleted at once
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    machine_deployments: u32,
    /// Seconds for which the services are watched while nothing happens; 0 leaves that out
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle: u64,
    /// Measure a development build, to try this command out
    #[arg(long)]
    dev: bool,
    /// Measure the services in this folder, as another profile or another commit has built them
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "dev")]
    programs: Option<PathBuf>,
}

impl Bench {
    /// Measures, and prints a Markdown table.
    ///
    /// # Errors
    /// What could not be started, and Secrets that are not published in time.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        assets::ensure(&Options::default().components(), |line| progress.step(line)).await?;
        let binaries = match &self.programs {
            Some(programs) => programs.clone(),
            None => {
                progress.step("building the services");
                build::services(if self.dev { Profile::Dev } else { Profile::Release }).await?
            }
        };
        progress.step("starting etcd, kube-apiserver and the services");
        let control_plane = ControlPlane::start(Options::default()).await?;
        let mut installed = Installed::install(&control_plane, Installation::default(), &binaries).await?;
        installed.start_all().await?;
        installed.ready(READY).await?;
        let client = control_plane.admin()?;
        let figures = self.measure(progress, client.clone(), &installed).await;
        if figures.is_err() {
            unpublished(client, &installed.installation().namespace).await?;
            for service in Service::ALL {
                eprintln!("== {}\n{}", service.name(), installed.process(service)?.log_tail(60));
            }
        }
        report::print(&figures?, self.dev);
        Ok(())
    }

    async fn measure(&self, progress: Progress, client: Client, installed: &Installed) -> Result<Figures> {
        let namespace = &installed.installation().namespace;
        accepted_profile(&client, namespace).await?;
        let count = usize::try_from(self.machine_deployments)?;
        let patience = READY + Duration::from_millis(200) * self.machine_deployments;
        let meter = Meter::new(installed, patience);
        let mut pools = Pools::new(client.clone(), count)?;
        let mut watched = Watched::start(Api::namespaced(client.clone(), names::CLOUD_INIT_SETTINGS)).await?;
        let start = meter.settled().await?;

        progress.step(&format!("creating {count} MachineDeployments"));
        let begun = pools.create().await?;
        let waits = watched.revision(1, &begun, patience).await?;
        let created = Phase::new(waits, meter.settled().await?.since(&start));

        progress.step("rotating all");
        let before = meter.settled().await?;
        let begun = pools.rotate(2).await?;
        let waits = watched.revision(2, &begun, patience).await?;
        let rotated = Phase::new(waits, meter.settled().await?.since(&before));
        let absences = watched.absences()?;

        let idle = match self.idle {
            0 => None,
            seconds => {
                progress.step(&format!("idle for {seconds} s"));
                let (before, since) = (meter.sample().await?, Instant::now());
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                Some((meter.sample().await?.since(&before), since.elapsed()))
            }
        };

        progress.step("deleting all");
        let before = meter.sample().await?;
        pools.delete().await?;
        let configs = Api::<OperatingSystemConfig>::namespaced(client, namespace);
        wait_for("everything to be undone", patience, async || {
            let left = configs.list_metadata(&kube::api::ListParams::default()).await?;
            check(left.items.is_empty() && watched.none_left())
        })
        .await?;
        let end = meter.settled().await?;
        let deleted = end.since(&before);
        progress.step("done");
        Ok(Figures { count, created, rotated, absences, idle, deleted, end })
    }
}

async fn accepted_profile(client: &Client, namespace: &str) -> Result<()> {
    let profiles = Api::<OperatingSystemProfile>::namespaced(client.clone(), namespace);
    wait_for("the default profile to be accepted", READY, async || {
        match profiles.get("osp-ubuntu").await?.status.and_then(|status| status.accepted) {
            Some(_) => Ok(Some(())),
            None => bail!("osp-controller has not accepted it yet"),
        }
    })
    .await
}

/// Shows the pools that are not published.
async fn unpublished(client: Client, namespace: &str) -> Result<()> {
    let configs = Api::<OperatingSystemConfig>::namespaced(client, namespace);
    for config in configs.list(&kube::api::ListParams::default()).await? {
        let (name, generation) = (config.name_any(), config.metadata.generation);
        let status = config.status.unwrap_or_default();
        let published = condition::find(&status.conditions, condition::PUBLISHED);
        if published.is_none_or(|published| published.status != "True") {
            let status = serde_json::to_string(&status)?;
            eprintln!("== {name}, generation {generation:?}\n{status}");
        }
    }
    Ok(())
}
