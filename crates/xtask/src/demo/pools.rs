//! The MachineDeployments of the demo, and their progress.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};
use kube::api::DynamicObject;
use kube::{Api, Client, ResourceExt};
use osm_api::{OperatingSystemConfig, OperatingSystemProfile, condition, names};
use osm_testkit::{machine_controller, wait_for};

use crate::progress::Progress;

/// How long everything may take until it is published.
const PUBLISHED: Duration = Duration::from_secs(30);

/// The revision that the demo sets in place of machine-controller.
pub const REVISION: u64 = 1;

/// MachineDeployments that were applied.
pub struct Pools {
    client: Client,
    namespace: String,
    /// The MachineDeployments, as the server has them.
    pub machine_deployments: Vec<DynamicObject>,
}

impl Pools {
    /// No pools; `namespace` is that of the installation.
    pub fn new(client: Client, namespace: String) -> Self {
        Self {
            client,
            namespace,
            machine_deployments: Vec::new(),
        }
    }

    /// Adds the MachineDeployments among these applied objects.
    pub fn take(&mut self, applied: Vec<DynamicObject>) {
        let of_interest = |object: &DynamicObject| {
            object
                .types
                .as_ref()
                .is_some_and(|types| types.kind == "MachineDeployment")
        };
        self.machine_deployments
            .extend(applied.into_iter().filter(of_interest));
    }

    /// Sets the revision of each.
    ///
    /// # Errors
    /// No MachineDeployment, or an error of the server.
    pub async fn stamp(&mut self) -> Result<()> {
        if self.machine_deployments.is_empty() {
            bail!("the manifests hold no MachineDeployment");
        }
        for pool in &mut self.machine_deployments {
            *pool = machine_controller::stamp_revision(&self.client, pool, REVISION).await?;
        }
        Ok(())
    }

    /// Waits until all pools are published and all profiles accepted, and prints each change.
    ///
    /// # Errors
    /// Each pool and profile that is not, with the reason.
    pub async fn wait(&self, progress: Progress) -> Result<()> {
        let mut printed = BTreeMap::new();
        wait_for("everything to be published", PUBLISHED, async || {
            let mut missing = Vec::new();
            for (what, state) in self.states().await? {
                let (done, text) = state;
                if printed.insert(what.clone(), text.clone()).as_ref() != Some(&text) {
                    progress.step(&format!("{what}: {text}"));
                }
                if !done {
                    missing.push(format!("{what}: {text}"));
                }
            }
            if !missing.is_empty() {
                bail!("\n  {}", missing.join("\n  "));
            }
            Ok(Some(()))
        })
        .await
    }

    /// All profiles and pools, each with whether it is done, and with its condition.
    async fn states(&self) -> Result<Vec<(String, (bool, String))>> {
        let profiles = Api::<OperatingSystemProfile>::namespaced(self.client.clone(), &self.namespace);
        let configs = Api::<OperatingSystemConfig>::namespaced(self.client.clone(), &self.namespace);
        let mut states = Vec::new();
        for profile in profiles.list(&kube::api::ListParams::default()).await? {
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
        for pool in &self.machine_deployments {
            let namespace = pool.namespace().unwrap_or_default();
            let config = configs
                .get_opt(&names::config_name(&pool.name_any(), &namespace))
                .await?;
            states.push((
                format!("pool {namespace}/{}", pool.name_any()),
                config_state(config),
            ));
        }
        Ok(states)
    }

    /// The client that may do everything.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// Whether the user data of a pool is published, and the condition that explains it.
fn config_state(config: Option<OperatingSystemConfig>) -> (bool, String) {
    let Some(status) = config.map(|config| config.status.unwrap_or_default()) else {
        return (false, "waiting for osc-controller".to_owned());
    };
    let of_revision = status
        .published
        .is_some_and(|published| published.revision == REVISION.to_string());
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
