//! machine-controller's provider configuration inside a MachineDeployment (`sdk/providerconfig/types.go`).
//!
//! The top level is decoded strictly, as machine-controller does; what is cloud- or system-specific is not.
//! Go's decoder takes the names of fields in any case, and a null for an absent value, so whatever reads one
//! reads what [`canonical`] makes of it.

use std::fmt;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::profile::{OperatingSystem, ProvisioningUtility};
use crate::strict;

/// The only field that is not read. What is below it may be large, and may hold credentials.
const OF_CLOUD: &str = "cloudProviderSpec";

/// Settings of Flatcar, in `operatingSystemSpec`.
const OF_FLATCAR: [&str; 4] = [
    "disableAutoUpdate",
    "disableLocksmithD",
    "disableUpdateEngine",
    "provisioningUtility",
];

/// Settings of RHEL alone, in `operatingSystemSpec`.
const OF_RHEL: [&str; 8] = [
    "rhelSubscriptionManagerUser",
    "rhelSubscriptionManagerPassword",
    "rhsmOfflineToken",
    "attachSubscription",
    "rhelUseSatelliteServer",
    "rhelSatelliteServer",
    "rhelOrganizationName",
    "rhelActivationKey",
];

const UPGRADE: &str = "distUpgradeOnBoot";

/// All other names of fields, at every depth.
const OTHERS: &str = "sshPublicKeys caPublicKey cloudProvider cloudProviderSpec operatingSystem operatingSystemSpec \
    network overwriteCloudConfig cidr gateway dns servers ipFamily distUpgradeOnBoot value secretKeyRef \
    configMapKeyRef namespace name key";

/// A provider spec with the names of its fields spelled as in this module, and without nulls. In a list, a
/// null becomes an empty text. `cloudProviderSpec` is left empty.
pub fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let present = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = present.map(|(name, value)| {
                let name = spelling(name);
                let value = if name == OF_CLOUD {
                    Value::Object(Map::new())
                } else {
                    canonical(value)
                };
                (name.to_owned(), value)
            });
            Value::Object(fields.collect())
        }
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::Null => Value::String(String::new()),
                item => canonical(item),
            })
            .collect(),
        scalar => scalar.clone(),
    }
}

fn spelling(name: &str) -> &str {
    let mut known = OTHERS.split(' ').chain(OF_RHEL).chain(OF_FLATCAR);
    known
        .find(|known| known.eq_ignore_ascii_case(name))
        .unwrap_or(name)
}

/// Name of the cloud provider in a provider spec that may be wrong otherwise.
pub fn cloud_provider(value: &Value) -> Option<&str> {
    let named = |(name, value): (&String, &'_ Value)| spelling(name) == "cloudProvider" && !value.is_null();
    let mut fields = value.as_object()?.iter();
    fields.rfind(|field| named(*field))?.1.as_str()
}

/// Leaves the settings of this system in its `operatingSystemSpec`. machine-controller does not look at
/// others, whatever their type.
pub fn retain_own(os: OperatingSystem, spec: &mut Map<String, Value>) {
    spec.retain(|name, value| match (os, name.as_str()) {
        // There is a warning that it has no effect.
        (OperatingSystem::Flatcar, UPGRADE) => value.is_boolean(),
        (OperatingSystem::Flatcar, name) => OF_FLATCAR.contains(&name),
        (_, UPGRADE) => true,
        (OperatingSystem::Rhel, name) => OF_RHEL.contains(&name),
        _ => false,
    });
}

/// `spec.template.spec.providerSpec.value` of a MachineDeployment.
#[derive(Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSpec {
    /// SSH public keys of the default user.
    #[serde(default)]
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
    pub operating_system_spec: Map<String, Value>,
    /// Static network and IP family.
    #[serde(default)]
    pub network: Option<Network>,
    /// Replaces the cloud provider's file `/etc/kubernetes/cloud-config`.
    #[serde(default)]
    pub overwrite_cloud_config: Option<String>,
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Network {
    /// Static address with prefix length; empty for DHCP.
    pub cidr: String,
    /// Gateway of the static address.
    pub gateway: String,
    /// Name servers of the static network.
    pub dns: Dns,
    pub ip_family: IpFamily,
}

impl Network {
    /// Whether an address is configured rather than asked for.
    pub fn is_static(&self) -> bool {
        !self.cidr.is_empty() || !self.gateway.is_empty() || !self.dns.servers.is_empty()
    }
}

#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct Dns {
    /// Addresses, in order.
    pub servers: Vec<String>,
}

/// IP family of a node.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, strum::IntoStaticStr)]
#[allow(missing_docs)]
pub enum IpFamily {
    /// Nothing is written, which means IPv4.
    #[default]
    #[serde(rename = "")]
    #[strum(serialize = "")]
    Unspecified,
    IPv4,
    IPv6,
    #[serde(rename = "IPv4+IPv6")]
    #[strum(serialize = "IPv4+IPv6")]
    IPv4IPv6,
    #[serde(rename = "IPv6+IPv4")]
    #[strum(serialize = "IPv6+IPv4")]
    IPv6IPv4,
}

impl IpFamily {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The family that nodes get.
    #[must_use]
    pub fn effective(self) -> Self {
        match self {
            Self::Unspecified => Self::IPv4,
            family => family,
        }
    }
}

/// Settings of the operating system, the union of all systems; unknown fields are ignored as
/// machine-controller does.
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
    /// RHEL: user of the subscription.
    pub rhel_subscription_manager_user: ConfigVar,
    /// RHEL: password of that user.
    pub rhel_subscription_manager_password: ConfigVar,
    /// RHEL: attach a subscription after registration; RHEL 10 has no such step.
    pub attach_subscription: bool,
    /// RHEL: organization that the activation key belongs to.
    pub rhel_organization_name: ConfigVar,
    /// RHEL: activation key, instead of user and password.
    pub rhel_activation_key: ConfigVar,
    /// RHEL: register at a Satellite server.
    pub rhel_use_satellite_server: bool,
    /// RHEL: its host.
    pub rhel_satellite_server: String,
}

/// A text, or the object that holds it: machine-controller's `ConfigVarString`
/// (`sdk/providerconfig/types.go`). `Debug` does not show the text.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum ConfigVar {
    #[default]
    Empty,
    Text(String),
    /// A key of a Secret.
    SecretKey(KeyReference),
    /// A key of a ConfigMap.
    ConfigMapKey(KeyReference),
}

/// A key of an object.
#[derive(Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(default)]
#[allow(missing_docs)]
pub struct KeyReference {
    pub namespace: String,
    pub name: String,
    pub key: String,
}

impl KeyReference {
    /// Namespace, name and key.
    pub fn path(&self) -> [&str; 3] {
        [&self.namespace, &self.name, &self.key]
    }
}

impl ConfigVar {
    pub fn is_empty(&self) -> bool {
        *self == Self::Empty
    }
}

impl fmt::Debug for ConfigVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Text(_) => f.write_str("Text"),
            Self::SecretKey(key) => f.debug_tuple("SecretKey").field(key).finish(),
            Self::ConfigMapKey(key) => f.debug_tuple("ConfigMapKey").field(key).finish(),
        }
    }
}

impl<'de> Deserialize<'de> for ConfigVar {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize, Default)]
        #[serde(rename_all = "camelCase", default)]
        struct Reference {
            value: String,
            secret_key_ref: KeyReference,
            config_map_key_ref: KeyReference,
        }
        let reference = match Value::deserialize(d)? {
            object @ Value::Object(_) => serde_json::from_value(object).map_err(|error| {
                let rule = strict::without_values(&error.to_string());
                // The path in the message is that of the object, while other rules would be about one of its
                // fields.
                Error::custom(match rule.as_str() {
                    rule @ (strict::NUMBER_WITHOUT_QUOTES | strict::BOOLEAN_WITHOUT_QUOTES) => rule,
                    _ => "expected a string, or an object with value, secretKeyRef or configMapKeyRef",
                })
            })?,
            text => Reference {
                value: serde_json::from_value(text).map_err(Error::custom)?,
                ..Reference::default()
            },
        };
        // In the order in which machine-controller looks.
        Ok(match reference {
            Reference { secret_key_ref, .. } if !secret_key_ref.name.is_empty() => {
                Self::SecretKey(secret_key_ref)
            }
            Reference {
                config_map_key_ref, ..
            } if !config_map_key_ref.name.is_empty() => Self::ConfigMapKey(config_map_key_ref),
            Reference { value, .. } if !value.is_empty() => Self::Text(value),
            _ => Self::Empty,
        })
    }
}

fn empty_is_none<'de, D: Deserializer<'de>>(d: D) -> Result<Option<ProvisioningUtility>, D::Error> {
    let value = Value::deserialize(d)?;
    let value = Some(value).filter(|value| value != "");
    value
        .map(serde_json::from_value)
        .transpose()
        .map_err(Error::custom)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_config_var_is_a_text_or_a_reference_and_hides_the_text() {
        let key = json!({"namespace": "n", "name": "s", "key": "k"});
        let reference: KeyReference = serde_json::from_value(key.clone()).unwrap();
        assert_eq!(reference.path(), ["n", "s", "k"]);
        let empty = json!({"value": "", "secretKeyRef": {}, "configMapKeyRef": {}});
        let of_secret = json!({"secretKeyRef": key});
        let of_map = json!({"value": "x", "configMapKeyRef": key});
        for (value, expected) in [
            (json!(""), ConfigVar::Empty),
            (json!({"value": ""}), ConfigVar::Empty),
            (empty, ConfigVar::Empty),
            (json!("hunter2"), ConfigVar::Text("hunter2".into())),
            (json!({"value": "hunter2"}), ConfigVar::Text("hunter2".into())),
            (of_secret, ConfigVar::SecretKey(reference.clone())),
            (of_map, ConfigVar::ConfigMapKey(reference)),
        ] {
            let found: ConfigVar = serde_json::from_value(value).unwrap();
            assert_eq!(found, expected);
            assert!(!format!("{found:?}").contains("hunter2"));
        }
        let boolean = "is a boolean; put it in quotes";
        let object = "expected a string, or an object with value, secretKeyRef or configMapKeyRef";
        for (wrong, problem) in [
            (json!(5), "is a number; put it in quotes"),
            (json!({"value": 5}), "is a number; put it in quotes"),
            (json!({"secretKeyRef": {"name": true}}), boolean),
            (json!({"secretKeyRef": "hunter2"}), object),
            (json!({"value": ["hunter2"]}), object),
            (json!(["hunter2"]), "is a list, expected a string"),
        ] {
            let errors = strict::decode::<ConfigVar>(wrong).unwrap_err();
            assert_eq!(errors, [format!("{}: {problem}", strict::DOCUMENT)]);
        }
    }
}
