//! `initialTaints`: taints with which every node registers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use serde_json::Value;

use super::kubelet::KubeletDefaults;
use super::validation::Problems;
use crate::labels;

/// The taint that a kubelet with `--cloud-provider=external` adds to its others without looking for it
/// (`initialNode` in pkg/kubelet/kubelet_node_status.go of Kubernetes 1.36).
const OF_EXTERNAL_CLOUD: (&str, TaintEffect) = (
    "node.cloudprovider.kubernetes.io/uninitialized",
    TaintEffect::NoSchedule,
);

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

/// Checks the taints with which nodes register. The API server refuses a Node whose taints it does not
/// accept, and the kubelet tries for ever. The rules are those of `validateNodeTaints` in
/// pkg/apis/core/validation/validation.go of Kubernetes 1.36. `external`: the kubelet has
/// `--cloud-provider=external`.
pub(super) fn validate(
    initial: &Vec<Taint>,
    kubelet: &KubeletDefaults,
    external: bool,
    problems: &mut Problems,
) {
    let configuration = kubelet.configuration.as_ref();
    let configured = configuration.and_then(|fields| fields.get("registerWithTaints"));
    // Whether they have other fields, and of what type, depends on the kubelet.
    let configured = configured.and_then(|taints| serde_json::from_value(Value::clone(taints)).ok());
    for (list, taints) in [
        ("initialTaints", initial),
        (
            "kubelet.configuration.registerWithTaints",
            &configured.unwrap_or_default(),
        ),
    ] {
        for (i, taint) in taints.iter().enumerate() {
            let path = format!("{list}[{i}]");
            taint.validate(&path, problems);
            let pair = |taint: &Taint| (taint.key.clone(), taint.effect);
            if let Some(first) = taints.iter().take(i).position(|other| pair(other) == pair(taint)) {
                let rule = format!(
                    "has the key and effect of {list}[{first}], and the API server refuses a Node with both; remove one of them"
                );
                problems.check(&path, false, &rule);
            }
            let ok = !external || (&*taint.key, taint.effect) != OF_EXTERNAL_CLOUD;
            let rule = "is added by the kubelet because of cluster.externalCloudProvider, and the API server refuses a Node that has it twice; remove it";
            problems.check(&path, ok, rule);
        }
    }
}

impl Taint {
    fn validate(&self, path: &str, problems: &mut Problems) {
        problems.check(format!("{path}.key"), labels::is_key(&self.key), labels::KEY_RULE);
        let value = self.value.as_deref().unwrap_or_default();
        problems.check(
            format!("{path}.value"),
            labels::is_value(value),
            labels::VALUE_RULE,
        );
    }
}
