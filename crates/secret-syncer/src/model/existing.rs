//! What exists for one pool in `cloud-init-settings`, and the labels and annotations that say which pool an object belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use osm_api::{PoolRef, names};

use crate::model::view::{BindingView, Meta, Pairs, RoleView, SecretView};

/// Labels and annotations of everything that is made for one pool. All are among those that views keep, since [`Self::are_on`] would
/// miss others. The purpose of an object ([`names::ROLE`]) and the installation
/// are added by [`Self::labels`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnershipLabels {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl OwnershipLabels {
    /// `management` is the uid of the cluster that holds the OperatingSystemConfig `config`.
    pub fn new(config: &str, pool: &str, management: &str, md: &PoolRef) -> Self {
        Self {
            labels: BTreeMap::from([(names::POOL.to_owned(), pool.to_owned())]),
            annotations: BTreeMap::from([
                (names::CONFIG.to_owned(), config.to_owned()),
                (names::MANAGEMENT_CLUSTER_UID.to_owned(), management.to_owned()),
                (names::OWNER.to_owned(), format!("{}/{}", md.namespace, md.name)),
            ]),
        }
    }

    pub fn are_on(&self, meta: &Meta) -> bool {
        let all = |wanted: &BTreeMap<String, String>, found: &Pairs| {
            wanted
                .iter()
                .all(|(name, value)| found.get(name.as_str()) == Some(value))
        };
        all(&self.labels, &meta.labels) && all(&self.annotations, &meta.annotations)
    }

    /// All labels of an object with this purpose.
    pub fn labels(&self, installation: &str, purpose: &'static str) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        labels.insert(names::INSTALLATION.to_owned(), installation.to_owned());
        labels.insert(names::ROLE.to_owned(), purpose.to_owned());
        labels
    }
}

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

    /// Name of the provisioning Secret that the bootstrap Secret refers to.
    pub fn document_name(&self) -> Option<&str> {
        let bootstrap = &self.bootstrap.as_ref()?.meta;
        bootstrap.annotation(names::PROVISIONING_SECRET)
    }

    /// The provisioning Secret that the bootstrap Secret refers to.
    pub fn document(&self) -> Option<&Arc<SecretView>> {
        let name = self.document_name()?;
        self.provisioning.iter().find(|secret| secret.meta.name == name)
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
