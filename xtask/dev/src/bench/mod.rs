//! `cargo xtask bench`: how fast many MachineDeployments become user data, and at what cost.
//!
//! Each implementation gets a new etcd and kube-apiserver, which share the machine with it and with this program.

mod contender;
mod pools;
mod secret_watch;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use kube::{Api, Client};
use osm_api::names;
use osm_testkit::control_plane::{AuditLog, assets};
use osm_testkit::cost::{self, Cost};
use osm_testkit::procfs::{self, Usage};
use osm_testkit::{ControlPlane, Options, check, wait_for};
use serde::Serialize;

use self::contender::{Contender, Running};
use self::pools::{NAMESPACE, Pools};
use self::secret_watch::SecretWatch;
use crate::build::{self, Profile};
use osm_testkit::progress::Progress;

/// Time in which a scenario ends, and that each MachineDeployment adds to it.
const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_PER_POOL: Duration = Duration::from_millis(200);

/// Measure many MachineDeployments on a real control plane: time to user data, absence, requests, CPU and memory
///
/// The figures of one run can be compared with each other. Those of two machines or two days can't.
///
/// `--compare NAME=COMMAND` measures another implementation in the same run. `sh -c COMMAND` runs in a process group of its own, which is
/// killed at the end. The command finds in its environment:
///
/// - KUBECONFIG: a user who may do everything
/// - OSM_BENCH_NAMESPACE: namespace of profiles, OperatingSystemConfigs and MachineDeployments
/// - OSM_BENCH_PROFILE: profile that all MachineDeployments name
/// - OSM_BENCH_DIRECTORY: an empty directory, which is deleted at the end
///
/// The CustomResourceDefinitions and namespaces exist. Within 60 s, the command must install the profile osp-ubuntu, which the benchmark
/// copies, and within another 60 s publish the MachineDeployment bench-probe. Then it is ready.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Bench {
    /// Numbers of MachineDeployments to change at once, separated by commas
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "1,100,500,2000",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    machine_deployments: Vec<u32>,
    /// Measure another implementation as well; repeatable
    #[arg(long, value_name = "NAME=COMMAND", value_parser = contender::parse)]
    compare: Vec<(String, String)>,
    /// Write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure a development build, to try this command; its figures are not comparable
    #[arg(long)]
    dev: bool,
}

/// What happens to all pools at once. The order is the one in which a run performs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
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

/// What was measured of one scenario. This is an element of the file of `--json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Figures {
    implementation: String,
    pools: usize,
    scenario: Scenario,
    /// Seconds between the change of a pool and its Secret, as an independent watch saw it; absent if no Secret is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<Wait>,
    /// Seconds until everything had happened: all Secrets, or the services ready, or everything deleted.
    seconds: f64,
    /// The longest absence of a bootstrap Secret, in seconds; absent if they are meant to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    longest_absence_seconds: Option<f64>,
    /// Requests by verb and resource, without watches, Leases and Events.
    requests: BTreeMap<String, u64>,
    /// What each process used until no request came any longer.
    processes: BTreeMap<String, Used>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Wait {
    p50: f64,
    p99: f64,
    max: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Used {
    cpu_seconds: f64,
    peak_bytes: u64,
}

impl Bench {
    /// Measures, and prints Markdown tables.
    ///
    /// # Errors
    /// Programs that can't be started, and services that don't publish in time.
    pub async fn run(&self) -> Result<()> {
        let progress = Progress::start();
        assets::ensure(&Options::default().components(), |line| progress.step(line)).await?;
        progress.step("building the services");
        let profile = if self.dev { Profile::Dev } else { Profile::Release };
        let mut contenders = vec![Contender::Services(build::services(profile).await?)];
        for (name, command) in &self.compare {
            contenders.push(Contender::Command {
                name: name.clone(),
                command: command.clone(),
            });
        }
        let (mut all, mut failed) = (Vec::new(), Vec::new());
        for pools in &self.machine_deployments {
            for contender in &contenders {
                progress.step(&format!("{}: {pools} pools", contender.name()));
                let measured = measure(progress, contender, usize::try_from(*pools)?, &mut all).await;
                if let Err(error) = measured {
                    progress.warn(&format!("{error:#}"));
                    failed.push(contender.name());
                }
            }
        }
        println!("{}\n{}", crate::revision::read().await?, table(&all));
        if let Some(file) = &self.json {
            std::fs::write(file, serde_json::to_string_pretty(&all)?)
                .with_context(|| file.display().to_string())?;
        }
        if !failed.is_empty() {
            bail!("not measured completely, see the warnings: {}", failed.join(", "));
        }
        Ok(())
    }
}

/// Performs all scenarios with one implementation on a new control plane.
async fn measure(
    progress: Progress,
    contender: &Contender,
    pools: usize,
    all: &mut Vec<Figures>,
) -> Result<()> {
    let plane = ControlPlane::start(Options {
        audit: true,
        ..Options::default()
    })
    .await?;
    let running = contender.start(&plane).await?;
    let client = plane.admin()?;
    let mut stage = Stage {
        plane: &plane,
        log: plane.audit_log()?,
        timeout: TIMEOUT + TIMEOUT_PER_POOL * u32::try_from(pools)?,
        pools: Pools::new(client.clone(), pools),
        secrets: SecretWatch::start(Api::namespaced(client.clone(), names::CLOUD_INIT_SETTINGS)).await?,
        client,
        running,
    };
    for scenario in Scenario::value_variants() {
        progress.step(&format!("{}: {}", contender.name(), title(*scenario)));
        let figures = stage.perform(*scenario, contender.name(), pools).await;
        all.push(figures.map_err(|error| error.context(stage.running.logs()))?);
    }
    Ok(())
}

/// One implementation with its pools.
struct Stage<'a> {
    plane: &'a ControlPlane,
    client: Client,
    log: AuditLog,
    pools: Pools,
    secrets: SecretWatch,
    running: Running,
    timeout: Duration,
}

impl Stage<'_> {
    /// Performs a scenario, and waits until the implementation sends nothing more.
    async fn perform(&mut self, scenario: Scenario, implementation: &str, pools: usize) -> Result<Figures> {
        cost::until_quiet(&mut self.log, self.timeout, || Ok(())).await?;
        self.secrets.begin();
        self.log.read()?;
        for pid in self.running.processes()?.into_values().flatten() {
            procfs::reset_peak(pid)?;
        }
        let mut before = usage(self.plane, &self.running).await?;
        if scenario == Scenario::Restarted {
            // The new processes begin at zero.
            before.retain(|name, _| name == "kube-apiserver" || name == "etcd");
        }
        let started = Instant::now();
        let waits = self.change(scenario).await?;
        let seconds = started.elapsed().as_secs_f64();
        let runtime = tokio::runtime::Handle::current();
        let (mut after, plane, running) = (BTreeMap::new(), self.plane, &self.running);
        // Read after each request, so that the wait for the end of the requests does not count.
        let events = cost::until_quiet(&mut self.log, self.timeout, || {
            after = tokio::task::block_in_place(|| runtime.block_on(usage(plane, running)))?;
            Ok(())
        })
        .await?;
        let used = |(name, after): (String, Usage)| {
            let before = before.get(&name).copied().unwrap_or_default();
            let used = Used {
                cpu_seconds: (after.cpu_seconds - before.cpu_seconds).max(0.0),
                peak_bytes: after.peak_rss,
            };
            (name, used)
        };
        let absence = self.secrets.longest_absence()?.unwrap_or_default();
        Ok(Figures {
            implementation: implementation.to_owned(),
            pools,
            scenario,
            wait: (!waits.is_empty()).then(|| Wait {
                p50: quantile(&waits, 50),
                p99: quantile(&waits, 99),
                max: quantile(&waits, 100),
            }),
            seconds,
            longest_absence_seconds: (scenario != Scenario::Deleted).then_some(absence.as_secs_f64()),
            requests: Cost::of(&events).requests,
            processes: after.into_iter().map(used).collect(),
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
                self.running.restart().await?;
                Ok(Vec::new())
            }
            Scenario::Deleted => {
                self.pools.delete().await?;
                let configs =
                    Api::<osm_api::OperatingSystemConfig>::namespaced(self.client.clone(), NAMESPACE);
                wait_for("everything to be deleted", self.timeout, async || {
                    let configs = configs.list_metadata(&Default::default()).await?;
                    check(self.secrets.none_left() && configs.items.is_empty())
                })
                .await?;
                Ok(Vec::new())
            }
        }
    }
}

async fn usage(plane: &ControlPlane, running: &Running) -> Result<BTreeMap<String, Usage>> {
    let (apiserver, etcd) = plane.usage().await?;
    let mut usage = BTreeMap::from([
        ("kube-apiserver".to_owned(), apiserver),
        ("etcd".to_owned(), etcd),
    ]);
    for (name, pids) in running.processes()? {
        usage.insert(name, Usage::of_all(&pids));
    }
    Ok(usage)
}

fn title(scenario: Scenario) -> &'static str {
    match scenario {
        Scenario::Created => "created",
        Scenario::Rotated => "rotated",
        Scenario::ProfileChanged => "profile changed",
        Scenario::Restarted => "restarted",
        Scenario::Deleted => "deleted",
    }
}

/// One row for each implementation, number of pools and scenario.
fn table(all: &[Figures]) -> String {
    let mut text = String::from(
        "| Pools | Scenario | Implementation | p50, s | p99, s | all, s | absent, s | requests per pool | kube-apiserver, ms per pool \
         | own CPU, ms per pool | own memory, MiB |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for figures in all {
        let pools = to_f64(figures.pools);
        let of_control_plane = |name: &str| name == "kube-apiserver" || name == "etcd";
        let own = || {
            figures
                .processes
                .iter()
                .filter(|(name, _)| !of_control_plane(name))
        };
        let apiserver = figures
            .processes
            .get("kube-apiserver")
            .map_or(0.0, |used| used.cpu_seconds);
        let cpu: f64 = own().map(|(_, used)| used.cpu_seconds).sum();
        let memory: u64 = own().map(|(_, used)| used.peak_bytes).sum();
        let shown =
            |seconds: Option<f64>| seconds.map_or("–".to_owned(), |seconds| format!("{seconds:.2}"));
        text.push_str(&format!(
            "| {} | {} | {} | {} | {} | {:.2} | {} | {:.2} | {:.1} | {:.1} | {:.0} |\n",
            figures.pools,
            title(figures.scenario),
            figures.implementation,
            shown(figures.wait.map(|wait| wait.p50)),
            shown(figures.wait.map(|wait| wait.p99)),
            figures.seconds,
            shown(figures.longest_absence_seconds),
            to_f64(figures.requests.values().sum::<u64>()) / pools,
            apiserver * 1000.0 / pools,
            cpu * 1000.0 / pools,
            to_f64(memory) / f64::from(1 << 20),
        ));
    }
    text
}

/// The smallest of sorted `waits` that `percent` of them do not exceed, in seconds.
fn quantile(waits: &[Duration], percent: usize) -> f64 {
    let rank = (waits.len() * percent).div_ceil(100).max(1);
    waits.get(rank - 1).copied().unwrap_or_default().as_secs_f64()
}

#[allow(clippy::cast_precision_loss)]
fn to_f64(number: impl TryInto<u64>) -> f64 {
    number.try_into().unwrap_or_default() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let waits: Vec<Duration> = (1..=200).map(Duration::from_secs).collect();
        assert_eq!(
            [50, 99, 100].map(|percent| quantile(&waits, percent)),
            [100.0, 198.0, 200.0]
        );
        assert_eq!(quantile(&[Duration::from_secs(7)], 50), 7.0);
        assert_eq!(quantile(&[], 99), 0.0);
    }

    #[test]
    fn figures_are_per_pool_and_those_of_the_control_plane_are_not_our_own() {
        let used = |cpu_seconds| Used {
            cpu_seconds,
            peak_bytes: 1 << 20,
        };
        let figures = Figures {
            implementation: "this commit".to_owned(),
            pools: 10,
            scenario: Scenario::Created,
            wait: Some(Wait {
                p50: 1.0,
                p99: 2.0,
                max: 3.0,
            }),
            seconds: 3.0,
            longest_absence_seconds: Some(0.0),
            requests: BTreeMap::from([("create secrets".to_owned(), 20)]),
            processes: BTreeMap::from([
                ("kube-apiserver".to_owned(), used(1.0)),
                ("a".to_owned(), used(0.1)),
                ("b".to_owned(), used(0.2)),
            ]),
        };
        let text = table(&[figures]);
        let row = "| 10 | created | this commit | 1.00 | 2.00 | 3.00 | 0.00 | 2.00 | 100.0 | 30.0 | 2 |";
        assert!(text.contains(row), "{text}");
    }
}
