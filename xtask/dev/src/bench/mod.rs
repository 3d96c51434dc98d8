//! `cargo xtask bench`: how fast many MachineDeployments become user data, and at what cost.
//!
//! Each number of MachineDeployments gets a new etcd and kube-apiserver, which share the machine with the services and with this program.

mod pools;
mod secret_watch;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kube::Api;
use osm_api::rbac::Service;
use osm_api::{OperatingSystemConfig, names};
use osm_testkit::control_plane::{AuditLog, assets};
use osm_testkit::cost::{self, Cost};
use osm_testkit::installation::{self, Installed};
use osm_testkit::procfs;
use osm_testkit::progress::Progress;
use osm_testkit::{ControlPlane, Options, check, wait_for};

use self::pools::{NAMESPACE, Pools};
use self::secret_watch::SecretWatch;
use crate::build::{self, Profile};

/// Time in which a scenario ends, and that each MachineDeployment adds to it.
const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_PER_POOL: Duration = Duration::from_millis(200);

/// Measure many MachineDeployments on a real control plane: time to user data, absence, requests, CPU and memory
///
/// The figures of one run can be compared with each other. Those of two machines or two days can't.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Bench {
    /// Numbers of MachineDeployments to change at once, separated by commas
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "1,100,500,2000",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    machine_deployments: Vec<u32>,
    /// Measure a development build, to try this command; its figures are not comparable
    #[arg(long)]
    dev: bool,
}

/// What happens to all pools at once. The order is the one in which a run performs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// The MachineDeployments are created, with their revision
    Created,
    /// Template and revision change
    Rotated,
    /// Their profile gets another version and content
    ProfileChanged,
    /// The processes are killed and started again while nothing changes
    Restarted,
    /// The MachineDeployments are deleted
    Deleted,
}

const SCENARIOS: [(Scenario, &str); 5] = [
    (Scenario::Created, "created"),
    (Scenario::Rotated, "rotated"),
    (Scenario::ProfileChanged, "profile changed"),
    (Scenario::Restarted, "restarted"),
    (Scenario::Deleted, "deleted"),
];

/// What was measured of one scenario.
struct Figures {
    pools: u32,
    scenario: &'static str,
    /// Time between the change of each pool and its Secret, as an independent watch saw it, the shortest first; empty if no Secret is
    /// waited for.
    waits: Vec<Duration>,
    /// Until everything had happened: all Secrets, or the services ready, or everything deleted.
    all: Duration,
    /// The longest absence of a bootstrap Secret; none if they are meant to go.
    absence: Option<Duration>,
    /// Requests without watches, Leases and Events.
    requests: u64,
    /// Until no request came any longer.
    used: Used,
}

/// What the processes used.
#[derive(Clone, Copy, Default)]
struct Used {
    /// Processor time of kube-apiserver, in seconds.
    apiserver_cpu: f64,
    /// Processor time of all services, in seconds.
    own_cpu: f64,
    /// Sum of the largest resident sets of the services, in bytes.
    own_memory: u64,
}

impl Used {
    async fn so_far(plane: &ControlPlane, services: &Installed) -> Result<Self> {
        let (apiserver, _) = plane.usage().await?;
        let mut used = Self {
            apiserver_cpu: apiserver.cpu_seconds,
            ..Self::default()
        };
        for service in Service::ALL {
            let own = services.process(service)?.usage()?;
            used.own_cpu += own.cpu_seconds;
            used.own_memory += own.peak_rss;
        }
        Ok(used)
    }
}

impl Bench {
    /// Measures, and prints a Markdown table.
    ///
    /// # Errors
    /// Programs that can't be started, and services that don't publish in time.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        assets::ensure(&Options::default().components(), |line| progress.step(line)).await?;
        progress.step("building the services");
        let profile = if self.dev { Profile::Dev } else { Profile::Release };
        let binaries = build::services(profile).await?;
        let mut all = Vec::new();
        for pools in &self.machine_deployments {
            measure(progress, &binaries, *pools, &mut all).await?;
        }
        println!("{}\n{}", crate::revision::read().await?, table(&all));
        Ok(())
    }
}

/// Performs all scenarios on a new control plane.
async fn measure(progress: Progress, binaries: &Path, pools: u32, all: &mut Vec<Figures>) -> Result<()> {
    let plane = ControlPlane::start(Options {
        audit: true,
        ..Options::default()
    })
    .await?;
    let mut services = Installed::install(&plane, installation::as_by_the_chart(), binaries).await?;
    services.environment.extend(environment_of_images());
    services.start_all().await?;
    services.ready(TIMEOUT).await?;
    let client = plane.admin()?;
    pools::create_profile(&client, TIMEOUT).await?;
    let mut stage = Stage {
        log: plane.audit_log()?,
        timeout: TIMEOUT + TIMEOUT_PER_POOL * pools,
        pools: Pools::new(client.clone(), pools),
        secrets: SecretWatch::start(Api::namespaced(client.clone(), names::CLOUD_INIT_SETTINGS)).await?,
        configs: Api::namespaced(client, NAMESPACE),
        plane: &plane,
        services,
    };
    for (scenario, title) in SCENARIOS {
        progress.step(&format!("{pools} pools: {title}"));
        let figures = stage.perform(scenario, pools, title).await;
        all.push(figures.with_context(|| stage.log_tails())?);
    }
    Ok(())
}

/// What the images set. It decides how much memory a service keeps.
fn environment_of_images() -> impl Iterator<Item = (String, String)> {
    const DOCKERFILE: &str = include_str!("../../../../Dockerfile");
    let set = DOCKERFILE.lines().filter_map(|line| line.strip_prefix("ENV "));
    set.flat_map(str::split_whitespace)
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
}

/// The services with their pools.
struct Stage<'a> {
    plane: &'a ControlPlane,
    services: Installed,
    log: AuditLog,
    pools: Pools,
    secrets: SecretWatch,
    configs: Api<OperatingSystemConfig>,
    timeout: Duration,
}

impl Stage<'_> {
    /// Performs a scenario, and waits until the services send nothing more.
    async fn perform(&mut self, scenario: Scenario, pools: u32, title: &'static str) -> Result<Figures> {
        cost::until_quiet(&mut self.log, self.timeout, || Ok(())).await?;
        self.secrets.begin();
        self.log.read()?;
        for service in Service::ALL {
            procfs::reset_peak(self.services.process(service)?.pid())?;
        }
        let mut before = Used::so_far(self.plane, &self.services).await?;
        if scenario == Scenario::Restarted {
            // The new processes begin at zero.
            before.own_cpu = 0.0;
        }
        let started = Instant::now();
        let waits = self.change(scenario).await?;
        let all = started.elapsed();
        let runtime = tokio::runtime::Handle::current();
        let (mut used, plane, services) = (Used::default(), self.plane, &self.services);
        // Read after each request, so that the wait for the end of the requests does not count.
        let events = cost::until_quiet(&mut self.log, self.timeout, || {
            used = tokio::task::block_in_place(|| runtime.block_on(Used::so_far(plane, services)))?;
            Ok(())
        })
        .await?;
        let absence = self.secrets.longest_absence()?.unwrap_or_default();
        Ok(Figures {
            pools,
            scenario: title,
            waits,
            all,
            absence: (scenario != Scenario::Deleted).then_some(absence),
            requests: Cost::of(&events).total(),
            used: Used {
                apiserver_cpu: used.apiserver_cpu - before.apiserver_cpu,
                own_cpu: used.own_cpu - before.own_cpu,
                own_memory: used.own_memory,
            },
        })
    }

    /// Changes all pools, and waits for their Secrets. Returns how long each took, the shortest first.
    async fn change(&mut self, scenario: Scenario) -> Result<Vec<Duration>> {
        match scenario {
            Scenario::Created => {
                let started = self.pools.create(1).await?;
                self.secrets.revision(1, &started, self.timeout).await
            }
            Scenario::Rotated => {
                let started = self.pools.rotate(2).await?;
                self.secrets.revision(2, &started, self.timeout).await
            }
            Scenario::ProfileChanged => {
                let started = self.pools.change_profile().await?;
                self.secrets.written(&started, self.timeout).await
            }
            Scenario::Restarted => {
                for service in Service::ALL {
                    self.services.kill9(service)?;
                }
                self.services.start_all().await?;
                self.services.ready(TIMEOUT).await?;
                Ok(Vec::new())
            }
            Scenario::Deleted => {
                self.pools.delete().await?;
                wait_for("everything to be deleted", self.timeout, async || {
                    let configs = self.configs.list_metadata(&Default::default()).await?;
                    check(self.secrets.none_left() && configs.items.is_empty())
                })
                .await?;
                Ok(Vec::new())
            }
        }
    }

    /// The end of what each service has logged.
    fn log_tails(&self) -> String {
        let tail = |service: Service| {
            let tail = self.services.process(service).map(|process| process.log_tail(20));
            format!("== {}\n{}", service.name(), tail.unwrap_or_default())
        };
        Service::ALL.map(tail).join("\n")
    }
}

/// One row for each number of pools and scenario.
fn table(all: &[Figures]) -> String {
    let mut text = String::from(
        "| Pools | Scenario | p50, s | p99, s | all, s | absent, s | requests per pool | kube-apiserver, ms per pool \
         | own CPU, ms per pool | own memory, MiB |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for figures in all {
        let (pools, used) = (f64::from(figures.pools), figures.used);
        let shown = |time: Option<Duration>| {
            time.map_or("–".to_owned(), |time| format!("{:.2}", time.as_secs_f64()))
        };
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {:.2} | {:.1} | {:.1} | {} |\n",
            figures.pools,
            figures.scenario,
            shown(quantile(&figures.waits, 50)),
            shown(quantile(&figures.waits, 99)),
            shown(Some(figures.all)),
            shown(figures.absence),
            figures.requests as f64 / pools,
            used.apiserver_cpu * 1000.0 / pools,
            used.own_cpu * 1000.0 / pools,
            used.own_memory >> 20,
        ));
    }
    text
}

/// The smallest of sorted `waits` that `percent` of them do not exceed.
fn quantile(waits: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (waits.len() * percent).div_ceil(100).max(1);
    waits.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let waits: Vec<Duration> = (1..=200).map(Duration::from_secs).collect();
        let of = |percent| quantile(&waits, percent).map(|wait| wait.as_secs());
        assert_eq!([50, 99, 100].map(of), [Some(100), Some(198), Some(200)]);
        assert_eq!(quantile(&waits[..1], 50), Some(Duration::from_secs(1)));
        assert_eq!(quantile(&[], 99), None);
    }

    #[test]
    fn figures_are_per_pool() {
        let figures = Figures {
            pools: 10,
            scenario: "created",
            waits: vec![Duration::from_secs(1), Duration::from_secs(2)],
            all: Duration::from_secs(3),
            absence: Some(Duration::ZERO),
            requests: 20,
            used: Used {
                apiserver_cpu: 1.0,
                own_cpu: 0.3,
                own_memory: 2 << 20,
            },
        };
        let text = table(&[figures]);
        let row = "| 10 | created | 1.00 | 2.00 | 3.00 | 0.00 | 2.00 | 100.0 | 30.0 | 2 |";
        assert!(text.contains(row), "{text}");
    }

    #[test]
    fn services_run_as_in_their_images() {
        let names: Vec<String> = environment_of_images().map(|(name, _)| name).collect();
        assert_eq!(names, ["MALLOC_ARENA_MAX", "MALLOC_MMAP_THRESHOLD_"]);
    }
}
