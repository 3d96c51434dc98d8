//! `limits`: how much an installation takes on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::Problems;

/// A watch shows no more objects.
const MOST: u32 = 50_000;

/// How much an installation takes on.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// The number of OperatingSystemConfigs beyond which no MachineDeployment gets a new one.
    #[schemars(range(min = 1, max = 50000))]
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
        let ok = (1..=MOST).contains(&self.machine_deployments);
        problems.check("limits.machineDeployments", ok, "must be from 1 to 50000");
    }
}
