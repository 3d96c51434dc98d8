//! The parts of machine-controller's Machines and MachineSets (`cluster.k8s.io/v1alpha1`) that are read. They must not be written back: a
//! typed write would drop every field that is not listed here.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One machine of a pool.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default)]
#[kube(
    group = "cluster.k8s.io",
    version = "v1alpha1",
    kind = "Machine",
    plural = "machines",
    namespaced,
    status = "MachineStatus",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// Metadata of the Node.
    pub metadata: NodeMetadata,
    /// The cloud, the operating system and their settings.
    pub provider_spec: MachineProviderSpec,
}

/// Metadata that machine-controller gives the Node of a Machine. Its webhook makes it immutable.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct NodeMetadata {
    /// machine-controller's `Machine.Spec.Name`. Its webhook defaults it to the name of the Machine.
    pub name: String,
}

/// The wrapper of a provider configuration.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct MachineProviderSpec {
    /// The provider configuration; only the name of the cloud is read.
    pub value: Option<MachineCloud>,
}

/// The part of a provider configuration that names the cloud.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineCloud {
    /// Name of the cloud provider.
    pub cloud_provider: String,
}

/// What machine-controller reports about a Machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// The Machine's Node, once machine-controller has found it.
    pub node_ref: Option<NodeRef>,
    /// The addresses of the instance, as its cloud reports them.
    pub addresses: Vec<MachineAddress>,
}

/// A reference to a Node.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct NodeRef {
    /// Name of the Node.
    pub name: String,
}

/// An address of a Machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct MachineAddress {
    /// The address.
    pub address: String,
    /// `InternalIP`, `ExternalIP`, `InternalDNS`, `ExternalDNS` or `Hostname`.
    #[serde(rename = "type")]
    pub type_: String,
}

/// The machines of one revision of a pool. Only its metadata is read.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug, Default)]
#[kube(
    group = "cluster.k8s.io",
    version = "v1alpha1",
    kind = "MachineSet",
    plural = "machinesets",
    namespaced,
    schema = "disabled"
)]
pub struct MachineSetSpec {}

/// The name of the cloud in the template of a MachineDeployment; empty if there is none.
pub fn cloud_of_template(template: &Value) -> &str {
    let cloud = template.pointer("/spec/providerSpec/value/cloudProvider");
    cloud.and_then(Value::as_str).unwrap_or_default()
}
