//! `limits`: how much an installation takes on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::Problems;

/// The largest `limits.machineDeployments`. The watches of the services have room for what so many pools need.
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

#[cfg(test)]
mod tests {
    use crate::Settings;

    #[test]
    fn the_number_of_pools_has_a_largest_value() {
        for (number, ok) in [(0, false), (1, true), (10_000, true), (10_001, false)] {
            let read = Settings::parse(&format!("limits: {{machineDeployments: {number}}}"));
            assert_eq!(read.is_ok(), ok, "{number}: {read:?}");
        }
    }
}
