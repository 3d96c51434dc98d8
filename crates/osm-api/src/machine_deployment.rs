//! What is read of machine-controller's MachineDeployment. Never written back: a typed write would lose the
//! fields that are not listed here.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A pool of machines, as machine-controller defines it (`cluster.k8s.io/v1alpha1`).
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default)]
#[kube(
    group = "cluster.k8s.io",
    version = "v1alpha1",
    kind = "MachineDeployment",
    plural = "machinedeployments",
    namespaced,
    schema = "disabled"
)]
pub struct MachineDeploymentSpec {
    /// Template of the machines, kept whole: its digest decides what a revision is about.
    #[serde(default)]
    pub template: Value,
}
