//! machine-controller's provider configuration inside a MachineDeployment (`sdk/providerconfig/types.go`).
//!
//! The top level is decoded strictly, as machine-controller does; what is cloud- or system-specific is not.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::profile::ProvisioningUtility;

/// `spec.template.spec.providerSpec.value` of a MachineDeployment.
#[derive(Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSpec {
    /// SSH public keys of the default user.
    #[serde(default, deserialize_with = "null_is_default")]
    pub ssh_public_keys: Vec<String>,
    /// Not used here.
    #[serde(default)]
    pub ca_public_key: Option<String>,
    /// Name of the cloud provider.
    pub cloud_provider: String,
    /// Specific to the cloud; not read, it may hold credentials.
    #[serde(default)]
    pub cloud_provider_spec: Value,
    /// Name of the operating system.
    pub operating_system: String,
    /// Specific to the operating system.
    #[serde(default)]
    pub operating_system_spec: Value,
    /// Static network and IP family.
    #[serde(default)]
    pub network: Option<Network>,
    /// Replaces the cloud provider's file `/etc/kubernetes/cloud-config`.
    #[serde(default)]
    pub overwrite_cloud_config: Option<String>,
}

/// Network of a machine.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Network {
    /// Static address with prefix length; empty for DHCP.
    pub cidr: String,
    /// Gateway of the static address.
    pub gateway: String,
    /// Name servers of the static network.
    pub dns: Dns,
    /// IP family; empty means IPv4.
    pub ip_family: IpFamily,
}

impl Network {
    /// Whether an address is configured rather than asked for.
    pub fn is_static(&self) -> bool {
        !self.cidr.is_empty() || !self.gateway.is_empty() || !self.dns.servers.is_empty()
    }
}

/// Name servers.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Dns {
    /// Addresses, in order.
    #[serde(deserialize_with = "null_is_default")]
    pub servers: Vec<String>,
}

/// IP family of a node.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum IpFamily {
    #[default]
    #[serde(rename = "IPv4", alias = "")]
    IPv4,
    #[serde(rename = "IPv6")]
    IPv6,
    #[serde(rename = "IPv4+IPv6")]
    IPv4IPv6,
    #[serde(rename = "IPv6+IPv4")]
    IPv6IPv4,
}

/// Settings of the operating system, the union of all systems; unknown fields are ignored as machine-controller
/// does.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct OperatingSystemSpec {
    /// Upgrade all packages at first boot; not on Flatcar.
    pub dist_upgrade_on_boot: bool,
    /// Flatcar: neither of the two below.
    pub disable_auto_update: bool,
    /// Flatcar: never reboot into an update that is installed.
    #[serde(rename = "disableLocksmithD")]
    pub disable_locksmith_d: bool,
    /// Flatcar: install no updates.
    pub disable_update_engine: bool,
    /// Flatcar: the program that applies user data; absent for its default, Ignition.
    #[serde(deserialize_with = "empty_is_none")]
    pub provisioning_utility: Option<ProvisioningUtility>,
}

fn empty_is_none<'de, D: Deserializer<'de>>(d: D) -> Result<Option<ProvisioningUtility>, D::Error> {
    match Option::<Value>::deserialize(d)? {
        None => Ok(None),
        Some(value) if value == "" => Ok(None),
        Some(value) => serde_json::from_value(value)
            .map(Some)
            .map_err(|_| serde::de::Error::custom("expected cloud-init or ignition")),
    }
}

fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(d: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}
