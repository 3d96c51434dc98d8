//! The parts of machine-controller's Machines and MachineSets (`cluster.k8s.io/v1alpha1`) that are read. They
//! must not be written back: a typed write would drop every field that is not listed here.

use kube::CustomResource;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::provider_spec;

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
    pub metadata: NodeMetadata,
    /// The cloud, the operating system and their settings.
    pub provider_spec: MachineProviderSpec,
}

/// Metadata that machine-controller gives the Node of a Machine. Its webhook makes a name that is set
/// immutable.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct NodeMetadata {
    /// machine-controller's `Machine.Spec.Name`; empty at first, because the name of a MachineSet's Machine
    /// is generated after the webhook has seen it. Its webhook sets the name of the Machine with the first
    /// update; see [`Machine::spec_name`].
    pub name: String,
}

impl Machine {
    /// `Machine.Spec.Name` as machine-controller uses it: while it is empty, the name of the Machine
    /// (`pkg/controller/machine/controller.go` at 0231d551, `reconcile`).
    pub fn spec_name(&self) -> &str {
        match self.spec.metadata.name.as_str() {
            "" => self.metadata.name.as_deref().unwrap_or_default(),
            name => name,
        }
    }
}

/// The wrapper of a provider configuration.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub struct MachineProviderSpec {
    /// The provider configuration; only the name of the cloud is read.
    pub value: Option<MachineCloud>,
}

/// The part of a provider configuration that names the cloud.
#[derive(Serialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct MachineCloud {
    /// Name of the cloud provider.
    pub cloud_provider: String,
}

impl<'de> Deserialize<'de> for MachineCloud {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let name = provider_spec::cloud_provider(&value);
        let cloud_provider = name.unwrap_or_default().to_owned();
        Ok(Self { cloud_provider })
    }
}

/// What machine-controller reports about a Machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineStatus {
    /// The Machine's Node, once machine-controller has found it. Only whether it is there is read.
    pub node_ref: Option<Value>,
    /// The addresses of the instance, as its cloud reports them.
    pub addresses: Vec<MachineAddress>,
}

/// An address of a Machine.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
pub struct MachineAddress {
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
    let value = template.pointer("/spec/providerSpec/value");
    value.and_then(provider_spec::cloud_provider).unwrap_or_default()
}
