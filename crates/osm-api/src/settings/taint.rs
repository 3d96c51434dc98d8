//! `initialTaints`: taints with which every node registers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::Problems;
use crate::labels;

/// A taint.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Taint {
    /// Key of the taint.
    pub key: String,
    /// Value of the taint.
    #[serde(default)]
    pub value: Option<String>,
    /// Effect of the taint.
    pub effect: TaintEffect,
}

/// Effect of a taint.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[allow(missing_docs)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

impl Taint {
    /// The API server refuses a Node whose taints it does not accept, and the kubelet tries for ever.
    pub(super) fn validate(&self, path: &str, problems: &mut Problems) {
        problems.check(format!("{path}.key"), labels::is_key(&self.key), labels::KEY_RULE);
        let value = self.value.as_deref().unwrap_or_default();
        problems.check(
            format!("{path}.value"),
            labels::is_value(value),
            labels::VALUE_RULE,
        );
    }
}
