//! What exists for one pool in `cloud-init-settings`.

use std::sync::Arc;

use osm_api::{PoolRef, names};

use crate::model::view::{BindingView, Meta, RoleView, SecretView};

/// Names of a pool's Secrets that other programs know. A copy under another name, such as a backup, is not the Secret that they read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WellKnownNames {
    pub bootstrap: Option<String>,
    pub edge_script: Option<String>,
}

impl WellKnownNames {
    /// Of the pool of a config, or by the config's name where its pool is not known.
    pub fn of(config: &str, md: Option<&PoolRef>) -> Self {
        match md {
            Some(md) => Self {
                bootstrap: Some(names::bootstrap_secret_name(&md.name, &md.namespace)),
                edge_script: Some(names::edge_script_secret_name(&md.name, &md.namespace)),
            },
            None => Self {
                bootstrap: names::bootstrap_secret_of(config),
                edge_script: names::edge_script_secret_of(config),
            },
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExistingObjects {
    pub bootstrap: Option<Arc<SecretView>>,
    /// The Secret with the script of an edge pool.
    pub edge_script: Option<Arc<SecretView>>,
    /// The Secret with the kubelet's kubeconfig, which machines of some pools fetch.
    pub kubeconfig: Option<Arc<SecretView>>,
    /// The Secret that the pool's token of `osm-node-bootstrap` is bound to.
    pub token_binding: Option<Arc<SecretView>>,
    /// Provisioning Secrets, by name.
    pub provisioning: Vec<Arc<SecretView>>,
    pub account: Option<Arc<Meta>>,
    pub role: Option<Arc<RoleView>>,
    pub binding: Option<Arc<BindingView>>,
}

impl ExistingObjects {
    /// Every Secret, in the order in which a teardown deletes them.
    pub fn secrets(&self) -> impl Iterator<Item = &Arc<SecretView>> {
        self.token_binding
            .iter()
            .chain(&self.kubeconfig)
            .chain(&self.provisioning)
            .chain(&self.edge_script)
            .chain(&self.bootstrap)
    }

    pub fn metas(&self) -> impl Iterator<Item = &Meta> {
        let account = self.account.as_deref().into_iter();
        let role = self.role.as_deref().map(|role| &role.meta);
        let binding = self.binding.as_deref().map(|binding| &binding.meta);
        self.secrets()
            .map(|secret| &secret.meta)
            .chain(account)
            .chain(role)
            .chain(binding)
    }

    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}
