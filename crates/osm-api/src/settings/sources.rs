//! Which Secrets and ConfigMaps a pool and its profile may refer to.

use super::Settings;
use crate::config::{LateBoundKind, LateBoundSource};

/// Whose object holds a value. It decides from which cluster the object is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// The administrator's, whose settings name it.
    Settings,
    /// A user's, in the cluster of the MachineDeployments.
    Pool,
}

impl Settings {
    /// Whose object holds a late-bound value. `None`: these settings, which are those of the installation, do not allow it.
    pub fn holder(&self, kind: LateBoundKind, source: &LateBoundSource) -> Option<Holder> {
        let credentials = &self.credentials;
        // What a pool may refer to is not what a profile may place, which every pool with that profile gets.
        if kind == LateBoundKind::ProfileSecretKey {
            let mut secrets = credentials.profile_secrets.iter();
            let is_listed = secrets.any(|secret| {
                secret.namespace == source.namespace && secret.name == source.name && secret.key == source.key
            });
            return is_listed.then_some(Holder::Settings);
        }
        // The administrator writes the settings, so what they name may be read. A pool may name only what is listed.
        let named = match kind {
            LateBoundKind::RegistryUsername | LateBoundKind::RegistryPassword => {
                let mut registries = self.containerd.registries.iter();
                let found = registries.find(|registry| registry.host == source.key);
                found.and_then(|registry| registry.credentials.as_ref())
            }
            LateBoundKind::ProxyUrl if self.proxy.http.as_ref() == Some(&source.key) => {
                self.proxy.credentials.as_ref()
            }
            _ => None,
        };
        if named.is_some_and(|secret| secret.namespace == source.namespace && secret.name == source.name) {
            return Some(Holder::Settings);
        }
        let mut of_namespace = credentials
            .allowed_sources
            .iter()
            .filter(|allowed| allowed.namespace == source.namespace);
        let is_listed = of_namespace.any(|allowed| {
            let names = match kind {
                LateBoundKind::ConfigMapKey => &allowed.config_maps,
                _ => &allowed.secrets,
            };
            names.contains(&source.name)
        });
        is_listed.then_some(Holder::Pool)
    }
}
