//! `credentials`: how nodes authenticate, and which objects a MachineDeployment may refer to.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::Problems;
use crate::names::{is_data_key, is_dns_subdomain};

/// Credentials of nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Credentials {
    /// Lifetime of tokens to request, in hours. They are renewed after half of the lifetime that the API
    /// server grants.
    #[schemars(range(min = 1, max = 720))]
    pub token_lifetime_hours: u16,
    /// Secrets and ConfigMaps that a MachineDeployment may refer to. By default, there are none.
    pub allowed_sources: Vec<AllowedSource>,
    /// Values of Secrets that profiles may place into the provisioning document. By default, there are none.
    pub profile_secrets: Vec<ProfileSecret>,
}

impl Credentials {
    pub fn token_lifetime(&self) -> Duration {
        Duration::from_secs(u64::from(self.token_lifetime_hours) * 3600)
    }

    pub(super) fn validate(&self, problems: &mut Problems) {
        let ok = (1..=720).contains(&self.token_lifetime_hours);
        problems.check("credentials.tokenLifetimeHours", ok, "must be from 1 to 720");
        for (i, source) in self.allowed_sources.iter().enumerate() {
            source.validate(&format!("credentials.allowedSources[{i}]"), problems);
        }
        for (i, secret) in self.profile_secrets.iter().enumerate() {
            secret.validate(&format!("credentials.profileSecrets[{i}]"), problems);
        }
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            token_lifetime_hours: 24,
            allowed_sources: Vec::new(),
            profile_secrets: Vec::new(),
        }
    }
}

/// Objects of one namespace that a MachineDeployment may refer to.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedSource {
    /// Namespace of the objects.
    pub namespace: String,
    /// Names of Secrets.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Names of ConfigMaps.
    #[serde(default)]
    pub config_maps: Vec<String>,
}

impl AllowedSource {
    fn validate(&self, path: &str, problems: &mut Problems) {
        let rule = "must be the name of an object; a pattern matches nothing";
        problems.check(
            format!("{path}.namespace"),
            is_dns_subdomain(&self.namespace),
            rule,
        );
        for (field, names) in [("secrets", &self.secrets), ("configMaps", &self.config_maps)] {
            for (j, name) in names.iter().enumerate() {
                problems.check(format!("{path}.{field}[{j}]"), is_dns_subdomain(name), rule);
            }
        }
    }
}

/// A value of a Secret that profiles may place.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileSecret {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
    /// Key in the Secret.
    pub key: String,
}

impl ProfileSecret {
    fn validate(&self, path: &str, problems: &mut Problems) {
        problems.check_object(path, &self.namespace, &self.name);
        let rule = "must be a key of letters, digits, -, _ and .";
        problems.check(format!("{path}.key"), is_data_key(&self.key), rule);
    }
}
