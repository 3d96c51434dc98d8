//! `cargo xtask e2e node`: machines that boot from the published user data, and join.

mod faults;
mod ignition;
mod ipv6;
mod join;
mod kernel;
mod power;
mod proxy;
pub(crate) mod scenario_run;
mod secrets;
mod target;

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use futures::StreamExt;
use osm_judges::packages;
use osm_lab::machines::{self, Accelerator, DataSource, Link, Release, isolation};
use osm_lab::release::Kubelet;

use self::scenario_run::ScenarioRun;
use self::target::Target;
use super::environment::{self, Environment, SettingsChange};
use super::helm;
use super::machine_args::{self, MachineArgs};
use super::pool::Cloud;
use osm_testkit::progress::Progress;

/// The longest that any scenario may take.
const DEADLINE: Duration = Duration::from_secs(600);

/// The folder with the logs of all but machines.
const SITE: &str = "environment";

/// Where the services and osmctl are, if they are built already.
const BINARIES: &str = "OSM_BIN_DIR";

/// The scenario that runs if none is named.
const USUAL: &str = "join";

/// Boot machines that provision themselves and join a cluster, without internet
///
/// A whole cluster, the services, a mirror, a registry and virtual machines of QEMU run on this computer, in
/// network, mount and process namespaces of their own: nothing of it reaches the host's network, and all of
/// it is gone at the end. It needs no root. The first run builds the cluster's programs and the machines'
/// images, which takes about ten minutes; later ones start in seconds.
///
/// Machines use KVM where it runs a trial machine, and else emulation, which takes several times as long.
#[derive(clap::Args)]
pub struct Node {
    /// Scenarios to run [default: join]
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Run every scenario
    #[arg(long, conflicts_with = "scenarios")]
    all: bool,
    /// Name the scenarios and what they show
    #[arg(long)]
    list: bool,
    /// Release of Debian that machines run; may be repeated [default: 12]
    #[arg(long, value_enum, value_name = "RELEASE")]
    debian: Vec<Debian>,
    /// Image of a distributor that machines boot instead of Debian; may be repeated
    ///
    /// OS is the operating system as a MachineDeployment names it, and LOCATION a path or a URL. CHECKSUM is
    /// the SHA-256 that the image must have: take it from the list that the distributor has signed.
    #[arg(long, value_name = "OS=LOCATION,sha256=CHECKSUM")]
    image: Vec<String>,
    #[command(flatten)]
    machines: MachineArgs,
    /// Machines at the same time [default: 2, by emulation: 1]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Where the logs of scenarios that fail go
    #[arg(long, value_name = "FOLDER", default_value = "target/e2e")]
    logs: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Debian {
    #[value(name = "12")]
    Twelve,
    #[value(name = "13")]
    Thirteen,
}

/// Scenarios, each with what its machine boots.
type Plan = Vec<(&'static Scenario, Target)>;

/// A scenario that runs.
type Play<'a> = Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

/// What happens to a machine, and how it must end.
pub struct Scenario {
    name: &'static str,
    shows: &'static str,
    cloud: Cloud,
    link: Link,
    /// Where cloud-init finds its data.
    data_source: DataSource,
    /// What its machine boots, whatever was asked for.
    target: Option<fn() -> Target>,
    /// How the environment's settings differ from those of docs/air-gap.md.
    settings: Option<SettingsChange>,
    play: for<'a> fn(&'a ScenarioRun<'a>) -> Play<'a>,
}

macro_rules! scenario {
    ($name:literal, $play:path, $shows:literal) => {
        Scenario {
            name: $name,
            shows: $shows,
            cloud: Cloud::OpenStack,
            link: Link::IPv4,
            data_source: DataSource::NoCloud,
            target: None,
            settings: None,
            play: |run| Box::pin($play(run)),
        }
    };
}

#[rustfmt::skip] // a table
const SCENARIOS: &[Scenario] = &[
    Scenario { data_source: DataSource::OpenStack, ..scenario!("join", join::join, "data from OpenStack's metadata service: becomes Ready, runs a pod whose logs can be read") },
    Scenario { data_source: DataSource::Ec2, cloud: Cloud::Aws, ..scenario!("aws", join::aws, "data and the node's name from EC2's metadata service, user data compressed") },
    Scenario { target: Some(Target::ignition), ..scenario!("ignition", ignition::ignition, "Ignition applies both documents of a Flatcar pool, each in the initramfs of a boot; Debian 12 with Ignition stands in for Flatcar") },
    scenario!("rotated", faults::rotated, "content changes between boot and fetch: the machine gets its own"),
    scenario!("restart", power::restart, "reset before the document is applied, and while programs are downloaded; a boot after success changes nothing"),
    scenario!("power-cut", power::power_cut, "the power is cut at the first boot, before files are on the disk"),
    scenario!("disk-full", faults::disk_full, "no room for the downloads, then there is"),
    Scenario { settings: Some(faults::mirror_by_name), ..scenario!("mirror", faults::mirror, "no DNS; then the mirror answers 404, half a file, another file; then is mended") },
    Scenario { link: Link::IPv6, settings: Some(ipv6::by_ipv6), ..scenario!("ipv6", ipv6::ipv6, "IPv6 only: API server, mirror and registry, too") },
    Scenario { settings: Some(proxy::proxy), ..scenario!("proxy-password", proxy::proxy_password, "a proxy that wants a password, which nobody else sees") },
    Scenario { settings: Some(one_crictl), ..scenario!("kubelets", kernel::kubelets, "the oldest and the newest kubelet, with control groups of version 2") },
    Scenario { settings: Some(faults::graceful_shutdown), ..scenario!("modules-missing", faults::modules_missing, "modules for pods are missing, then there; AppArmor confines pods; logind limits shutdowns as in Ubuntu's images") },
    // The last one, since no approver runs from then on. What runs by itself has settings, even if they are
    // as usual.
    Scenario { settings: Some(|_| Ok(())), ..scenario!("static", join::without_approver, "no approver runs, and kube-controller-manager approves") },
];

/// What `cargo xtask e2e helm` runs.
const CHART: &Scenario = &scenario!(
    "helm",
    helm::release,
    "the README's commands install the chart, whose pods publish"
);

/// Install the chart into a whole cluster, and upgrade and uninstall it
///
/// The cluster is that of `cargo xtask e2e node`. Its node has booted from user data of services on the host,
/// which are then uninstalled: the README's commands install the chart on that node. It takes as long as a
/// machine that joins, and the build of our images and of Helm.
#[derive(clap::Args)]
pub struct Helm {
    #[command(flatten)]
    machines: MachineArgs,
    /// Where the logs go when it fails
    #[arg(long, value_name = "FOLDER", default_value = "target/e2e")]
    logs: PathBuf,
}

impl Helm {
    /// Runs it.
    ///
    /// # Errors
    /// Whatever is not as it should be.
    pub async fn run(self) -> Result<()> {
        let node = Node {
            scenarios: Vec::new(),
            all: false,
            list: false,
            debian: Vec::new(),
            image: Vec::new(),
            machines: self.machines,
            jobs: None,
            logs: self.logs,
        };
        node.run_plan(vec![(CHART, Release::Debian12.into())]).await
    }
}

/// All kubelets come with the crictl that the mirror has.
fn one_crictl(settings: &mut serde_json::Value) -> Result<()> {
    let crictl = settings
        .pointer_mut("/downloads/crictl")
        .and_then(serde_json::Value::as_object_mut)
        .context("downloads.crictl")?;
    let pinned = crictl
        .get("sha256")
        .and_then(serde_json::Value::as_object)
        .and_then(|versions| versions.keys().next());
    let version = pinned.context("the mirror has no crictl")?.clone();
    crictl.insert("version".to_owned(), version.into());
    Ok(())
}

impl Node {
    /// Runs the scenarios and prints how each ended; the last line is `N passed, N failed`.
    ///
    /// # Errors
    /// When one failed.
    pub async fn run(&self) -> Result<()> {
        if self.list {
            for Scenario { name, shows, .. } in SCENARIOS {
                println!("{name:<16} {shows}");
            }
            return Ok(());
        }
        self.run_plan(self.plan()?).await
    }

    async fn run_plan(&self, plan: Plan) -> Result<()> {
        let accelerator = tokio::task::block_in_place(|| self.machines.accelerator())?;
        if isolation::directory().is_some() {
            isolation::end_with_parent();
            return self.play(accelerator, &plan).await;
        }
        self.prepare(accelerator, &plan).await
    }

    /// Each scenario with what its machine boots.
    fn plan(&self) -> Result<Plan> {
        let mut names: Vec<&str> = self.scenarios.iter().map(String::as_str).collect();
        if names.is_empty() {
            names.push(USUAL);
        }
        for name in &names {
            ensure!(
                SCENARIOS.iter().any(|scenario| scenario.name == *name),
                "there is no scenario {name}: cargo xtask e2e node --list names them"
            );
        }
        let mut targets = self
            .image
            .iter()
            .map(|image| Target::given(image))
            .collect::<Result<Vec<_>>>()?;
        targets.extend(self.debian.iter().map(|debian| match debian {
            Debian::Twelve => Target::from(Release::Debian12),
            Debian::Thirteen => Target::from(Release::Debian13),
        }));
        if targets.is_empty() {
            targets.push(Release::Debian12.into());
        }
        let chosen = SCENARIOS
            .iter()
            .filter(|scenario| self.all || names.contains(&scenario.name));
        Ok(chosen
            .flat_map(|scenario| match scenario.target {
                Some(own) => vec![(scenario, own())],
                None => targets.iter().map(|target| (scenario, target.clone())).collect(),
            })
            .collect())
    }

    /// While there is a network; then again, isolated.
    async fn prepare(&self, accelerator: Accelerator, plan: &[(&'static Scenario, Target)]) -> Result<()> {
        isolation::require_host()?;
        let progress = Progress::start();
        progress.step(&format!("machines are {accelerator}"));
        progress.step("Debian packages that machines need");
        tokio::task::spawn_blocking(|| packages::ensure(machines::PACKAGES)).await??;
        let mut systems: Vec<_> = Vec::new();
        for (_, target) in plan {
            if !systems.contains(&target.system) {
                systems.push(target.system.clone());
            }
        }
        let kubelets: &[&str] = if plan.iter().any(|(scenario, _)| scenario.name == "kubelets") {
            &Kubelet::OTHERS
        } else {
            &[]
        };
        environment::prepare(&systems, kubelets, progress).await?;
        if plan.iter().any(|(scenario, _)| scenario.name == CHART.name) {
            helm::prepare(|line| progress.step(line)).await?;
        }
        let binaries = match std::env::var_os(BINARIES) {
            Some(folder) => folder.into(),
            None => {
                progress.step("building the workspace");
                // As `cargo xtask test` does: a build of the services alone would select other features, and
                // compile their dependencies twice.
                crate::cargo(&["build", "--workspace", "--bins", "--tests"]).await?;
                let program = std::env::current_exe()?;
                program.parent().context("the folder of programs")?.to_owned()
            }
        };
        let folders = plan
            .iter()
            .map(|(scenario, target)| self.folder(&title(scenario, target)));
        for folder in folders
            .chain([self.logs.join(SITE)])
            .filter(|folder| folder.exists())
        {
            std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        progress.step("everything is there; from here on, without a network");
        let binaries = binaries.display().to_string();
        let variables = [(BINARIES, &*binaries), machine_args::variable(accelerator)];
        let status = tokio::task::block_in_place(|| isolation::enter(&variables))?;
        ensure!(
            status.success(),
            "it failed, as said above; scenarios leave their logs in {}",
            self.logs.display()
        );
        Ok(())
    }

    /// Isolated.
    async fn play(&self, accelerator: Accelerator, plan: &[(&'static Scenario, Target)]) -> Result<()> {
        let progress = Progress::start();
        let binaries = PathBuf::from(std::env::var_os(BINARIES).context(BINARIES)?);
        let logs = self.logs.join(SITE);
        let without_site = || match environment::save_logs(&logs) {
            Ok(()) => format!("the environment can't be set up; its logs: {}", logs.display()),
            Err(error) => format!("the environment can't be set up; its logs are not saved: {error:#}"),
        };
        let environment = Environment::start(accelerator, &binaries, progress)
            .await
            .with_context(without_site)?;
        let mut outcomes = Vec::new();
        // One that needs other settings runs by itself: it may also need a server that only one machine can
        // have.
        let (usual, others): (Plan, Plan) = plan
            .iter()
            .cloned()
            .partition(|(scenario, _)| scenario.settings.is_none());
        let others = others.into_iter().map(|one| (one.0.settings, vec![one]));
        let jobs = self.jobs.unwrap_or(match accelerator {
            Accelerator::Kvm => 2,
            Accelerator::Emulation => 1,
        });
        for (settings, plan) in std::iter::once((None, usual)).chain(others) {
            environment
                .put_in_force(settings)
                .await
                .with_context(without_site)?;
            let group = futures::stream::iter(plan)
                .map(|(scenario, target)| self.play_one(&environment, scenario, target, progress))
                .buffer_unordered(jobs.max(1));
            outcomes.extend(group.collect::<Vec<Outcome>>().await);
        }
        let failed = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
        if failed > 0 {
            environment::save_logs(&logs)?;
        }
        for outcome in &outcomes {
            println!("{outcome}");
        }
        println!("{} passed, {failed} failed", outcomes.len() - failed);
        if failed > 0 {
            bail!("{failed} scenarios failed");
        }
        Ok(())
    }

    async fn play_one(
        &self,
        environment: &Environment,
        scenario: &'static Scenario,
        target: Target,
        progress: Progress,
    ) -> Outcome {
        let title = title(scenario, &target);
        progress.step(&format!("{title}: {}", scenario.shows));
        let started = Instant::now();
        let run = ScenarioRun::new(environment, scenario, target);
        let deadline = run.patience(DEADLINE);
        let outcome = tokio::select! {
            outcome = (scenario.play)(&run) => outcome,
            reason = run.dies() => Err(reason),
            () = tokio::time::sleep(deadline) => Err(anyhow!("not over after {} s", deadline.as_secs())),
        };
        let outcome = match (outcome, run.keeps_secrets()) {
            (Err(error), Err(leak)) => Err(anyhow!("{error:#}\n  besides: {leak:#}")),
            (outcome, kept) => outcome.and(kept),
        };
        let error = outcome.err().map(|error| self.explain(&run, &title, &error));
        let seconds = started.elapsed().as_secs_f64();
        match &error {
            Some(error) => progress.warn(&format!("{title}: FAILED after {seconds:.0} s\n{error}")),
            None => progress.step(&format!("{title}: ok, {seconds:.0} s")),
        }
        Outcome {
            title,
            seconds,
            error,
        }
    }

    fn folder(&self, title: &str) -> PathBuf {
        self.logs.join(title.replace(' ', "-"))
    }

    /// Why it failed, and what the machine says of it. Its logs go to a folder of their own.
    fn explain(&self, run: &ScenarioRun<'_>, title: &str, error: &anyhow::Error) -> String {
        let folder = self.folder(title);
        let saved = run.save_logs(&folder);
        let saved = saved.map_or_else(
            |error| format!("not saved: {error:#}"),
            |()| folder.display().to_string(),
        );
        let last = run
            .last_words()
            .map_or_else(String::new, |line| format!("\n  the machine said last: {line}"));
        format!("  {error:#}{last}\n  logs: {saved}")
    }
}

fn title(scenario: &Scenario, target: &Target) -> String {
    format!("{} on {target}", scenario.name)
}

struct Outcome {
    title: String,
    seconds: f64,
    error: Option<String>,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            title,
            seconds,
            error,
        } = self;
        match error {
            None => write!(f, "ok      {title} ({seconds:.0} s)"),
            Some(error) => write!(f, "FAILED  {title} ({seconds:.0} s)\n{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Cells of the table below a heading of docs/compatibility.md, with its head.
    fn documented(heading: &str) -> Vec<Vec<&'static str>> {
        const PAGE: &str = include_str!("../../../../docs/compatibility.md");
        let (_, section) = PAGE.split_once(&format!("\n## {heading}\n")).unwrap();
        let rows = section.lines().skip_while(|line| !line.starts_with('|'));
        let rows = rows.take_while(|line| line.starts_with('|'));
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
            .collect()
    }

    #[test]
    fn the_documented_combinations_that_boot_are_those_of_the_scenarios() {
        let usual = Environment::KUBELET_VERSION.rsplit_once('.').unwrap().0;
        let kubelets = documented("Kubelets").into_iter();
        let kubelets = kubelets
            .filter(|row| row[1].starts_with("booted"))
            .map(|row| row[0]);
        let boot = Kubelet::OTHERS.into_iter().chain([usual]);
        assert_eq!(kubelets.collect::<BTreeSet<_>>(), boot.collect());

        let table = documented("Clouds");
        let booted = table.iter().flat_map(|row| {
            let cells = table[0]
                .iter()
                .zip(row)
                .filter(|(_, tested)| **tested == "emulated");
            cells.map(move |(system, _)| format!("{system} {}", row[0]))
        });
        let boot: BTreeSet<String> = SCENARIOS
            .iter()
            // Debian has more in common with Ubuntu than with what such a scenario is about.
            .filter(|scenario| scenario.target.is_none())
            .map(|scenario| format!("ubuntu {}", scenario.cloud.provider()))
            .collect();
        assert_eq!(booted.collect::<BTreeSet<_>>(), boot);
    }
}
