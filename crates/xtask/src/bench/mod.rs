//! `cargo xtask bench`: how fast many MachineDeployments become user data, and at what cost.
//!
//! A run starts a new control plane for each implementation, creates the pools, and performs one [`Scenario`] after the other. With
//! `--write`, the figures replace a section of `docs/performance.md`.

mod admission;
mod api_server;
mod bare;
mod contender;
mod lint;
mod meter;
mod origin;
mod page;
mod pools;
mod rendering;
mod report;
mod scenario;
mod secret_watch;
mod summary;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use jiff::Timestamp;
use kube::{Api, Client};
use osm_api::names;
use osm_bare_client::writes::Change;
use osm_testkit::control_plane::assets;
use osm_testkit::{ControlPlane, Options, check, wait_for};

use self::contender::{BARE_GO, BARE_OWN, Comparison, Contender, Running};
use self::meter::{Meter, seconds_since};
use self::origin::Origin;
use self::page::Section;
use self::pools::{NAMESPACE, Pools};
use self::report::{Phase, Report, Run, Wait};
use self::scenario::Scenario;
use self::secret_watch::SecretWatch;
use crate::build::{self, Profile};
use crate::criterion;
use crate::progress::Progress;

/// Time in which a scenario ends, and that each MachineDeployment adds to it.
const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_PER_POOL: Duration = Duration::from_millis(200);

/// Measure many MachineDeployments on a real control plane: time to user data, absence, requests, CPU, memory, bytes in etcd
///
/// Each implementation gets a new etcd and kube-apiserver. They, the implementation and this program share the machine, so compare only
/// figures of one run. The pools are created first. The other scenarios follow in the order in which the help of --only lists them.
///
/// `--compare NAME=COMMAND` measures another implementation in the same run. `sh -c COMMAND` runs in a process group of its own. The CPU
/// time and the memory of its children count, and the group is killed at the end. The command finds in its environment:
///
/// - KUBECONFIG: a user who may do everything
/// - OSM_BENCH_API_SERVER: URL of kube-apiserver
/// - OSM_BENCH_NAMESPACE: namespace of profiles, OperatingSystemConfigs and MachineDeployments
/// - OSM_BENCH_SECRETS_NAMESPACE: namespace of the Secrets
/// - OSM_BENCH_PROFILE: profile that all MachineDeployments name
/// - OSM_BENCH_DIRECTORY: an empty directory, which is deleted at the end
/// - OSM_BENCH_REPLICA: number of the replica, from 0
///
/// The CustomResourceDefinitions and namespaces exist. Within 60 s, the command must install the profile osp-ubuntu, which the benchmark
/// copies, and within another 60 s publish the MachineDeployment bench-probe. Then it is ready.
///
/// Two bare clients are built in. They send only the writes of an implementation: `bare-own` those of the services, as recorded before from
/// one pool, and `bare-go` those of the Go implementation. `--compare bare` means both.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Bench {
    /// Numbers of MachineDeployments to change at once, separated by commas
    #[arg(short = 'n', long, value_name = "N", value_delimiter = ',', default_value = "100",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    machine_deployments: Vec<u32>,
    /// Scenarios to report, separated by commas; pools are created in any case [default: all]
    #[arg(long, value_name = "SCENARIO", value_delimiter = ',')]
    only: Vec<Scenario>,
    /// Numbers of replicas of each service, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1",
          value_parser = clap::value_parser!(u8).range(1..=8))]
    replicas: Vec<u8>,
    /// Seconds to measure while nothing changes; 0 skips this
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    idle: u64,
    /// Measure another implementation as well: NAME=COMMAND, `bare`, `bare-own` or `bare-go`; repeatable
    #[arg(long, value_name = "NAME=COMMAND")]
    compare: Vec<String>,
    /// Write all results to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure single requests instead: CPU time of kube-apiserver for each kind, and its CPU profile
    #[arg(long, conflicts_with_all = ["compare", "replicas", "only", "json", "write"])]
    profile: bool,
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
    #[arg(long, conflicts_with_all = ["dev", "programs", "idle", "machine_deployments", "compare", "profile"])]
    rendering: bool,
    /// Measure the time that the admission webhooks take for a review instead
    #[arg(long, conflicts_with_all = ["idle", "machine_deployments", "compare", "replicas", "only", "json", "profile", "rendering", "write", "lint"])]
    admission: bool,
    /// Measure the wall time of `osmctl lint` over the default profiles instead
    #[arg(long, conflicts_with_all = ["idle", "machine_deployments", "compare", "replicas", "only", "json", "profile", "rendering", "write"])]
    lint: bool,
}

impl Bench {
    /// Measures, and prints Markdown tables.
    ///
    /// # Errors
    /// Programs that can't be started, and services that don't publish in time.
    pub async fn run(&self) -> Result<()> {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let command = format!("cargo xtask {}", arguments.join(" "));
        if self.rendering {
            let (table, measured) = rendering::table(&criterion::directory())?;
            let origin = Origin::here("cargo bench".to_owned(), measured).await?;
            return self.show(Section::Rendering, &origin, &table, &table);
        }
        if self.lint {
            let programs = match &self.programs {
                Some(programs) => programs.clone(),
                None => build::services_and(self.build_profile(), &["osmctl"]).await?,
            };
            let table = lint::table(&programs.join("osmctl")).await?;
            println!("{}\n{table}", Origin::here(command, Timestamp::now()).await?);
            return Ok(());
        }
        let comparisons = self.comparisons()?;
        let progress = Progress::start();
        assets::ensure(&Options::default().components(), |line| progress.step(line)).await?;
        let binaries = match &self.programs {
            Some(programs) => programs.clone(),
            None => {
                progress.step("building the services");
                build::services_and(self.build_profile(), &[bare::CLIENT]).await?
            }
        };
        let origin = Origin::here(command.clone(), Timestamp::now()).await?;
        if self.admission {
            let table = admission::table(progress, &binaries).await?;
            println!("{origin}\n{table}");
            return Ok(());
        }
        if self.profile {
            let pools = self.machine_deployments.first().copied().unwrap_or(100);
            let table = api_server::profile(progress, &binaries, usize::try_from(pools)?).await?;
            println!("{origin}\n{table}");
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        let contenders = self
            .contenders(progress, binaries, &comparisons, folder.path())
            .await?;
        let report = Report {
            measured: Timestamp::now().to_string(),
            commit: crate::revision::read().await?,
            command,
            development: self.dev,
            runs: self.runs(progress, &contenders).await?,
        };
        if let Some(file) = &self.json {
            std::fs::write(file, serde_json::to_string_pretty(&report)?)
                .with_context(|| file.display().to_string())?;
        }
        let complete =
            |run: &&Run| run.failure.is_none() && run.phases.iter().all(|phase| phase.failure.is_none());
        let first = contenders.first().map(Contender::name).unwrap_or_default();
        let mut own = report.runs.iter().filter(|run| run.implementation == first);
        let failed = own.any(|run| !complete(&run));
        let of_page = summary::tables(&report, first);
        self.show(Section::Pools, &origin, &report.markdown(), &of_page)?;
        ensure!(
            !failed,
            "{first} could not be measured completely: see the lines after the tables"
        );
        Ok(())
    }

    fn build_profile(&self) -> Profile {
        if self.dev { Profile::Dev } else { Profile::Release }
    }

    fn show(&self, section: Section, origin: &Origin, tables: &str, of_page: &str) -> Result<()> {
        println!("{origin}\n{tables}");
        if self.write {
            page::write(section, origin, of_page)
        } else {
            Ok(())
        }
    }

    fn comparisons(&self) -> Result<Vec<Comparison>> {
        let mut all = Vec::new();
        for text in &self.compare {
            match text.as_str() {
                "bare" => all.extend([Comparison::BareOwn, Comparison::BareGo]),
                _ => all.push(
                    text.parse()
                        .map_err(|error| anyhow::anyhow!("--compare {text}: {error}"))?,
                ),
            }
        }
        Ok(all)
    }

    /// The scenarios that are performed, in order.
    fn scenarios(&self) -> Vec<Scenario> {
        let all = Scenario::value_variants().iter().copied();
        all.filter(|scenario| *scenario == Scenario::Created || self.reports(*scenario))
            .collect()
    }

    fn reports(&self, scenario: Scenario) -> bool {
        let chosen = self.only.is_empty() || self.only.contains(&scenario);
        chosen && (scenario != Scenario::Idle || self.idle > 0)
    }

    async fn contenders(
        &self,
        progress: Progress,
        binaries: PathBuf,
        comparisons: &[Comparison],
        folder: &Path,
    ) -> Result<Vec<Contender>> {
        let is_bare =
            |comparison: &Comparison| matches!(comparison, Comparison::BareOwn | Comparison::BareGo);
        let client = binaries.join(bare::CLIENT);
        ensure!(
            client.is_file() || !comparisons.iter().any(is_bare),
            "{} is missing: build it like the services, with `cargo build --package {}`",
            client.display(),
            bare::CLIENT
        );
        let mut contenders = vec![Contender::Services(binaries.clone())];
        for comparison in comparisons {
            let program = match comparison {
                Comparison::BareOwn => {
                    progress.step("recording the writes of the services for one pool");
                    let scenarios = self.scenarios().into_iter();
                    let mut changes: Vec<Change> = scenarios.filter_map(Scenario::change).collect();
                    // The pool that shows that a client is ready is deleted in any case.
                    if !changes.contains(&Change::Deleted) {
                        changes.push(Change::Deleted);
                    }
                    let writes = bare::of_services(&binaries, &changes).await?;
                    bare::program(BARE_OWN, &writes, &client, folder)?
                }
                Comparison::BareGo => bare::program(BARE_GO, &bare::of_go(), &client, folder)?,
                Comparison::Command { name, command } => contender::Program {
                    name: name.clone(),
                    command: command.clone(),
                    bare: false,
                    plain_configs: false,
                },
            };
            contenders.push(Contender::Program(program));
        }
        Ok(contenders)
    }

    async fn runs(&self, progress: Progress, contenders: &[Contender]) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        for replicas in self.replicas.iter().copied().map(usize::from) {
            for pools in &self.machine_deployments {
                for contender in contenders {
                    let name = contender.name();
                    progress.step(&format!("{name}: {pools} pools, replicas: {replicas}"));
                    let mut run = Run {
                        implementation: name.to_owned(),
                        replicas,
                        pools: usize::try_from(*pools)?,
                        phases: Vec::new(),
                        failure: None,
                    };
                    if let Err(error) = self.measure(progress, contender, &mut run).await {
                        progress.warn(&format!("{name}: {error:#}"));
                        run.failure = Some(first_line(&error));
                    }
                    runs.push(run);
                }
            }
        }
        Ok(runs)
    }

    /// Performs all scenarios with one implementation, and adds what was measured to the run.
    async fn measure(&self, progress: Progress, contender: &Contender, run: &mut Run) -> Result<()> {
        let plane = ControlPlane::start(Options {
            audit: true,
            ..Options::default()
        })
        .await?;
        // The bare client of the services has no replicas.
        let replicas = if contender.can_restart() { run.replicas } else { 1 };
        let running = contender.start(&plane, replicas).await?;
        let client = plane.admin()?;
        let mut stage = Stage {
            timeout: TIMEOUT + TIMEOUT_PER_POOL * u32::try_from(run.pools)?,
            pools: Pools::new(client.clone(), run.pools),
            secrets: SecretWatch::start(Api::namespaced(client.clone(), names::CLOUD_INIT_SETTINGS)).await?,
            meter: Meter::new(&plane)?,
            client,
            running,
            revision: 1,
            idle: Duration::from_secs(self.idle),
        };
        for scenario in self.scenarios() {
            let possible = match scenario {
                Scenario::Settings => contender.reads_settings(),
                Scenario::Restarted => contender.can_restart(),
                _ => true,
            };
            if !possible {
                continue;
            }
            progress.step(&format!("{}: {}", contender.name(), scenario.title()));
            let phase = stage.perform(scenario).await?;
            if let Some(failure) = &phase.failure {
                progress.warn(&format!("{failure}\n{}", stage.running.logs()));
            }
            let lost = scenario == Scenario::Created && phase.failure.is_some();
            if self.reports(scenario) {
                run.phases.push(phase);
            }
            ensure!(
                !lost,
                "the pools are not published, so nothing else can be measured"
            );
        }
        Ok(())
    }
}

/// One implementation with its pools.
struct Stage<'a> {
    client: Client,
    pools: Pools,
    secrets: SecretWatch,
    meter: Meter<'a>,
    running: Running,
    /// The next one.
    revision: u64,
    timeout: Duration,
    idle: Duration,
}

impl Stage<'_> {
    /// Performs a scenario, and waits until the implementation is quiet.
    async fn perform(&mut self, scenario: Scenario) -> Result<Phase> {
        self.meter.until_quiet(&self.running, self.timeout).await?;
        self.secrets.begin();
        self.meter.begin(&self.running).await?;
        let started = Instant::now();
        let (waits, failure) = match self.change(scenario).await {
            Ok(waits) => (waits, None),
            Err(error) => (Vec::new(), Some(first_line(&error))),
        };
        let seconds = seconds_since(started);
        let used = match scenario {
            Scenario::Idle => self.meter.now(&self.running).await?,
            _ => self.meter.until_quiet(&self.running, self.timeout).await?,
        };
        let absence = match scenario {
            Scenario::Deleted => None,
            _ => self.secrets.longest_absence()?,
        };
        Ok(Phase {
            scenario,
            seconds,
            wait: (!waits.is_empty()).then(|| Wait::of(&waits)),
            longest_absence_seconds: absence.map(|absence| absence.as_secs_f64()),
            used,
            failure,
        })
    }

    /// Changes all pools, and waits for their Secrets. Returns how long each took, the shortest first.
    async fn change(&mut self, scenario: Scenario) -> Result<Vec<Duration>> {
        let (revision, timeout) = (self.revision, self.timeout);
        match scenario {
            Scenario::Created | Scenario::Rotated | Scenario::Revision => {
                self.revision += 1;
                let started = match scenario {
                    Scenario::Created => self.pools.create(revision).await?,
                    Scenario::Rotated => self.pools.rotate(revision).await?,
                    _ => self.pools.stamp(revision).await?,
                };
                self.secrets.revision(revision, &started, timeout).await
            }
            Scenario::Profile => {
                let started = self.pools.change_profile().await?;
                self.secrets.written(&started, timeout).await
            }
            Scenario::Settings => {
                let started = self.pools.change_settings().await?;
                self.secrets.written(&started, timeout).await
            }
            Scenario::Restarted => {
                self.meter.restarted();
                self.running.restart().await?;
                Ok(Vec::new())
            }
            Scenario::Idle => {
                tokio::time::sleep(self.idle).await;
                Ok(Vec::new())
            }
            Scenario::Deleted => {
                self.pools.delete().await?;
                let kind = osm_testkit::machine_controller::machine_deployment();
                let pools =
                    Api::<kube::core::DynamicObject>::namespaced_with(self.client.clone(), NAMESPACE, &kind);
                let configs =
                    Api::<osm_api::OperatingSystemConfig>::namespaced(self.client.clone(), NAMESPACE);
                let all = kube::api::ListParams::default();
                wait_for("everything to be deleted", timeout, async || {
                    let left = self.secrets.none_left()
                        && configs.list_metadata(&all).await?.items.is_empty()
                        && pools.list_metadata(&all).await?.items.is_empty();
                    check(left)
                })
                .await?;
                Ok(Vec::new())
            }
        }
    }
}

/// The message without the logs that follow it.
fn first_line(error: &anyhow::Error) -> String {
    let chain = error.chain().map(ToString::to_string);
    let lines = chain.filter_map(|text| text.lines().next().map(str::to_owned));
    lines
        .filter(|line| !line.starts_with("== "))
        .collect::<Vec<_>>()
        .join(": ")
}
