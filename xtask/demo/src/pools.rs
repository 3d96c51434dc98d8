//! The MachineDeployments of the demo, and their progress.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use osm_api::{OperatingSystemConfig, OperatingSystemProfile, condition, names};
use osm_testkit::progress::Progress;
use osm_testkit::{machine_controller, wait_for};

/// How long everything may take until it is published.
const PUBLISHED: Duration = Duration::from_secs(300);

/// How often changes are looked for after that.
const INTERVAL: Duration = Duration::from_secs(1);

/// All pools and profiles, and what is known of them.
pub struct Pools {
    client: Client,
    namespace: String,
    /// Namespaces and names of the pools that were applied.
    expected: Vec<(String, String)>,
    printed: BTreeMap<String, String>,
}

impl Pools {
    /// `namespace` is that of the installation.
    pub fn new(client: Client, namespace: String) -> Self {
        Self {
            client,
            namespace,
            expected: Vec::new(),
            printed: BTreeMap::new(),
        }
    }

    /// From now on, the pool of this namespace and name has to be there.
    pub fn expect(&mut self, pool: (String, String)) {
        self.expected.push(pool);
    }

    /// The MachineDeployments that were applied.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn machine_deployments(&self) -> Result<Vec<DynamicObject>> {
        let mut found = Vec::new();
        for (namespace, name) in &self.expected {
            let api = Api::namespaced_with(
                self.client.clone(),
                namespace,
                &machine_controller::machine_deployment(),
            );
            found.push(api.get(name).await?);
        }
        Ok(found)
    }

    /// Waits until all pools are published and all profiles accepted, and prints each change.
    ///
    /// # Errors
    /// Each pool and profile that is not, with the reason.
    pub async fn wait(&mut self, progress: Progress) -> Result<()> {
        wait_for("everything to be published", PUBLISHED, async || {
            let missing = self.print_changes(progress).await?;
            if !missing.is_empty() {
                bail!("\n  {}", missing.join("\n  "));
            }
            Ok(Some(()))
        })
        .await
    }

    /// Prints each change from now on.
    ///
    /// # Errors
    /// An error of the server.
    pub async fn follow(&mut self, progress: Progress) -> Result<()> {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.print_changes(progress).await?;
        }
    }

    /// Prints what has changed, and returns what is not as it should be.
    async fn print_changes(&mut self, progress: Progress) -> Result<Vec<String>> {
        let (mut missing, mut shown) = (Vec::new(), BTreeMap::new());
        for (what, (done, text)) in self.states().await? {
            if self.printed.get(&what) != Some(&text) {
                progress.step(&format!("{what}: {text}"));
            }
            if !done {
                missing.push(format!("{what}: {text}"));
            }
            shown.insert(what, text);
        }
        for gone in self.printed.keys().filter(|what| !shown.contains_key(*what)) {
            progress.step(&format!("{gone}: deleted"));
        }
        self.printed = shown;
        Ok(missing)
    }

    /// All profiles and pools, each with whether it is done, and with its condition.
    async fn states(&self) -> Result<Vec<(String, (bool, String))>> {
        let profiles = Api::<OperatingSystemProfile>::namespaced(self.client.clone(), &self.namespace);
        let configs = Api::<OperatingSystemConfig>::namespaced(self.client.clone(), &self.namespace);
        let mut states = Vec::new();
        for profile in profiles.list(&ListParams::default()).await? {
            let conditions = profile
                .status
                .as_ref()
                .map(|status| status.conditions.as_slice())
                .unwrap_or_default();
            let state = match condition::find(conditions, condition::ACCEPTED) {
                Some(found) => (
                    found.status == "True",
                    format!("{}: {}", found.reason, found.message),
                ),
                None => (false, "waiting for osp-controller".to_owned()),
            };
            states.push((format!("profile {}", profile.name_any()), state));
        }
        let pools =
            Api::<DynamicObject>::all_with(self.client.clone(), &machine_controller::machine_deployment());
        for pool in pools.list(&ListParams::default()).await? {
            let namespace = pool.namespace().unwrap_or_default();
            let config = configs
                .get_opt(&names::config_name(&pool.name_any(), &namespace))
                .await?;
            states.push((
                format!("pool {namespace}/{}", pool.name_any()),
                config_state(revision(&pool), config),
            ));
        }
        Ok(states)
    }
}

/// The revision of a MachineDeployment; empty before it has one.
pub fn revision(pool: &DynamicObject) -> &str {
    let found = pool.annotations().get(machine_controller::REVISION_ANNOTATION);
    found.map(String::as_str).unwrap_or_default()
}

/// Whether the user data of a pool is published, and the condition that explains it.
fn config_state(revision: &str, config: Option<OperatingSystemConfig>) -> (bool, String) {
    let Some(status) = config.map(|config| config.status.unwrap_or_default()) else {
        return (false, "waiting for osc-controller".to_owned());
    };
    let of_revision = status
        .published
        .is_some_and(|published| published.revision == revision);
    let say = |type_: &str| {
        condition::find(&status.conditions, type_).map(|found| {
            (
                found.status == "True",
                format!("{}: {}", found.reason, found.message),
            )
        })
    };
    match (say(condition::RENDERED), say(condition::PUBLISHED)) {
        (None, _) => (false, "waiting for osc-controller".to_owned()),
        (Some((false, text)), _) => (false, text),
        (Some((true, _)), Some((published, text))) => (published && of_revision, text),
        (Some((true, text)), None) => (false, text),
    }
}
