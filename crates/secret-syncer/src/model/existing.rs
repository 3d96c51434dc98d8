//! The objects that exist for one pool in `cloud-init-settings`, and the labels and annotations that say
//! which pool an object belongs to.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::{PoolRef, names};

use crate::model::view::{
    BindingView, Meta, PURPOSE_BOOTSTRAP, PURPOSE_EDGE_SCRIPT, PURPOSE_KUBECONFIG, PURPOSE_PROVISIONING,
    PURPOSE_TOKEN_BINDING, Pairs, RoleView, SecretView,
};

/// The labels and annotations by which an object belongs to one pool. [`Self::all_labels`] adds the
/// installation and the purpose of the object ([`names::ROLE`]). Views keep all of them (`READ` in
/// [`crate::model::view`]): [`Self::is_on`] would miss others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ownership {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Ownership {
    /// `management` is the uid of the cluster that holds the OperatingSystemConfig `config`.
    pub fn new(config: &str, management: &str, md: &PoolRef) -> Self {
        Self {
            labels: BTreeMap::from([(names::POOL.to_owned(), md.id())]),
            annotations: BTreeMap::from([
                (names::CONFIG.to_owned(), config.to_owned()),
                (names::MANAGEMENT_CLUSTER_UID.to_owned(), management.to_owned()),
                (names::OWNER.to_owned(), format!("{}/{}", md.namespace, md.name)),
            ]),
        }
    }

    pub fn is_on(&self, meta: &Meta) -> bool {
        let all = |wanted: &BTreeMap<String, String>, found: &Pairs| {
            wanted
                .iter()
                .all(|(name, value)| found.get(name.as_str()) == Some(value))
        };
        all(&self.labels, &meta.labels) && all(&self.annotations, &meta.annotations)
    }

    /// Metadata of an object of this name and purpose.
    pub fn metadata(&self, installation: &str, name: &str, purpose: &'static str) -> ObjectMeta {
        ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(self.all_labels(installation, purpose)),
            annotations: Some(self.annotations.clone()),
            ..ObjectMeta::default()
        }
    }

    /// All labels of an object with this purpose.
    pub fn all_labels(&self, installation: &str, purpose: &'static str) -> BTreeMap<String, String> {
        let mut labels = self.labels.clone();
        labels.insert(names::INSTALLATION.to_owned(), installation.to_owned());
        labels.insert(names::ROLE.to_owned(), purpose.to_owned());
        labels
    }
}

/// A Secret whose name does not depend on its content: other programs or machines know it. A copy under
/// another name, such as a backup, is not the Secret that they read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WellKnown {
    Bootstrap,
    Kubeconfig,
    EdgeScript,
}

impl WellKnown {
    /// Value of the label [`names::ROLE`].
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Bootstrap => PURPOSE_BOOTSTRAP,
            Self::Kubeconfig => PURPOSE_KUBECONFIG,
            Self::EdgeScript => PURPOSE_EDGE_SCRIPT,
        }
    }

    /// For error messages.
    pub fn what(self) -> &'static str {
        match self {
            Self::Bootstrap => "the bootstrap Secret",
            Self::Kubeconfig => "the kubeconfig Secret",
            Self::EdgeScript => "the Secret with the edge script",
        }
    }

    /// Its name for this pool of this config; `None`: no pool has a config of that name.
    pub fn name(self, config: &str, pool: &str) -> Option<String> {
        match self {
            Self::Bootstrap => names::bootstrap_secret_of(config),
            Self::Kubeconfig => Some(names::kubeconfig_secret_name(pool)),
            Self::EdgeScript => names::edge_script_secret_of(config),
        }
    }
}

/// What the watches show of all pools of one config name.
pub struct Group {
    pub secrets: Vec<Arc<SecretView>>,
    pub accounts: Vec<Arc<Meta>>,
    pub roles: Vec<Arc<RoleView>>,
    pub bindings: Vec<Arc<BindingView>>,
}

impl Group {
    /// What exists for this pool, and for others. Labels are easily changed or copied, a name is not: an
    /// object whose name does not fit its labels is ignored until it does.
    pub fn by_pool(self, config: &str, pool: &str) -> (ExistingObjects, Vec<(String, ExistingObjects)>) {
        let mut by_pool = BTreeMap::<String, ExistingObjects>::new();
        for secret in self.secrets {
            let pool = secret.meta.pool().unwrap_or_default();
            let is = |known: WellKnown| {
                secret.is(known.purpose()) && known.name(config, pool).as_ref() == Some(&secret.meta.name)
            };
            let objects = by_pool.entry(pool.to_owned()).or_default();
            if is(WellKnown::Bootstrap) {
                objects.bootstrap = Some(secret);
            } else if is(WellKnown::EdgeScript) {
                objects.edge_script = Some(secret);
            } else if is(WellKnown::Kubeconfig) {
                objects.kubeconfig = Some(secret);
            } else if secret.is(PURPOSE_TOKEN_BINDING)
                && secret.meta.name == names::token_binding_secret_name(pool)
            {
                objects.token_binding = Some(secret);
            } else if secret.is(PURPOSE_PROVISIONING)
                && secret.meta.name.starts_with(names::PROVISIONING_PREFIX)
            {
                objects.provisioning.push(secret);
            }
        }
        for account in self.accounts {
            if let Some(objects) = of_identity(&mut by_pool, &account) {
                objects.account = Some(account);
            }
        }
        for role in self.roles {
            if let Some(objects) = of_identity(&mut by_pool, &role.meta) {
                objects.role = Some(role);
            }
        }
        for binding in self.bindings {
            if let Some(objects) = of_identity(&mut by_pool, &binding.meta) {
                objects.binding = Some(binding);
            }
        }
        for objects in by_pool.values_mut() {
            objects.provisioning.sort_by(|a, b| a.meta.name.cmp(&b.meta.name));
        }
        let mut own = by_pool.remove(pool).unwrap_or_default();
        // The name of the bootstrap Secret is the same for each pool of this name: a successor takes it over.
        if own.bootstrap.is_none() && !pool.is_empty() {
            own.bootstrap = by_pool.values_mut().find_map(|orphan| orphan.bootstrap.take());
        }
        if own.edge_script.is_none() && !pool.is_empty() {
            own.edge_script = by_pool.values_mut().find_map(|orphan| orphan.edge_script.take());
        }
        by_pool.retain(|_, objects| !objects.is_nothing());
        (own, by_pool.into_iter().collect())
    }
}

/// The objects of the pool that this is the account, Role or RoleBinding of.
fn of_identity<'a>(
    by_pool: &'a mut BTreeMap<String, ExistingObjects>,
    meta: &Meta,
) -> Option<&'a mut ExistingObjects> {
    let pool = meta.pool().unwrap_or_default();
    let is_named = meta.name == names::pool_account(pool);
    is_named.then(|| by_pool.entry(pool.to_owned()).or_default())
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExistingObjects {
    pub bootstrap: Option<Arc<SecretView>>,
    /// The Secret with the script of an edge pool.
    pub edge_script: Option<Arc<SecretView>>,
    /// The Secret with the kubelet's kubeconfig, which machines of some pools fetch.
    pub kubeconfig: Option<Arc<SecretView>>,
    /// The Secret that tokens of the pool are bound to which a version before 0.1.0 issued. It only goes with
    /// the pool.
    pub token_binding: Option<Arc<SecretView>>,
    /// Provisioning Secrets, by name.
    pub provisioning: Vec<Arc<SecretView>>,
    pub account: Option<Arc<Meta>>,
    pub role: Option<Arc<RoleView>>,
    pub binding: Option<Arc<BindingView>>,
}

impl ExistingObjects {
    pub fn well_known(&self, known: WellKnown) -> Option<&Arc<SecretView>> {
        let secret = match known {
            WellKnown::Bootstrap => &self.bootstrap,
            WellKnown::Kubeconfig => &self.kubeconfig,
            WellKnown::EdgeScript => &self.edge_script,
        };
        secret.as_ref()
    }

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
