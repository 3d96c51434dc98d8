//! The sections that are the same for all pools: `defaultProfiles` and `limits`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::Problems;
use crate::profile::OperatingSystem;

/// Default profiles.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultProfiles {
    /// Whether osp-controller installs default profiles.
    pub enabled: bool,
    /// Operating systems whose default profiles osp-controller does not install.
    pub disabled: Vec<OperatingSystem>,
}

impl Default for DefaultProfiles {
    fn default() -> Self {
        Self {
            enabled: true,
            disabled: Vec::new(),
        }
    }
}

/// The largest `limits.machineDeployments`. The watches of the services have room for what so many pools
/// need.
pub const MOST_MACHINE_DEPLOYMENTS: u32 = 10_000;

/// How much an installation takes on.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Largest number of OperatingSystemConfigs. Beyond it, no MachineDeployment gets a new one.
    #[schemars(range(min = 1, max = 10000))]
    pub machine_deployments: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            machine_deployments: 5000,
        }
    }
}

impl Limits {
    pub(super) fn validate(&self, problems: &mut Problems) {
        let ok = (1..=MOST_MACHINE_DEPLOYMENTS).contains(&self.machine_deployments);
        problems.check("limits.machineDeployments", ok, "must be from 1 to 10000");
    }
}
