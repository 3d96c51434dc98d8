//! `cargo xtask bench`: how fast many MachineDeployments become user data, and at what cost.
//!
//! With `--write`, the figures replace a section of `docs/performance.md`. Figures of other implementations are not printed:
//! they are comparable only if the same command measures them on the same machine.

mod meter;
mod origin;
mod page;
mod pools;
mod rendering;
mod report;
mod secret_watch;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use jiff::Timestamp;
use kube::{Api, Client, ResourceExt};
use osm_api::rbac::{Installation, Service};
use osm_api::{OperatingSystemConfig, OperatingSystemProfile, condition, names};
use osm_testkit::control_plane::assets;
use osm_testkit::installation::Installed;
use osm_testkit::{ControlPlane, Options, check, wait_for};

use self::meter::Meter;
use self::origin::Origin;
use self::page::Section;
use self::pools::Pools;
use self::report::{Figures, Phase};
use self::secret_watch::SecretWatch;
use crate::build::{self, Profile};
use crate::criterion;
use crate::progress::Progress;

/// Time in which services become ready and accept the default profile.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Time that each MachineDeployment adds to a timeout.
const TIMEOUT_PER_POOL: Duration = Duration::from_millis(200);

/// Measure many MachineDeployments on a real control plane: time to user data, absence, requests, CPU and memory
///
/// The control plane, the services and this program share the machine.
#[derive(clap::Args)]
pub struct Bench {
    /// Number of MachineDeployments to create, rotate and delete at once
    #[arg(short = 'n', long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    machine_deployments: u32,
    /// Seconds to measure the services while nothing changes; 0 skips this
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle: u64,
    /// Measure a development build, to try this command; its figures are not comparable
    #[arg(long)]
    dev: bool,
    /// Measure the services in this directory, which another profile or another commit may have built
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "dev")]
    programs: Option<PathBuf>,
    /// Write the figures to docs/performance.md, with date, commit and machine
    #[arg(long, conflicts_with = "dev")]
    write: bool,
    /// Measure nothing; read the medians of the last `cargo bench` instead
    #[arg(long, conflicts_with_all = ["dev", "programs", "idle", "machine_deployments"])]
    rendering: bool,
}

impl Bench {
    /// Measures, and prints Markdown tables.
    ///
    /// # Errors
    /// Programs that can't be started, and Secrets that are not published in time.
    pub async fn run(&self) -> Result<()> {
        if self.rendering {
            let (table, measured) = rendering::table(&criterion::directory())?;
            let origin = Origin::here("cargo bench".to_owned(), measured).await?;
            return self.show(Section::Rendering, &origin, &table);
        }
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
        installed.ready(READY_TIMEOUT).await?;
        let client = control_plane.admin()?;
        let figures = self.measure(progress, client.clone(), &installed).await;
        if figures.is_err() {
            unpublished(client, &installed.installation().namespace).await?;
            for service in Service::ALL {
                eprintln!(
                    "== {}\n{}",
                    service.name(),
                    installed.process(service)?.log_tail(60)
                );
            }
        }
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("cargo xtask {}", arguments.join(" "));
        let origin = Origin::here(command, Timestamp::now()).await?;
        self.show(Section::Pools, &origin, &report::tables(&figures?, self.dev))
    }

    fn show(&self, section: Section, origin: &Origin, tables: &str) -> Result<()> {
        println!("{origin}\n{tables}");
        if self.write {
            page::write(section, origin, tables)
        } else {
            Ok(())
        }
    }

    async fn measure(&self, progress: Progress, client: Client, installed: &Installed) -> Result<Figures> {
        let namespace = &installed.installation().namespace;
        accepted_profile(&client, namespace).await?;
        let count = usize::try_from(self.machine_deployments)?;
        let timeout = READY_TIMEOUT + TIMEOUT_PER_POOL * self.machine_deployments;
        let meter = Meter::new(installed, timeout);
        let mut pools = Pools::new(client.clone(), count)?;
        let mut secrets =
            SecretWatch::start(Api::namespaced(client.clone(), names::CLOUD_INIT_SETTINGS)).await?;
        let start = meter.settled().await?;

        progress.step(&format!("creating {count} MachineDeployments"));
        let started = pools.create().await?;
        let waits = secrets.revision(1, &started, timeout).await?;
        let created = Phase::new(waits, meter.settled().await?.since(&start));

        progress.step("rotating all");
        let before = meter.settled().await?;
        let started = pools.rotate(2).await?;
        let waits = secrets.revision(2, &started, timeout).await?;
        let rotated = Phase::new(waits, meter.settled().await?.since(&before));
        let absences = secrets.absences()?;

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
        wait_for("everything to be deleted", timeout, async || {
            let left = configs.list_metadata(&kube::api::ListParams::default()).await?;
            check(left.items.is_empty() && secrets.none_left())
        })
        .await?;
        let end = meter.settled().await?;
        let deleted = end.since(&before);
        progress.step("done");
        Ok(Figures {
            count,
            created,
            rotated,
            absences,
            idle,
            deleted,
            end,
        })
    }
}

async fn accepted_profile(client: &Client, namespace: &str) -> Result<()> {
    let profiles = Api::<OperatingSystemProfile>::namespaced(client.clone(), namespace);
    wait_for(
        "the default profile to be accepted",
        READY_TIMEOUT,
        async || match profiles
            .get("osp-ubuntu")
            .await?
            .status
            .and_then(|status| status.accepted)
        {
            Some(_) => Ok(Some(())),
            None => bail!("osp-controller has not accepted it yet"),
        },
    )
    .await
}

/// Prints the pools that are not published.
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
