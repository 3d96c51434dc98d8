//! `kubelet`: settings of the kubelets of all pools.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::validation::Problems;

/// kubelet settings of all pools.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeletDefaults {
    /// Whether kubelets get the name of their node by `--hostname-override`. The default is `true`. With
    /// `false`, the name is the host name of the machine.
    pub hostname_override: Option<bool>,
    /// Feature gates.
    pub feature_gates: BTreeMap<String, bool>,
    /// Part of a `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`), which is merged into that of the
    /// profile. osc-controller validates it for the kubelet of each pool.
    #[serde(deserialize_with = "with_nulls")]
    pub configuration: Option<Map<String, Value>>,
}

/// Reads all of it, because whether a field may be null is for the kubelet's rules to say.
fn with_nulls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Map<String, Value>>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    serde_json::from_value(value).map_err(Error::custom)
}

impl KubeletDefaults {
    pub(super) fn validate(&self, problems: &mut Problems) {
        let is_gate = |name: &String| {
            (1..=100).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric())
        };
        // The names are not repeated: a value may have slipped into one.
        let ok = self.feature_gates.keys().all(is_gate);
        let rule = "the name of a feature gate must have up to 100 letters and digits only";
        problems.check("kubelet.featureGates", ok, rule);
    }
}
