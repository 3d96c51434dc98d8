//! `cargo xtask e2e node`: machines that boot from the published user data, and join.

mod edge;
mod faults;
mod hardware;
mod ignition;
pub mod images;
mod join;
mod modules;
mod networks;
mod power;
mod scenario_run;
mod secrets;
mod settings;
mod waterfall;

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use futures::StreamExt;
use osm_judges::packages;
use osm_lab::machines::vm::{self, Accelerator};
use osm_lab::machines::{self, Kind, Release, System, isolation};
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};

use self::images::Target;
use self::scenario_run::ScenarioRun;
use super::environment::{self, Environment, SettingsChange};
use super::machine_args::MachineArgs;
use super::pool::{Cloud, Network};
use crate::booted::{BootResult, ScenarioResult};
use crate::progress::Progress;
use crate::{build, revision};

/// The longest that any scenario may take.
const DEADLINE: Duration = Duration::from_secs(600);

/// The folder with the logs of all but machines.
const SITE: &str = "environment";

/// Where the services and osmctl are, if they are built already.
const BINARIES: &str = "OSM_BIN_DIR";

/// Boot machines that provision themselves and join a cluster, without internet
///
/// A whole cluster, the services, a mirror, a registry and machines with systemd as init run on this computer, in network, mount and
/// process namespaces of their own: nothing of it reaches the host's network, and all of it is gone at the end. The first run builds the
/// cluster's programs and the machines' images, which takes about ten minutes; later ones start in seconds.
///
/// Machines are virtual machines of QEMU, or containers. Virtual machines have a kernel of their own and need no root. They use KVM where it
/// runs a trial machine, and else emulation. Containers are faster than emulation, and need root and control groups of version 1.
#[derive(clap::Args)]
pub struct Node {
    /// Scenarios to run; without any, those that every change must pass
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Run every scenario on every release of Debian
    #[arg(long, conflicts_with = "scenarios")]
    all: bool,
    /// Name the scenarios and what they show
    #[arg(long)]
    list: bool,
    /// Release that machines run; may be repeated [default: 12, with --all: both]
    #[arg(long, value_enum, value_name = "RELEASE")]
    debian: Vec<Debian>,
    /// Image of e2e/images.toml that virtual machines boot, or a copy of it elsewhere; may be repeated
    ///
    /// LOCATION is a path or a URL, and CHECKSUM is the SHA-256 that the image must have. `cargo xtask e2e images NAME` downloads and verifies
    /// an image, and prints this argument.
    #[arg(long, value_name = "NAME=LOCATION,sha256=CHECKSUM")]
    image: Vec<String>,
    #[command(flatten)]
    machines: MachineArgs,
    /// Machines at the same time [default: 2, by emulation: 1]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Where the logs of scenarios that fail go
    #[arg(long, value_name = "FOLDER", default_value = "target/e2e")]
    logs: PathBuf,
    /// Keep the logs of scenarios that pass, too
    #[arg(long)]
    keep_logs: bool,
    /// Write FOLDER/NAME.json for each --image: its checksum, how its scenarios ended, and how long it took until the node was Ready
    #[arg(long, value_name = "FOLDER", requires = "image")]
    results: Option<PathBuf>,
    /// Draw where the time from power-on until the node is Ready goes, as FOLDER/SCENARIO-on-IMAGE.svg. Scenario join does this.
    #[arg(long, value_name = "FOLDER")]
    pictures: Option<PathBuf>,
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
struct Scenario {
    name: &'static str,
    shows: &'static str,
    cloud: Cloud,
    network: Network,
    /// What its machine boots, whatever was asked for.
    target: Option<fn() -> Target>,
    /// How the environment's settings differ from those of docs/air-gap.md.
    settings: Option<SettingsChange>,
    /// Whether every change must pass it.
    always: bool,
    /// Whether it disturbs other machines, so that none may run beside it.
    alone: bool,
    /// Whether its machine needs hardware or a kernel of its own.
    is_virtual: bool,
    /// Minor version of its kubelet, unless it is the control plane's.
    other_kubelet: Option<&'static str>,
    play: for<'a> fn(&'a ScenarioRun<'a>) -> Play<'a>,
}

/// Runs on virtual machines only.
const fn is_virtual(scenario: Scenario) -> Scenario {
    Scenario {
        is_virtual: true,
        ..scenario
    }
}

macro_rules! scenario {
    ($name:literal, $cloud:ident, $always:literal, $play:path, $shows:literal) => {
        scenario!($name, $cloud, $always, $play, $shows, IPv4, None)
    };
    ($name:literal, $cloud:ident, $always:literal, $play:path, $shows:literal, $network:ident, $settings:expr) => {
        Scenario {
            name: $name,
            shows: $shows,
            cloud: Cloud::$cloud,
            network: Network::$network,
            target: None,
            settings: $settings,
            always: $always,
            alone: false,
            is_virtual: false,
            other_kubelet: None,
            play: |run| Box::pin($play(run)),
        }
    };
}

/// A kubelet of another minor version than the control plane's.
const fn kubelet(name: &'static str, minor: &'static str, shows: &'static str) -> Scenario {
    is_virtual(Scenario {
        name,
        shows,
        other_kubelet: Some(minor),
        ..scenario!(
            "",
            OpenStack,
            false,
            hardware::other_kubelet,
            "",
            IPv4,
            Some(settings::one_crictl)
        )
    })
}

#[rustfmt::skip] // a table
const SCENARIOS: &[Scenario] = &[
    scenario!("join", OpenStack, true, join::join, "boots, provisions itself, becomes Ready, runs a pod whose logs can be read"),
    scenario!("aws", Aws, false, join::aws, "user data compressed, the node's name from the metadata service"),
    scenario!("edge", Edge, false, edge::edge, "a machine of its owner's, on which somebody runs the script of the pool"),
    scenario!("resolved", OpenStack, false, join::resolved, "with systemd-resolved, pods get name servers that they can reach"),
    scenario!("modules", OpenStack, false, modules::modules, "cloud-init modules of a profile of one's own, in both stages; one of them fails at first"),
    scenario!("no-route", OpenStack, false, networks::no_route, "no default route: the node's address is found all the same", IPv4Isolated, None),
    scenario!("dual-stack", OpenStack, false, networks::dual_stack, "IPv4 and IPv6: node and pods have both, in this order", DualStack, None),
    scenario!("dual-stack-ipv6", OpenStack, false, networks::dual_stack, "IPv6 and IPv4: in that order", DualStackIPv6First, None),
    scenario!("ipv6", OpenStack, false, networks::ipv6, "IPv6 only: API server, mirror and registry, too", IPv6, Some(networks::by_ipv6)),
    scenario!("registry-password", OpenStack, false, settings::registry_password, "an image from a registry that wants a password, which nobody else sees", IPv4, Some(settings::private_registry)),
    scenario!("proxy-password", OpenStack, false, settings::proxy_password, "a proxy that wants a password, which nobody else sees", IPv4, Some(settings::proxy)),
    scenario!("checksum-files", OpenStack, false, settings::checksum_files, "checksums from the files beside the archives, one of them wrong at first", IPv4, Some(settings::no_checksums)),
    scenario!("second-boot", OpenStack, false, power::second_boot, "a boot after success changes nothing and fetches nothing"),
    scenario!("mirror", OpenStack, true, faults::mirror, "the mirror answers 404, 500, half a file, another file; then is mended"),
    scenario!("api-unreachable", OpenStack, false, faults::api_unreachable, "the API server can't be reached for two minutes"),
    scenario!("rotated", OpenStack, true, faults::rotated, "content changes between boot and fetch: the machine gets its own"),
    scenario!("flipped-bit", OpenStack, false, faults::flipped_bit, "the document arrives with one bit inverted, then as it is"),
    scenario!("wrong-ca", OpenStack, false, faults::wrong_ca, "somebody else answers for the API server, then it does itself"),
    scenario!("expired-token", OpenStack, false, faults::expired_token, "the machine comes too late: its console says so"),
    scenario!("clock", OpenStack, false, faults::clock, "the clock is years behind, then right"),
    scenario!("disk-full", OpenStack, false, faults::disk_full, "no room for the downloads, then there is"),
    Scenario { alone: true, ..scenario!("approver-away", OpenStack, false, faults::approver_away, "nobody approves certificates for five minutes; then two machines join") },
    scenario!("reset-bootstrap", OpenStack, false, power::in_bootstrap, "reset before files are on the disk, while the document is fetched, and before it is applied"),
    scenario!("reset-provisioning", OpenStack, false, power::in_provisioning, "reset while programs are downloaded"),
    is_virtual(scenario!("kernel", OpenStack, false, hardware::kernel, "loads its modules by itself; control groups of version 2")),
    is_virtual(scenario!("modules-missing", OpenStack, false, faults::modules_missing, "modules for pods are missing, then there; logind limits shutdowns as in Ubuntu's images", IPv4, Some(faults::graceful_shutdown))),
    is_virtual(scenario!("apparmor", OpenStack, false, hardware::apparmor, "AppArmor is enforced: the pod is confined, and nothing is denied")),
    is_virtual(scenario!("config-drive", OpenStack, false, hardware::config_drive, "user data from a config drive, as OpenStack makes it")),
    is_virtual(scenario!("ec2", Aws, false, hardware::ec2, "user data and the node's name from EC2's metadata service, the address by DHCP")),
    is_virtual(scenario!("openstack", OpenStack, false, hardware::openstack, "user data from OpenStack's metadata service, the address by DHCP")),
    is_virtual(scenario!("swap", OpenStack, false, hardware::swap, "the image uses swap, which the kubelet refuses")),
    is_virtual(scenario!("little-memory", OpenStack, false, hardware::little_memory, "1 GiB of memory")),
    is_virtual(scenario!("two-cards", OpenStack, false, hardware::two_cards, "a second network card: the node has the first one's address")),
    is_virtual(scenario!("slow-disk", OpenStack, false, hardware::slow_disk, "a disk that reads and writes 10 MiB a second")),
    kubelet("kubelet-1-33", "1.33", "kubelet 1.33 with control groups of version 2"),
    kubelet("kubelet-1-35", "1.35", "kubelet 1.35 with control groups of version 2"),
    kubelet("kubelet-1-36", "1.36", "kubelet 1.36 with control groups of version 2"),
    is_virtual(Scenario { target: Some(Target::ignition), ..scenario!("ignition", OpenStack, false, ignition::ignition, "Ignition applies both documents of a Flatcar pool, each in the initramfs of a boot; Debian 12 with Ignition stands in for Flatcar") }),
];

impl Node {
    /// Runs the scenarios and prints how each ended; the last line is `N passed, N failed`.
    ///
    /// # Errors
    /// When one failed.
    pub async fn run(&self) -> Result<()> {
        if self.list {
            for Scenario {
                name,
                shows,
                always,
                is_virtual,
                ..
            } in SCENARIOS
            {
                let mark = match (always, is_virtual) {
                    (true, _) => '*',
                    (_, true) => 'v',
                    _ => ' ',
                };
                println!("{name:<20} {mark} {shows}");
            }
            println!("\n*: run unless others are named. v: needs --machines virtual");
            return Ok(());
        }
        let machines = tokio::task::block_in_place(|| self.machines.kind())?;
        let plan = self.plan(&machines)?;
        if isolation::directory().is_some() {
            isolation::end_with_parent();
            return self.play(machines, &plan).await;
        }
        self.prepare(machines, &plan).await
    }

    /// Each scenario with what its machine boots.
    fn plan(&self, machines: &Kind) -> Result<Plan> {
        for name in &self.scenarios {
            let scenario = SCENARIOS
                .iter()
                .find(|scenario| scenario.name == name)
                .with_context(|| {
                    format!("there is no scenario {name}: cargo xtask e2e node --list names them")
                })?;
            ensure!(
                !scenario.is_virtual || *machines != Kind::Container,
                "scenario {name} needs a virtual machine: add --machines virtual"
            );
        }
        let chosen = |scenario: &&Scenario| {
            self.all && (!scenario.is_virtual || *machines != Kind::Container)
                || if self.scenarios.is_empty() {
                    scenario.always
                } else {
                    self.scenarios.iter().any(|name| name == scenario.name)
                }
        };
        let given: Vec<Target> = self
            .image
            .iter()
            .map(|image| images::choose(image))
            .collect::<Result<_>>()?;
        let releases: Vec<Release> = match self.debian.as_slice() {
            [] if self.all => Release::ALL.to_vec(),
            [] if !given.is_empty() => Vec::new(),
            [] => vec![Release::Debian12],
            given => given
                .iter()
                .map(|debian| match debian {
                    Debian::Twelve => Release::Debian12,
                    Debian::Thirteen => Release::Debian13,
                })
                .collect(),
        };
        let targets: Vec<Target> = releases.into_iter().map(Target::from).chain(given).collect();
        let (own, any): (Vec<_>, Vec<_>) = SCENARIOS
            .iter()
            .filter(chosen)
            .partition(|scenario| scenario.target.is_some());
        let any = targets
            .iter()
            .flat_map(|target| any.iter().map(move |&scenario| (scenario, target.clone())));
        let own = own
            .into_iter()
            .filter_map(|scenario| Some((scenario, scenario.target?())));
        Ok(any.chain(own).collect())
    }

    /// Machines at the same time.
    fn jobs(&self, machines: &Kind) -> usize {
        let usual = match machines {
            Kind::Virtual(Accelerator::Emulation { .. }) => 1,
            _ => 2,
        };
        self.jobs.unwrap_or(usual).max(1)
    }

    /// While there is a network; then again, isolated.
    async fn prepare(&self, machines: Kind, plan: &[(&'static Scenario, Target)]) -> Result<()> {
        isolation::require_host(&machines)?;
        let progress = Progress::start();
        progress.step(&format!("machines are {machines}"));
        progress.step("Debian packages that machines need");
        let containers = machines == Kind::Container;
        tokio::task::spawn_blocking(move || {
            if containers {
                packages::ensure(packages::FOR_TESTS)?;
                packages::ensure(machines::PACKAGES)
            } else {
                packages::ensure(vm::PACKAGES)
            }
        })
        .await??;
        let mut systems: Vec<_> = plan.iter().map(|(_, target)| target.system.clone()).collect();
        // The plan has the scenarios of a target one after the other.
        systems.dedup();
        let kubelets: Vec<_> = plan
            .iter()
            .filter_map(|(scenario, _)| scenario.other_kubelet)
            .collect();
        environment::prepare(&machines, &systems, &kubelets, progress).await?;
        let binaries = match std::env::var_os(BINARIES) {
            Some(folder) => folder.into(),
            None => {
                progress.step("building the workspace");
                build::workspace().await?
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
        let status = tokio::task::block_in_place(|| isolation::enter(&[(BINARIES, &binaries)]))?;
        ensure!(
            status.success(),
            "it failed, as said above; scenarios leave their logs in {}",
            self.logs.display()
        );
        Ok(())
    }

    /// Isolated.
    async fn play(&self, machines: Kind, plan: &[(&'static Scenario, Target)]) -> Result<()> {
        let progress = Progress::start();
        let binaries = PathBuf::from(std::env::var_os(BINARIES).context(BINARIES)?);
        let logs = self.logs.join(SITE);
        let without_site = || match environment::save_logs(&logs) {
            Ok(()) => format!("the environment can't be set up; its logs: {}", logs.display()),
            Err(error) => format!("the environment can't be set up; its logs are not saved: {error:#}"),
        };
        let jobs = self.jobs(&machines);
        let kind = machines.name();
        let environment = Environment::start(machines, &binaries, progress)
            .await
            .with_context(without_site)?;
        let mut outcomes = Vec::new();
        for (settings, plan) in by_settings(plan) {
            environment
                .put_in_force(settings)
                .await
                .with_context(without_site)?;
            let group = futures::stream::iter(plan)
                .map(|(scenario, target)| self.play_one(&environment, scenario, target, progress))
                .buffer_unordered(jobs);
            outcomes.extend(group.collect::<Vec<Outcome>>().await);
        }
        let failed = outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
        if failed > 0 || self.keep_logs {
            environment.save_logs(&logs)?;
        }
        for outcome in &outcomes {
            println!("{outcome}");
        }
        if let Some(folder) = &self.results {
            for result in results(&outcomes, kind, &revision::read().await?) {
                result.write(folder)?;
            }
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
        let _turn = match scenario.alone {
            true => Turn::Alone(environment.turns.write().await),
            false => Turn::Shared(environment.turns.read().await),
        };
        progress.step(&format!("{title}: {}", scenario.shows));
        let started = Instant::now();
        let run = ScenarioRun::new(environment, scenario, target.clone());
        let deadline = run.patience(DEADLINE);
        let mut outcome = tokio::select! {
            outcome = (scenario.play)(&run) => outcome,
            reason = run.dies() => Err(reason),
            () = tokio::time::sleep(deadline) => Err(anyhow!("not over after {} s", deadline.as_secs())),
        };
        if scenario.alone {
            // Whatever it stopped: the next scenarios need it.
            outcome = outcome.and(environment.start_csr_approver().await);
        }
        let outcome = match (outcome, run.keeps_secrets()) {
            (Err(error), Err(leak)) => Err(anyhow!("{error:#}\n  besides: {leak:#}")),
            (outcome, kept) => outcome.and(kept),
        };
        let outcome = outcome.and_then(|()| self.draw(&run, &title, environment.machines.name()));
        let error = outcome.err().map(|error| self.explain(&run, &title, &error));
        if self.keep_logs && error.is_none() {
            let saved = run.save_logs(&self.folder(&title));
            saved.unwrap_or_else(|error| progress.warn(&format!("{title}: logs not saved: {error:#}")));
        }
        let seconds = started.elapsed().as_secs_f64();
        match &error {
            Some(error) => progress.warn(&format!("{title}: FAILED after {seconds:.0} s\n{error}")),
            None => progress.step(&format!("{title}: ok, {seconds:.0} s")),
        }
        Outcome {
            title,
            scenario: scenario.name,
            target,
            seconds,
            seconds_to_ready: run.seconds_to_ready(),
            error,
        }
    }

    /// Writes the picture of a boot, where one is wanted.
    fn draw(&self, run: &ScenarioRun<'_>, title: &str, machines: &str) -> Result<()> {
        let (Some(folder), Some(picture)) = (&self.pictures, run.picture(&format!("{title}, {machines}")))
        else {
            return Ok(());
        };
        let path = folder.join(format!("{}.svg", title.replace(' ', "-")));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, picture))
            .with_context(|| path.display().to_string())
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
        let first = run.first_error().map_or_else(String::new, |line| {
            format!("\n  the machine's first error: {line}")
        });
        format!("  {error:#}{first}\n  logs: {saved}")
    }
}

/// Held while a scenario runs.
#[expect(dead_code, reason = "holding it is its use")]
enum Turn<'a> {
    Alone(RwLockWriteGuard<'a, ()>),
    Shared(RwLockReadGuard<'a, ()>),
}

/// Scenarios that can be played at the same time, with the settings that they need.
fn by_settings(plan: &[(&'static Scenario, Target)]) -> Vec<(Option<SettingsChange>, Plan)> {
    let (usual, others): (Vec<_>, Vec<_>) = plan
        .iter()
        .cloned()
        .partition(|(scenario, _)| scenario.settings.is_none());
    let mut groups = vec![(None, usual)];
    for scenario in SCENARIOS.iter().filter(|scenario| scenario.settings.is_some()) {
        let machines = others
            .iter()
            .filter(|(other, _)| other.name == scenario.name)
            .cloned()
            .collect();
        groups.push((scenario.settings, machines));
    }
    groups.retain(|(_, plan)| !plan.is_empty());
    groups
}

fn title(scenario: &Scenario, target: &Target) -> String {
    format!("{} on {target}", scenario.name)
}

struct Outcome {
    title: String,
    scenario: &'static str,
    target: Target,
    seconds: f64,
    seconds_to_ready: Option<f64>,
    error: Option<String>,
}

/// What the scenarios showed of each image that was given.
fn results(outcomes: &[Outcome], machines: &str, commit: &str) -> Vec<BootResult> {
    let mut results: Vec<BootResult> = Vec::new();
    for outcome in outcomes {
        let System::Given(image) = &outcome.target.system else {
            continue;
        };
        let result = match results.iter_mut().find(|result| result.image == image.name) {
            Some(result) => result,
            None => {
                results.push(BootResult {
                    sha256: Some(image.sha256.to_lowercase()),
                    machines: Some(machines.to_owned()),
                    ..BootResult::new(&image.name, commit)
                });
                let Some(result) = results.last_mut() else {
                    continue;
                };
                result
            }
        };
        result.scenarios.push(ScenarioResult {
            name: outcome.scenario.to_owned(),
            passed: outcome.error.is_none(),
            seconds: outcome.seconds,
            seconds_to_ready: outcome.seconds_to_ready,
        });
    }
    results
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            title,
            seconds,
            error,
            ..
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

    use clap::Parser as _;
    use osm_render::compatibility::{API_SERVER_MINOR, Tested, compatibility};

    use super::*;

    #[test]
    fn the_documented_combinations_that_boot_are_those_of_the_scenarios() {
        let usual = format!("1.{API_SERVER_MINOR}");
        assert!(Environment::KUBELET_VERSION.starts_with(&format!("{usual}.")));
        let compatibility = compatibility();
        let kubelets = compatibility.kubelets.iter();
        let documented: BTreeSet<&str> = kubelets
            .filter(|row| row.tested == Tested::Booted)
            .map(|row| row.minor.as_str())
            .collect();
        let boot = SCENARIOS
            .iter()
            .map(|scenario| scenario.other_kubelet.unwrap_or(&usual));
        assert_eq!(documented, boot.collect());

        let mut documented = BTreeSet::new();
        for row in compatibility.operating_systems {
            let booted = row.clouds.iter().filter(|cell| cell.tested == Tested::Booted);
            documented.extend(booted.map(|cell| format!("{} {}", row.operating_system, cell.name)));
        }
        let boot: BTreeSet<String> = SCENARIOS
            .iter()
            // Debian has more in common with Ubuntu than with what such a scenario is about.
            .filter(|scenario| scenario.target.is_none())
            .map(|scenario| format!("ubuntu {}", scenario.cloud.provider()))
            .collect();
        assert_eq!(documented, boot);
    }

    /// The plan of a command line.
    fn planned(arguments: &[&str], machines: &Kind) -> Result<Vec<String>> {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            node: Node,
        }
        let command = Command::try_parse_from([&["node"], arguments].concat())?;
        let plan = command.node.plan(machines)?;
        Ok(plan
            .iter()
            .map(|(scenario, target)| title(scenario, target))
            .collect())
    }

    #[test]
    fn a_scenario_with_an_image_of_its_own_runs_once_on_virtual_machines() {
        let own = "ignition on Debian 12 with Ignition";
        let machines = Kind::Virtual(Accelerator::Kvm);
        let count = |plan: &[String], text: &str| plan.iter().filter(|title| title.contains(text)).count();

        let all = planned(&["--all"], &machines).unwrap();
        assert_eq!((count(&all, own), count(&all, "ignition")), (1, 1));
        assert_eq!(count(&all, "join on"), Release::ALL.len());
        let named = planned(&["join", "ignition", "--debian", "13"], &machines).unwrap();
        assert_eq!(named, ["join on Debian 13", own]);

        let containers = planned(&["--all"], &Kind::Container).unwrap();
        assert_eq!(count(&containers, "ignition"), 0);
        let error = planned(&["ignition"], &Kind::Container).unwrap_err().to_string();
        assert!(error.contains("add --machines virtual"), "{error}");
    }

    #[test]
    fn results_are_those_of_the_images_that_were_given() {
        let outcome = |target: Target, scenario, error: Option<&str>| Outcome {
            title: String::new(),
            scenario,
            target,
            seconds: 60.0,
            seconds_to_ready: error.is_none().then_some(41.5),
            error: error.map(str::to_owned),
        };
        let image =
            |name: &str| images::choose(&format!("{name}=/image,sha256={}", "AB".repeat(32))).unwrap();
        let found = results(
            &[
                outcome(Target::from(Release::Debian12), "join", None),
                outcome(image("rocky-9"), "join", None),
                outcome(image("ubuntu-24.04"), "join", Some("no")),
                outcome(image("rocky-9"), "mirror", Some("no")),
            ],
            "KVM",
            "0123",
        );
        let ended: Vec<_> = found
            .iter()
            .map(|result| {
                let scenarios = result
                    .scenarios
                    .iter()
                    .map(|scenario| (scenario.name.as_str(), scenario.passed, scenario.seconds_to_ready));
                (result.image.as_str(), scenarios.collect::<Vec<_>>())
            })
            .collect();
        assert_eq!(
            ended,
            [
                (
                    "rocky-9",
                    vec![("join", true, Some(41.5)), ("mirror", false, None)]
                ),
                ("ubuntu-24.04", vec![("join", false, None)]),
            ]
        );
        assert_eq!(found[0].sha256.as_deref(), Some(&*"ab".repeat(32)));
        assert_eq!(
            (found[0].commit.as_str(), found[0].machines.as_deref()),
            ("0123", Some("KVM"))
        );
    }

    #[test]
    fn scenarios_that_need_other_settings_come_after_the_rest_each_by_itself() {
        let plan: Plan = Release::ALL
            .iter()
            .flat_map(|&release| {
                SCENARIOS
                    .iter()
                    .map(move |scenario| (scenario, Target::from(release)))
            })
            .collect();
        let groups = by_settings(&plan);
        assert_eq!(
            groups.iter().map(|(_, plan)| plan.len()).sum::<usize>(),
            plan.len(),
            "none is left out"
        );
        let mut groups = groups.into_iter();
        let (settings, usual) = groups.next().unwrap();
        assert!(settings.is_none() && usual.iter().all(|(scenario, _)| scenario.settings.is_none()));
        for (settings, plan) in groups {
            assert!(settings.is_some());
            assert_eq!(plan.len(), Release::ALL.len());
            assert!(plan.iter().all(|(scenario, _)| scenario.name == plan[0].0.name));
        }
        assert!(by_settings(&[]).is_empty());
    }
}
