//! `cargo xtask bench`: how fast many MachineDeployments become user data, and at what cost.
//!
//! Each implementation and number of MachineDeployments gets a new etcd and kube-apiserver, which share the
//! machine with the implementation and with this program.

mod implementation;
mod pools;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::Api;
use osm_api::OperatingSystemConfig;
use osm_testkit::control_plane::{AuditLog, assets};
use osm_testkit::cost::{self, Cost};
use osm_testkit::installation;
use osm_testkit::procfs::{self, Usage};
use osm_testkit::progress::Progress;
use osm_testkit::secret_watch::SecretWatch;
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde::Serialize;

use self::implementation::{Implementation, Running};
use self::pools::{NAMESPACE, Pools, StartTimes};
use crate::build::{self, Profile};

/// Time in which a scenario ends, and that each MachineDeployment adds to it.
const TIMEOUT: Duration = Duration::from_secs(180);
const TIMEOUT_PER_POOL: Duration = Duration::from_millis(200);

/// Measure many MachineDeployments on a real control plane: time to user data, absence, requests, CPU and
/// memory
///
/// The figures of one run can be compared with each other. Those of two machines or two days can't.
///
/// `--compare NAME=COMMAND` starts `sh -c COMMAND` in place of the services, in the same run. It finds in its
/// environment:
///
/// - KUBECONFIG: a user who may do everything
/// - OSM_BENCH_NAMESPACE: namespace of profiles, OperatingSystemConfigs and MachineDeployments
/// - OSM_BENCH_PROFILE: the profile that all MachineDeployments name
/// - OSM_BENCH_DIRECTORY: an empty directory, which is deleted at the end
///
/// The CustomResourceDefinitions and namespaces exist. The command must install the profile osp-ubuntu, which
/// the benchmark copies.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Bench {
    /// Numbers of MachineDeployments to change at once, separated by commas
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "1,100,500,2000",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    machine_deployments: Vec<u32>,
    /// Measure another implementation as well; repeatable
    #[arg(long, value_name = "NAME=COMMAND", value_parser = implementation::parse)]
    compare: Vec<Implementation>,
    /// Write the figures to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure the development build in OSM_BIN_DIR, or a new one, to try this command; its figures are not
    /// comparable
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

/// What was measured of one scenario. This is an element of the file of `--json`.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    implementation: String,
    pools: u32,
    scenario: &'static str,
    /// Seconds between the change of each pool and its Secret, as an independent watch saw it, the shortest
    /// first; empty if no Secret is waited for.
    waits: Vec<f64>,
    /// Seconds until everything had happened: all Secrets, or the services ready, or everything deleted. None
    /// if nothing shows it.
    seconds: Option<f64>,
    /// The longest absence of a bootstrap Secret, in seconds; none if they are meant to go.
    longest_absence_seconds: Option<f64>,
    /// Requests by verb and resource, without watches, Leases and Events.
    requests: BTreeMap<String, u64>,
    /// Until no request came any longer.
    #[serde(flatten)]
    used: Used,
}

#[derive(Clone, Copy, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Used {
    apiserver_cpu_seconds: f64,
    /// Processor time of all processes of the implementation.
    own_cpu_seconds: f64,
    /// Sum of their largest resident sets.
    own_peak_bytes: u64,
}

impl Used {
    async fn so_far(plane: &ControlPlane, running: &Running) -> Result<Self> {
        let apiserver = plane.usage().await?;
        let mut used = Self {
            apiserver_cpu_seconds: apiserver.cpu_seconds,
            ..Self::default()
        };
        for pid in running.processes()? {
            // What a command has started may end at any moment.
            let own = Usage::of(pid).unwrap_or_default();
            used.own_cpu_seconds += own.cpu_seconds;
            used.own_peak_bytes += own.peak_rss;
        }
        Ok(used)
    }
}

impl Bench {
    /// Measures, and prints a Markdown table.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        assets::ensure(&Options::default().components(), |line| progress.step(line)).await?;
        progress.step("building the services");
        let binaries = if self.dev {
            tokio::task::spawn_blocking(installation::binaries).await??
        } else {
            build::services(Profile::Release).await?
        };
        let mut implementations = vec![Implementation::Services(binaries)];
        implementations.extend(self.compare.iter().cloned());
        let mut all = Vec::new();
        let outcome: Result<()> = async {
            for pools in &self.machine_deployments {
                for implementation in &implementations {
                    measure(progress, implementation, *pools, &mut all).await?;
                }
            }
            Ok(())
        }
        .await;
        // What was measured before a failure took long, too.
        println!("{}\n{}", crate::revision::read().await?, table(&all));
        if let Some(file) = &self.json {
            std::fs::write(file, serde_json::to_string_pretty(&all)?)
                .with_context(|| file.display().to_string())?;
        }
        outcome
    }
}

/// Performs all scenarios with one implementation on a new control plane.
async fn measure(
    progress: Progress,
    implementation: &Implementation,
    pools: u32,
    all: &mut Vec<Figures>,
) -> Result<()> {
    let name = implementation.name();
    let plane = ControlPlane::start(Options {
        audit: true,
        ..Options::default()
    })
    .await?;
    let client = plane.admin()?;
    let mut stage = Stage {
        log: plane.audit_log()?,
        timeout: TIMEOUT + TIMEOUT_PER_POOL * pools,
        pools: Pools::new(client.clone(), pools),
        running: implementation.start(&plane, TIMEOUT).await?,
        secrets: SecretWatch::start(client.clone()).await?,
        configs: Api::namespaced(client.clone(), NAMESPACE),
        plane: &plane,
    };
    progress.step(&format!("{name}, {pools} pools: started"));
    let served = stage.serve_a_pool(client).await;
    served.with_context(|| format!("{name}:\n{}", stage.running.log_tails()))?;
    for (scenario, title) in SCENARIOS {
        progress.step(&format!("{name}, {pools} pools: {title}"));
        let figures = stage.perform(scenario).await;
        let figures = figures.with_context(|| format!("{name}:\n{}", stage.running.log_tails()))?;
        all.push(Figures {
            implementation: name.to_owned(),
            pools,
            scenario: title,
            ..figures
        });
    }
    Ok(())
}

/// One implementation with its pools.
struct Stage<'a> {
    plane: &'a ControlPlane,
    running: Running,
    log: AuditLog,
    pools: Pools,
    secrets: SecretWatch,
    configs: Api<OperatingSystemConfig>,
    timeout: Duration,
}

impl Stage<'_> {
    /// Installs the profile, and waits until a first pool is published and deleted again. Only then the
    /// implementation has started.
    async fn serve_a_pool(&self, client: kube::Client) -> Result<()> {
        pools::create_profile(&client, TIMEOUT).await?;
        let pool = Pools::new(client, 1);
        self.written(1, &pool.create(1).await?).await?;
        pool.delete().await?;
        self.all_deleted().await
    }

    async fn all_deleted(&self) -> Result<()> {
        wait_for("everything to be deleted", self.timeout, async || {
            let configs = self.configs.list_metadata(&Default::default()).await?;
            check(self.secrets.none_left() && configs.items.is_empty())
        })
        .await
    }

    /// Performs a scenario, and waits until the implementation sends nothing more.
    async fn perform(&mut self, scenario: Scenario) -> Result<Figures> {
        cost::until_quiet(&mut self.log, self.timeout, || Ok(())).await?;
        self.secrets.forget();
        self.log.read()?;
        for pid in self.running.processes()? {
            // What a command has started may end at any moment.
            let _ = procfs::reset_peak(pid);
        }
        let mut before = Used::so_far(self.plane, &self.running).await?;
        if scenario == Scenario::Restarted {
            // The new processes begin at zero.
            before.own_cpu_seconds = 0.0;
        }
        let started = Instant::now();
        let waits = self.change(scenario).await?;
        let seconds = started.elapsed().as_secs_f64();
        // A command does not say when it is ready again.
        let is_shown = scenario != Scenario::Restarted || matches!(self.running, Running::Services(_));
        let runtime = tokio::runtime::Handle::current();
        let (mut used, plane, running) = (Used::default(), self.plane, &self.running);
        // Read after each request, so that the wait for the end of the requests does not count.
        let events = cost::until_quiet(&mut self.log, self.timeout, || {
            used = tokio::task::block_in_place(|| runtime.block_on(Used::so_far(plane, running)))?;
            Ok(())
        })
        .await?;
        let absence = self.secrets.longest_absence()?.as_secs_f64();
        Ok(Figures {
            waits: waits.iter().map(Duration::as_secs_f64).collect(),
            seconds: is_shown.then_some(seconds),
            longest_absence_seconds: (scenario != Scenario::Deleted).then_some(absence),
            requests: Cost::of(&events).requests,
            used: Used {
                apiserver_cpu_seconds: used.apiserver_cpu_seconds - before.apiserver_cpu_seconds,
                own_cpu_seconds: used.own_cpu_seconds - before.own_cpu_seconds,
                ..used
            },
            ..Figures::default()
        })
    }

    /// Waits until each of these Secrets was written with `revision` in this scenario. Returns how long each
    /// took, the shortest first.
    async fn written(&self, revision: u64, started: &StartTimes) -> Result<Vec<Duration>> {
        let what = format!("every bootstrap Secret to be written with revision {revision}");
        let revision = revision.to_string();
        let mut waits = wait_for(&what, self.timeout, async || {
            let wait = |(name, since): (&String, &Instant)| {
                let written = self.secrets.first(name, &revision)?;
                Some(written.saturating_duration_since(*since))
            };
            let waits: Vec<Duration> = started.iter().filter_map(wait).collect();
            let (written, all) = (waits.len(), started.len());
            ensure!(written == all, "{written} of {all} are");
            Ok(Some(waits))
        })
        .await?;
        waits.sort_unstable();
        Ok(waits)
    }

    /// Changes all pools, and waits for their Secrets. Returns how long each took, the shortest first.
    async fn change(&mut self, scenario: Scenario) -> Result<Vec<Duration>> {
        match scenario {
            Scenario::Created => {
                let started = self.pools.create(1).await?;
                self.written(1, &started).await
            }
            Scenario::Rotated => {
                let started = self.pools.rotate(2).await?;
                self.written(2, &started).await
            }
            Scenario::ProfileChanged => {
                let started = self.pools.change_profile().await?;
                self.written(2, &started).await
            }
            Scenario::Restarted => {
                self.running.restart(TIMEOUT).await?;
                Ok(Vec::new())
            }
            Scenario::Deleted => {
                self.pools.delete().await?;
                self.all_deleted().await?;
                Ok(Vec::new())
            }
        }
    }
}

/// One row for each number of pools, implementation and scenario.
fn table(all: &[Figures]) -> String {
    let mut text = String::from(
        "| Pools | Scenario | Implementation | p50, s | p99, s | all, s | absent, s | requests per pool | kube-apiserver, ms per pool \
         | own CPU, ms per pool | own memory, MiB |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for figures in all {
        let (pools, used) = (f64::from(figures.pools), figures.used);
        let shown =
            |seconds: Option<f64>| seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.2}"));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {} | {} | {:.2} | {:.1} | {:.1} | {} |\n",
            figures.pools,
            figures.scenario,
            figures.implementation,
            shown(quantile(&figures.waits, 50)),
            shown(quantile(&figures.waits, 99)),
            shown(figures.seconds),
            shown(figures.longest_absence_seconds),
            figures.requests.values().sum::<u64>() as f64 / pools,
            used.apiserver_cpu_seconds * 1000.0 / pools,
            used.own_cpu_seconds * 1000.0 / pools,
            used.own_peak_bytes >> 20,
        ));
    }
    text
}

/// The smallest of sorted `waits` that `percent` of them do not exceed.
fn quantile(waits: &[f64], percent: usize) -> Option<f64> {
    let rank = (waits.len() * percent).div_ceil(100).max(1);
    waits.get(rank - 1).copied()
}
