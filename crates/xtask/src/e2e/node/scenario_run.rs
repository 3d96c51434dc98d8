//! The run of one scenario: its machine, and what the scenario does with it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use osm_lab::machines::journal::Entry;
use osm_lab::machines::{self, Hardware, Image, Machine, Order, Tmpfs, unchanged};
use osm_lab::release::OtherKubelet;
use osm_lab::serve::metadata;
use osm_testkit::{check, wait_for};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::images::Target;
use super::waterfall::Waterfall;
use super::{Scenario, secrets};
use crate::e2e::environment::Environment;
use crate::e2e::pool::{Cloud, Network, Pool, Template, UserData};

/// How long a machine may take from its boot, or from the end of a fault, until it is Ready. Back-off of up to a minute is part of it.
pub const READY: Duration = Duration::from_secs(180);

/// How long a fault may last until the console says so.
pub const SAID: Duration = Duration::from_secs(150);

/// How often it is looked whether a machine lives.
const LOOK: Duration = Duration::from_secs(1);

/// Our scripts without which there is no node.
const OURS: [&str; 2] = ["osm-bootstrap", "osm-setup"];

/// What they say when all is well.
const PROGRESS: [&str; 3] = [
    "the provisioning document is applied",
    "the provisioning document is applied at the next boot: rebooting",
    "the kubelet runs",
];

/// How cloud-init greets whoever calls it.
const GREETING: &str = "Cloud-init v. ";

/// How the names of the units begin that make a node.
const NODE_UNITS: [&str; 4] = ["osm-", "containerd", "kubelet", "cloud-"];

/// What vouches for a document that was applied.
pub const BOOTSTRAPPED: &str = "/var/lib/osm/bootstrapped";

/// What vouches for programs that are installed.
pub const SET_UP: &str = "/var/lib/osm/set-up";

/// A scenario that is being played.
pub struct ScenarioRun<'a> {
    /// Where.
    pub environment: &'a Environment,
    /// What the machine runs.
    pub target: Target,
    name: String,
    cloud: Cloud,
    network: Network,
    /// Minor version of its kubelet, unless it is the control plane's.
    other_kubelet: Option<&'static str>,
    address: Ipv4Addr,
    hardware: Mutex<Hardware>,
    machine: Mutex<Option<Machine>>,
    /// From power-on until the node was Ready for the first time.
    seconds_to_ready: Mutex<Option<f64>>,
    /// Where the time of its boot went, if the scenario looks at that.
    waterfall: Mutex<Option<Waterfall>>,
    /// Every token that the machine has been given.
    tokens: Mutex<BTreeSet<String>>,
    /// What else must not be seen.
    others: Mutex<BTreeSet<String>>,
    /// What must not be seen, but in the environment of a process.
    environment_only: Mutex<BTreeSet<String>>,
}

impl<'a> ScenarioRun<'a> {
    /// The machine and its pool are called after the scenario.
    pub fn new(environment: &'a Environment, scenario: &Scenario, target: Target) -> Self {
        let name = format!("{}-{}", scenario.name, target.suffix());
        Self {
            other_kubelet: scenario.other_kubelet,
            ..Self::named(name, environment, (scenario.cloud, scenario.network), target)
        }
    }

    fn named(
        name: String,
        environment: &'a Environment,
        (cloud, network): (Cloud, Network),
        target: Target,
    ) -> Self {
        Self {
            environment,
            target,
            name,
            cloud,
            network,
            other_kubelet: None,
            address: environment.lab.reserve(),
            hardware: Mutex::default(),
            machine: Mutex::new(None),
            seconds_to_ready: Mutex::new(None),
            waterfall: Mutex::new(None),
            tokens: Mutex::default(),
            others: Mutex::default(),
            environment_only: Mutex::default(),
        }
    }

    /// Another machine of the same kind, with a pool of its own.
    pub fn another(&self, prefix: &str) -> Self {
        let name = format!("{prefix}-{}", self.name);
        Self::named(
            name,
            self.environment,
            (self.cloud, self.network),
            self.target.clone(),
        )
    }

    /// Name of the pool and of its machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the node that the machine becomes.
    pub fn node(&self) -> String {
        match self.cloud {
            Cloud::OpenStack | Cloud::Edge => self.name.clone(),
            Cloud::Aws => metadata::private_dns_name(self.address()),
        }
    }

    /// The machine's address as servers see it, known before there is a machine.
    pub fn address(&self) -> IpAddr {
        self.network.link().seen_as(self.address)
    }

    /// Which addresses it has.
    pub fn network(&self) -> Network {
        self.network
    }

    /// Its address of IPv6, if it has one.
    pub fn ipv6(&self) -> Ipv6Addr {
        machines::ipv6_of(self.address)
    }

    /// Creates the pool, and its Machine if it has a cloud.
    pub async fn pool(&self, annotations: &Value) -> Result<Pool> {
        let template = Template {
            cloud: self.cloud,
            network: self.network,
            operating_system: &self.target.operating_system,
            kubelet: &self.kubelet().await?,
        };
        let pool = Pool::create(self.environment, &template, &self.name, annotations).await?;
        let node = self.node();
        match self.cloud {
            Cloud::OpenStack => pool.machine(self.environment, &self.name, None).await?,
            Cloud::Aws => pool.machine(self.environment, &self.name, Some(&node)).await?,
            Cloud::Edge => {}
        }
        Ok(pool)
    }

    /// The version of its kubelet, without `v`. The mirror has it.
    pub async fn kubelet(&self) -> Result<String> {
        let Some(minor) = self.other_kubelet else {
            return Ok(Environment::KUBELET_VERSION.to_owned());
        };
        let kubelet = OtherKubelet::ensure(minor, |_| ()).await?;
        kubelet.publish(self.environment.mirror.root())?;
        Ok(kubelet.version)
    }

    /// What the machine will have.
    pub fn equip(&self, hardware: Hardware) {
        *self.hardware.lock() = hardware;
    }

    /// Boots the machine of a new pool.
    pub async fn boot(&self) -> Result<()> {
        self.boot_changed(&unchanged, &[]).await
    }

    /// As [`Self::boot`], with a layer over the image, or small file systems.
    pub async fn boot_changed(&self, layer: &dyn Fn(&Path) -> Result<()>, tmpfs: &[Tmpfs]) -> Result<()> {
        let user_data = self
            .pool(&json!({}))
            .await?
            .user_data(self.environment, &self.name)
            .await?;
        self.boot_with(&user_data, layer, tmpfs)
    }

    /// Boots the machine with this user data.
    pub fn boot_with(
        &self,
        user_data: &UserData,
        layer: &dyn Fn(&Path) -> Result<()>,
        tmpfs: &[Tmpfs],
    ) -> Result<()> {
        self.tokens.lock().extend(secrets::tokens(&user_data.text));
        let image = Image::ensure(&self.environment.machines, &self.target.system, |_| ())?;
        let order = Order {
            name: &self.name,
            address: self.address,
            link: self.network.link(),
            image: &image,
            user_data: &user_data.delivered,
            layer,
            tmpfs,
            hardware: *self.hardware.lock(),
        };
        let machine = self.environment.lab.boot(&order)?;
        *self.machine.lock() = Some(machine);
        Ok(())
    }

    /// A deadline for a machine as fast as this host, made longer for the kind of machine.
    pub fn patience(&self, deadline: Duration) -> Duration {
        deadline * self.environment.machines.slowness()
    }

    /// Returns only when nothing more is to be expected of the machine, with the reason.
    pub async fn dies(&self) -> anyhow::Error {
        loop {
            // While somebody acts on the machine, there is nothing to see.
            let condition = self.machine.lock().as_mut().map_or(Ok(()), Machine::lives);
            if let Err(error) = condition {
                return error;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Does something with the machine.
    pub fn machine<T>(&self, act: impl FnOnce(&mut Machine) -> Result<T>) -> Result<T> {
        act(self.machine.lock().as_mut().context("no machine was booted")?)
    }

    /// As [`Self::machine`], for what takes its time.
    pub async fn with_machine<T>(&self, act: impl AsyncFnOnce(&mut Machine) -> Result<T>) -> Result<T> {
        let mut machine = self.machine.lock().take().context("no machine was booted")?;
        let outcome = act(&mut machine).await;
        *self.machine.lock() = Some(machine);
        outcome
    }

    /// Runs a shell script in the machine.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.machine(|machine| machine.run(&["sh", "-c", script]))
    }

    /// Waits until the console has a line with this text, and returns the line.
    pub async fn console_says(&self, text: &str, deadline: Duration) -> Result<String> {
        let what = format!("{text:?} on the console");
        let found = wait_for(&what, self.patience(deadline), async || {
            let console = self.machine(|machine| machine.console())?;
            Ok(console
                .lines()
                .find(|line| line.contains(text))
                .map(str::to_owned))
        });
        found.await
    }

    /// Waits until the node is registered.
    pub async fn registered(&self, deadline: Duration) -> Result<SystemTime> {
        wait_for("the node to register", self.patience(deadline), async || {
            check(self.environment.node(&self.node()).await?.is_some())
        })
        .await?;
        Ok(SystemTime::now())
    }

    /// Waits until the node is Ready.
    pub async fn ready(&self, deadline: Duration) -> Result<Node> {
        let node = wait_for("the node to be Ready", self.patience(deadline), async || {
            let Some(node) = self.environment.node(&self.node()).await? else {
                bail!("it has not registered")
            };
            let conditions = node
                .status
                .iter()
                .flat_map(|status| status.conditions.iter().flatten());
            let ready = conditions
                .clone()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True");
            if !ready {
                let reason = conditions
                    .filter(|condition| condition.type_ == "Ready")
                    .find_map(|c| c.message.clone());
                bail!("{}", reason.unwrap_or_default());
            }
            Ok(Some(node))
        })
        .await?;
        let took = self.machine(|machine| Ok(machine.powered_on().elapsed()?.as_secs_f64()));
        if let (Ok(took), seconds @ None) = (took, &mut *self.seconds_to_ready.lock()) {
            *seconds = Some(took);
        }
        Ok(node)
    }

    /// How long it took from power-on until the node was Ready for the first time. None if it never was.
    pub fn seconds_to_ready(&self) -> Option<f64> {
        *self.seconds_to_ready.lock()
    }

    /// Keeps where the time of the boot went, for [`Self::picture`].
    pub fn draws(&self, waterfall: Waterfall) {
        *self.waterfall.lock() = Some(waterfall);
    }

    /// A picture of the boot, if the scenario has drawn one.
    pub fn picture(&self, title: &str) -> Option<String> {
        let waterfall = self.waterfall.lock();
        waterfall.as_ref().map(|waterfall| waterfall.picture(title))
    }

    /// Nothing of what a fault is to prevent has happened.
    pub async fn has_not_joined(&self, mark: &str) -> Result<()> {
        ensure!(!self.has(mark)?, "{mark} is there");
        ensure!(
            self.environment.node(&self.node()).await?.is_none(),
            "the machine has joined"
        );
        Ok(())
    }

    /// Paths that the machine has asked the mirror for.
    pub fn downloads(&self) -> Result<Vec<String>> {
        let address = self.address();
        let requests = self.environment.mirror.requests();
        Ok(requests
            .into_iter()
            .filter(|request| request.client == address)
            .map(|request| request.path)
            .collect())
    }

    /// From now on, this is something that must not be seen: 24 characters at its end give it away.
    pub fn conceal(&self, secret: &str) {
        self.others.lock().insert(secret.to_owned());
    }

    /// As [`Self::conceal`], for what programs take from their environment. The kernel shows that to root only.
    pub fn conceal_outside_environments(&self, secret: &str) {
        self.environment_only.lock().insert(secret.to_owned());
    }

    /// Lines of a text that show a credential: where they stand, and how they begin.
    pub fn leaks(&self, place: &str, text: &str) -> Vec<String> {
        let [always, outside] = self.credentials();
        leaks(place, text, always.iter().chain(&outside))
    }

    /// The same for a process of [`Self::processes`].
    fn leaks_of_process(&self, process: &str) -> Vec<String> {
        let [always, outside] = self.credentials();
        let (command, _) = process.split_once('\t').unwrap_or((process, ""));
        let mut found = leaks("process list", process, always.iter());
        found.extend(leaks("command line", command, outside.iter()));
        found
    }

    /// Those that must be seen nowhere, and those that environments may contain.
    fn credentials(&self) -> [Vec<String>; 2] {
        let always = self
            .tokens
            .lock()
            .iter()
            .chain(self.others.lock().iter())
            .cloned()
            .collect();
        [always, self.environment_only.lock().iter().cloned().collect()]
    }

    /// No credential stood in a process list, and none stands in journal, console or cloud-init's logs.
    pub fn keeps_secrets(&self) -> Result<()> {
        let tokens = self.tokens.lock().len();
        ensure!(
            tokens == 1,
            "the user data holds {tokens} tokens, not the pool's one"
        );
        let mut found: Vec<String> = self
            .processes(|process| !self.leaks_of_process(process).is_empty())?
            .iter()
            .flat_map(|process| self.leaks_of_process(process))
            .collect();
        let leaks = |place: &str, text: &str| self.leaks(place, text);
        self.machine(|machine| {
            let journal = machine.raw_journal()?;
            ensure!(!journal.is_empty(), "the machine has no journal");
            found.extend(leaks("journal", &journal));
            found.extend(leaks("console", &machine.console()?));
            for log in ["cloud-init.log", "cloud-init-output.log"] {
                let text = machine.read(&format!("/var/log/{log}"))?.unwrap_or_default();
                found.extend(leaks(log, &String::from_utf8_lossy(&text)));
            }
            Ok(())
        })?;
        ensure!(
            found.is_empty(),
            "a credential can be read in:\n    {}",
            found.join("\n    ")
        );
        Ok(())
    }

    /// What of all command lines and environments so far, the host's and the machine's, satisfies `test`.
    pub fn processes(&self, test: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut found = self.environment.processes.seen(&test);
        let seen = self.machine(|machine| machine.processes())?;
        found.extend(seen.into_iter().filter(|process| test(process)));
        Ok(found)
    }

    /// Whether the machine's disk holds a file.
    pub fn has(&self, path: &str) -> Result<bool> {
        self.machine(|machine| machine.has(path))
    }

    /// Copies the machine's logs into a folder.
    pub fn save_logs(&self, folder: &Path) -> Result<()> {
        self.machine(|machine| machine.save_logs(folder))
    }

    /// What went wrong first on the machine, in its own words: what our scripts complain of, else what systemd does, else what the kubelet
    /// said last (a kubelet that starts finds much that is not there yet).
    pub fn first_error(&self) -> Option<String> {
        let journal = self.machine(|machine| machine.journal()).ok()?;
        let complaints = |entry: &&Entry| {
            OURS.contains(&entry.program.as_str())
                && !PROGRESS.contains(&entry.message.as_str())
                && !entry.message.starts_with(GREETING)
        };
        let failures = |entry: &&Entry| {
            entry.priority <= 3 && NODE_UNITS.iter().any(|unit| entry.unit.starts_with(unit))
        };
        let klog = |entry: &&Entry| entry.program == "kubelet" && entry.message.starts_with(['E', 'F']);
        let ours = || journal.iter().find(complaints);
        let systemd = || journal.iter().find(failures);
        let entry = ours()
            .or_else(systemd)
            .or_else(|| journal.iter().rev().find(klog))?;
        Some(format!("{}: {}", entry.unit, entry.message))
    }
}

fn leaks<'c>(place: &str, text: &str, credentials: impl Iterator<Item = &'c String> + Clone) -> Vec<String> {
    let shows = |line: &&str| {
        credentials
            .clone()
            .any(|credential| secrets::shows(line, credential))
    };
    let lines = text.lines().filter(shows);
    lines
        .map(|line| format!("{place}: {}…", line.chars().take(60).collect::<String>()))
        .collect()
}
