//! The part of machine-controller's MachineDeployment that is read. It must not be written back: a typed
//! write would drop every field that is not listed here.

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
    /// Template of the machines. It is kept whole, because its digest shows whether a revision has changed
    /// it. Only [`crate::pool`] looks into it.
    #[serde(default)]
    pub template: Value,
}
