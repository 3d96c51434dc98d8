//! Checks which Secrets and ConfigMaps a pool and its profile may refer to.

use super::Settings;
use crate::config::{LateBoundKind, LateBoundSource};

impl Settings {
    /// Whether these settings, which are those of the installation, let a document take a late-bound value
    /// from an object.
    pub fn allow(&self, kind: LateBoundKind, source: &LateBoundSource) -> bool {
        let credentials = &self.credentials;
        // What a pool may refer to is not what a profile may place, which every pool with that profile gets.
        if kind == LateBoundKind::ProfileSecretKey {
            let mut secrets = credentials.profile_secrets.iter();
            return secrets.any(|secret| {
                secret.namespace == source.namespace && secret.name == source.name && secret.key == source.key
            });
        }
        // The administrator writes the settings, so what they name may be read. A pool may name only what is
        // listed.
        let named = match kind {
            LateBoundKind::RegistryUsername | LateBoundKind::RegistryPassword => {
                let mut registries = self.containerd.registries.iter();
                let found = registries.find(|registry| registry.host == source.key);
                found.and_then(|registry| registry.credentials.as_ref())
            }
            LateBoundKind::ProxyURL if self.proxy.http.as_ref() == Some(&source.key) => {
                self.proxy.credentials.as_ref()
            }
            _ => None,
        };
        if named.is_some_and(|secret| secret.namespace == source.namespace && secret.name == source.name) {
            return true;
        }
        let mut of_namespace = credentials
            .allowed_sources
            .iter()
            .filter(|allowed| allowed.namespace == source.namespace);
        of_namespace.any(|allowed| {
            let names = match kind {
                LateBoundKind::ConfigMapKey => &allowed.config_maps,
                _ => &allowed.secrets,
            };
            names.contains(&source.name)
        })
    }
}
