//! The run of one scenario: its machine, and what the scenario does with it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use osm_lab::machines::{Image, Machine, Order, unchanged};
use osm_lab::serve::metadata;
use osm_testkit::wait_for;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::target::Target;
use super::{Scenario, secrets};
use crate::environment::Environment;
use crate::pool::{Cloud, Pool, Template, UserData};

/// How long a machine may take from its boot, or from the end of a fault, until it is Ready. Back-off of up
/// to a minute is part of it.
pub const READY: Duration = Duration::from_secs(180);

/// How long a fault may last until the console says so.
pub const SAID: Duration = Duration::from_secs(150);

/// How often it is looked whether a machine lives.
const LOOK: Duration = Duration::from_secs(1);

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
    scenario: &'a Scenario,
    name: String,
    address: Ipv4Addr,
    machine: Mutex<Option<Machine>>,
    /// Every token that the machine has been given.
    tokens: Mutex<BTreeSet<String>>,
    /// What must not be seen, but in the environment of a process.
    environment_only: Mutex<BTreeSet<String>>,
}

impl<'a> ScenarioRun<'a> {
    /// The machine and its pool are called after the scenario.
    pub(super) fn new(environment: &'a Environment, scenario: &'a Scenario, target: Target) -> Self {
        let name = format!("{}-{}", scenario.name, target.suffix());
        Self {
            environment,
            target,
            scenario,
            name,
            address: environment.lab.reserve(),
            machine: Mutex::new(None),
            tokens: Mutex::default(),
            environment_only: Mutex::default(),
        }
    }

    /// Another machine of the same kind, with a pool of its own.
    pub fn another(&self, prefix: &str) -> Self {
        let other = Self::new(self.environment, self.scenario, self.target.clone());
        Self {
            name: format!("{prefix}-{}", self.name),
            ..other
        }
    }

    /// Name of the pool and of its machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the node that the machine becomes.
    pub fn node(&self) -> String {
        match self.scenario.cloud {
            Cloud::OpenStack => self.name.clone(),
            Cloud::Aws => metadata::private_dns_name(self.address),
        }
    }

    /// The machine's address as servers see it, known before there is a machine.
    pub fn address(&self) -> IpAddr {
        self.scenario.link.seen_as(self.address)
    }

    /// Creates the pool, and its Machine.
    pub async fn pool(&self, annotations: &Value) -> Result<Pool> {
        self.pool_of(Environment::KUBELET_VERSION, annotations).await
    }

    /// The same with another version of the kubelet than most.
    pub async fn pool_of(&self, kubelet: &str, annotations: &Value) -> Result<Pool> {
        let template = Template {
            cloud: self.scenario.cloud,
            link: self.scenario.link,
            operating_system: &self.target.operating_system,
            kubelet,
        };
        let pool = Pool::create(self.environment, &template, &self.name, annotations).await?;
        let node = self.node();
        let internal_dns = (self.scenario.cloud == Cloud::Aws).then_some(&*node);
        pool.machine(self.environment, &self.name, internal_dns).await?;
        Ok(pool)
    }

    /// Boots the machine of a new pool.
    pub async fn boot(&self) -> Result<()> {
        self.boot_changed(&unchanged).await
    }

    /// As [`Self::boot`], with a layer over the image.
    pub async fn boot_changed(&self, layer: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        let user_data = self
            .pool(&json!({}))
            .await?
            .user_data(self.environment, &self.name)
            .await?;
        self.boot_with(&user_data, layer)
    }

    /// Boots the machine with this user data.
    pub fn boot_with(&self, user_data: &UserData, layer: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        self.tokens.lock().extend(secrets::tokens(&user_data.text));
        let image = Image::ensure(&self.target.system, |_| ())?;
        let order = Order {
            name: &self.name,
            address: self.address,
            link: self.scenario.link,
            image: &image,
            data_source: self.scenario.data_source,
            user_data: &user_data.delivered,
            layer,
        };
        let machine = self.environment.lab.boot(&order)?;
        *self.machine.lock() = Some(machine);
        Ok(())
    }

    /// A deadline for a machine as fast as this host, made longer for what runs it.
    pub fn patience(&self, deadline: Duration) -> Duration {
        deadline * self.environment.lab.accelerator.slowness()
    }

    /// Returns only when nothing more is to be expected of the machine, with the reason.
    pub async fn dies(&self) -> anyhow::Error {
        loop {
            // While the test acts on the machine, there is nothing to see.
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

    /// Waits until the console has a line with these texts, and returns the line.
    pub async fn console_says(&self, texts: &[&str], deadline: Duration) -> Result<String> {
        let what = format!("{texts:?} on the console");
        let found = wait_for(&what, self.patience(deadline), async || {
            let console = self.machine(|machine| machine.console())?;
            let mut lines = console.lines();
            let found = lines.find(|line| texts.iter().all(|text| line.contains(text)));
            Ok(found.map(str::to_owned))
        });
        found.await
    }

    /// Waits until the node is Ready.
    pub async fn ready(&self, deadline: Duration) -> Result<Node> {
        wait_for("the node to be Ready", self.patience(deadline), async || {
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
        .await
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
    pub fn downloads(&self) -> Vec<String> {
        let requests = self.environment.mirror.requests().into_iter();
        let own = requests.filter(|request| request.client == self.address());
        own.map(|request| request.path).collect()
    }

    /// From now on, this must be seen nowhere but in what programs take from their environment, which the
    /// kernel shows to root only: 24 characters at its end give it away.
    pub fn conceal_outside_environments(&self, secret: &str) {
        self.environment_only.lock().insert(secret.to_owned());
    }

    /// Lines of a text that show a credential: where they stand, and how they begin.
    fn leaks(&self, place: &str, text: &str) -> Vec<String> {
        let [always, outside] = self.credentials();
        leaks(place, text, always.iter().chain(&outside))
    }

    /// The same for a process that the machine has seen.
    fn leaks_of_process(&self, process: &str) -> Vec<String> {
        let [always, outside] = self.credentials();
        let (command, _) = process.split_once('\t').unwrap_or((process, ""));
        let mut found = leaks("process list", process, always.iter());
        found.extend(leaks("command line", command, outside.iter()));
        found
    }

    /// Those that must be seen nowhere, and those that environments may contain.
    fn credentials(&self) -> [Vec<String>; 2] {
        [&self.tokens, &self.environment_only].map(|secrets| secrets.lock().iter().cloned().collect())
    }

    /// No credential stood in a process list, and none stands in journal, console or cloud-init's logs.
    pub fn keeps_secrets(&self) -> Result<()> {
        let tokens = self.tokens.lock().len();
        ensure!(
            tokens == 1,
            "the user data holds {tokens} tokens, not the pool's one"
        );
        let seen = self.machine(|machine| machine.processes())?;
        let mut found: Vec<String> = seen
            .iter()
            .flat_map(|process| self.leaks_of_process(process))
            .collect();
        let leaks = |place: &str, text: &str| self.leaks(place, text);
        self.machine(|machine| {
            let journal = machine.journal("json")?;
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

    /// Whether the machine's disk holds a file.
    pub fn has(&self, path: &str) -> Result<bool> {
        self.machine(|machine| machine.has(path))
    }

    /// Copies the machine's logs into a folder.
    pub fn save_logs(&self, folder: &Path) -> Result<()> {
        self.machine(|machine| machine.save_logs(folder))
    }

    /// What our scripts said last on the console.
    pub fn last_words(&self) -> Option<String> {
        let console = self.machine(|machine| machine.console()).ok()?;
        let last = console.lines().rev().find(|line| line.starts_with("osm-"));
        last.map(str::to_owned)
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
