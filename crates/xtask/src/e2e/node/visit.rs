//! One scenario's machine, and what scenarios ask of it.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Node;
use osm_testkit::lab::journal::Entry;
use osm_testkit::lab::{Image, Machine, Order, Release};
use osm_testkit::serve::metadata;
use osm_testkit::{check, wait_for};
use serde_json::{Value, json};

use super::secrets;
use crate::e2e::pool::{Cloud, Pool, UserData};
use crate::e2e::site::Site;

/// How long a machine may take from its boot, or from the end of a fault, until it is Ready. Back-off of up to a minute is part of it.
pub const READY: Duration = Duration::from_secs(180);

/// How long a fault may last until the console says so.
pub const SAID: Duration = Duration::from_secs(150);

/// What our scripts say when all is well.
const PROGRESS: [&str; 2] = ["the provisioning document is applied", "the kubelet runs"];

/// How the names of the units begin that make a node.
const NODE_UNITS: [&str; 4] = ["osm-", "containerd", "kubelet", "cloud-"];

/// A scenario that is being played.
pub struct Visit<'a> {
    /// Where.
    pub site: &'a Site,
    /// What the machine runs.
    pub release: Release,
    name: String,
    cloud: Cloud,
    address: Ipv4Addr,
    machine: Mutex<Option<Machine>>,
    /// Every credential that the machine has been given.
    credentials: Mutex<BTreeSet<String>>,
    /// What its process lists have shown of them.
    leaks: Arc<Mutex<Vec<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Visit<'a> {
    /// The machine and its pool are called after the scenario.
    pub fn new(site: &'a Site, scenario: &str, cloud: Cloud, release: Release) -> Self {
        let number = match release {
            Release::Debian12 => 12,
            Release::Debian13 => 13,
        };
        Self {
            site,
            release,
            name: format!("{scenario}-{number}"),
            cloud,
            address: site.lab.reserve(),
            machine: Mutex::new(None),
            credentials: Mutex::default(),
            leaks: Arc::default(),
        }
    }

    /// Name of the pool and of its machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the node that the machine becomes.
    pub fn node(&self) -> String {
        match self.cloud {
            Cloud::OpenStack => self.name.clone(),
            Cloud::Aws => metadata::private_dns_name(self.address(), Site::AWS_DOMAIN),
        }
    }

    /// The machine's address, known before there is one.
    pub fn address(&self) -> IpAddr {
        self.address.into()
    }

    /// Creates the pool.
    pub async fn pool(&self, annotations: &Value) -> Result<Pool> {
        Pool::create(self.site, self.cloud, &self.name, annotations).await
    }

    /// Boots the machine of a new pool.
    pub async fn boot(&self) -> Result<()> {
        self.boot_changed(&|_| Ok(()), &[]).await
    }

    /// As [`Self::boot`], with another image or other devices.
    pub async fn boot_changed(&self, changes: &dyn Fn(&Path) -> Result<()>, options: &[&str]) -> Result<()> {
        let user_data = self.pool(&json!({})).await?.user_data(self.site, &self.name).await?;
        self.boot_with(&user_data, changes, options)
    }

    /// Boots the machine with this user data.
    pub fn boot_with(
        &self,
        user_data: &UserData,
        changes: &dyn Fn(&Path) -> Result<()>,
        options: &[&str],
    ) -> Result<()> {
        lock(&self.credentials).extend(secrets::tokens(&user_data.text));
        let image = Image::ensure(self.release, |_| ())?;
        let (name, address, user_data) = (self.name.as_str(), self.address, user_data.delivered.as_slice());
        let machine =
            self.site.lab.boot(Order { name, address, image: &image, user_data, changes, options })?;
        *lock(&self.machine) = Some(machine);
        Ok(())
    }

    /// Does something with the machine.
    pub fn machine<T>(&self, act: impl FnOnce(&mut Machine) -> Result<T>) -> Result<T> {
        act(lock(&self.machine).as_mut().context("no machine was booted")?)
    }

    /// As [`Self::machine`], for what takes its time.
    pub async fn with_machine<T>(&self, act: impl AsyncFnOnce(&mut Machine) -> Result<T>) -> Result<T> {
        let mut machine = lock(&self.machine).take().context("no machine was booted")?;
        let outcome = act(&mut machine).await;
        *lock(&self.machine) = Some(machine);
        outcome
    }

    /// Runs a shell script in the machine.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.machine(|machine| machine.run(&["sh", "-c", script]))
    }

    /// Waits until the console has a line with this text, and returns the line. Meanwhile process lists are looked at.
    pub async fn console_says(&self, text: &str, deadline: Duration) -> Result<String> {
        let what = format!("{text:?} on the console");
        let found = wait_for(&what, deadline, async || {
            self.look_at_processes();
            let console = self.machine(|machine| machine.console())?;
            Ok(console.lines().find(|line| line.contains(text)).map(str::to_owned))
        });
        found.await
    }

    /// Waits until the node is registered.
    pub async fn registered(&self, deadline: Duration) -> Result<SystemTime> {
        wait_for("the node to register", deadline, async || {
            self.look_at_processes();
            check(self.site.node(&self.node()).await?.is_some())
        })
        .await?;
        Ok(SystemTime::now())
    }

    /// Waits until the node is Ready.
    pub async fn ready(&self, deadline: Duration) -> Result<Node> {
        wait_for("the node to be Ready", deadline, async || {
            self.look_at_processes();
            let Some(node) = self.site.node(&self.node()).await? else { bail!("it has not registered") };
            let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let ready =
                conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True");
            if !ready {
                let reason =
                    conditions.filter(|condition| condition.type_ == "Ready").find_map(|c| c.message.clone());
                bail!("{}", reason.unwrap_or_default());
            }
            Ok(Some(node))
        })
        .await
    }

    /// Whether the node has registered.
    pub async fn has_joined(&self) -> Result<bool> {
        Ok(self.site.node(&self.node()).await?.is_some())
    }

    /// Paths that the machine has asked the mirror for.
    pub fn downloads(&self) -> Result<Vec<String>> {
        let address = self.address();
        let requests = self.site.mirror.requests();
        Ok(requests
            .into_iter()
            .filter(|request| request.client == address)
            .map(|request| request.path)
            .collect())
    }

    fn look_at_processes(&self) {
        let processes = self.machine(|machine| Ok(machine.processes())).unwrap_or_default();
        let credentials = lock(&self.credentials);
        let mut leaks = lock(&self.leaks);
        for process in processes {
            if credentials.iter().any(|credential| secrets::shows(&process, credential)) {
                let command: String = process.chars().take(60).collect();
                leaks.push(format!("process list: {command}"));
            }
        }
    }

    /// No credential stood in a process list, and none stands in journal, console or cloud-init's logs.
    pub fn keeps_secrets(&self) -> Result<()> {
        let mut leaks = lock(&self.leaks).clone();
        let credentials = lock(&self.credentials).clone();
        ensure!(!credentials.is_empty(), "the user data holds no token: nothing can be said about leaks");
        let mut look = |place: &str, text: &str| {
            for line in text.lines() {
                if credentials.iter().any(|credential| secrets::shows(line, credential)) {
                    leaks.push(format!("{place}: {}…", line.chars().take(60).collect::<String>()));
                }
            }
        };
        self.machine(|machine| {
            look("console", &machine.console()?);
            for entry in machine.journal()? {
                look(&format!("journal, {}", entry.program), &entry.message);
            }
            for log in ["cloud-init.log", "cloud-init-output.log"] {
                let path = machine.root().join("var/log").join(log);
                look(log, &std::fs::read_to_string(path).unwrap_or_default());
            }
            Ok(())
        })?;
        ensure!(leaks.is_empty(), "a credential can be read in:\n    {}", leaks.join("\n    "));
        Ok(())
    }

    /// Copies the machine's logs into a folder.
    pub fn save_logs(&self, folder: &Path) -> Result<()> {
        self.machine(|machine| machine.save_logs(folder))
    }

    /// What went wrong first on the machine, in its own words: what our scripts complain of, else what systemd does, else what the kubelet
    /// said last (a kubelet that starts finds much that is not there yet).
    pub fn first_error(&self) -> Option<String> {
        let journal = self.machine(|machine| machine.journal()).ok()?;
        let complaints =
            |entry: &&Entry| entry.program.starts_with("osm-") && !PROGRESS.contains(&entry.message.as_str());
        let failures = |entry: &&Entry| {
            entry.priority <= 3 && NODE_UNITS.iter().any(|unit| entry.unit.starts_with(unit))
        };
        let klog = |entry: &&Entry| entry.program == "kubelet" && entry.message.starts_with(['E', 'F']);
        let ours = || journal.iter().find(complaints);
        let systemd = || journal.iter().find(failures);
        let entry = ours().or_else(systemd).or_else(|| journal.iter().rev().find(klog))?;
        Some(format!("{}: {}", entry.unit, entry.message))
    }
}
