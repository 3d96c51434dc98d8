//! What this controller knows: its watches, and what wakes which OperatingSystemConfig.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{CLOUD_INIT_SETTINGS, INSTALLATION, NODE_BOOTSTRAP_ACCOUNT};
use osm_runtime::cache::{Cache, Change, Version};
use osm_runtime::metrics::Census;
use osm_runtime::queue::Queue;
use osm_runtime::{Context, settings, watch};

use crate::key::DigestKey;
use crate::sources::Followed;
use crate::tokens::AsToken;
use crate::view::{self, BindingView, ConfigView, Meta, ROLE_KEY, RoleView, SecretView};

/// What is worked on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The OperatingSystemConfig of this name, whether it is there or not.
    Config(String),
    /// The installation's HMAC key.
    DigestKey,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(name) => f.write_str(name),
            Self::DigestKey => f.write_str("(HMAC key)"),
        }
    }
}

/// Shared by all reconciles; cheap to clone.
#[derive(Clone)]
pub struct State(Arc<Inner>);

impl std::ops::Deref for State {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// What [`State`] holds.
pub struct Inner {
    /// Clients, flags, metrics.
    pub context: Context,
    /// The settings in force.
    pub settings: settings::Receiver,
    /// Value of the label on everything that is made here.
    pub installation: String,
    /// What wants a reconcile.
    pub queue: Arc<Queue<Key>>,
    /// OperatingSystemConfigs of the namespace.
    pub configs: Arc<Cache<ConfigView>>,
    /// Secrets of this installation; this and the next three are grouped by the config that they were made for.
    pub secrets: Arc<Cache<SecretView>>,
    /// ServiceAccounts of this installation, and `osm-node-bootstrap`.
    pub accounts: Arc<Cache<Meta>>,
    /// Roles of this installation.
    pub roles: Arc<Cache<RoleView>>,
    /// RoleBindings of this installation.
    pub bindings: Arc<Cache<BindingView>>,
    /// Secrets and ConfigMaps of others that documents take values from.
    pub sources: Followed,
    /// Asks the API server what a token may do.
    pub as_token: AsToken,
    /// Objects by condition.
    pub census: Arc<Census>,
    /// Metrics of this controller.
    pub metrics: crate::report::Metrics,
    /// The HMAC key in use.
    pub(crate) digest_key: Mutex<Option<DigestKey>>,
    /// Held while the Secret with the key is written.
    pub(crate) writes_key: tokio::sync::Mutex<()>,
    /// The values that each config's documents were last made from.
    pub(crate) last_values: Mutex<HashMap<String, osm_render::LateValues>>,
    /// Since when a config has had nothing to publish.
    pub(crate) waiting: Mutex<HashMap<String, Timestamp>>,
    /// When and why pools were last published because something did not stand as it was written.
    pub(crate) repaired: Mutex<HashMap<String, (Timestamp, u32)>>,
    /// Names that were found taken by Secrets of others.
    pub(crate) foreign: Mutex<HashSet<String>>,
    /// Configs whose whole document has been compared since this process started.
    pub(crate) verified: Mutex<HashMap<String, String>>,
    /// Since when a config's reconciles fail.
    pub(crate) failing: Mutex<HashMap<String, Timestamp>>,
    /// When credentials expire.
    pub(crate) expiries: Mutex<crate::report::Expiries>,
    /// When orphans were collected, of the last hour.
    pub(crate) collected: Mutex<VecDeque<Timestamp>>,
}

impl State {
    /// Starts the watches.
    ///
    /// # Errors
    /// Metrics or clients that can't be set up.
    pub fn start(
        context: &Context,
        settings: settings::Receiver,
        installation: String,
    ) -> anyhow::Result<Self> {
        let state = Self(Arc::new(Inner {
            context: context.clone(),
            settings,
            installation,
            queue: Arc::default(),
            configs: Arc::default(),
            secrets: Arc::new(Cache::grouped(|secret| secret.meta.config().map(str::to_owned))),
            accounts: Arc::new(Cache::grouped(|account| account.config().map(str::to_owned))),
            roles: Arc::new(Cache::grouped(|role| role.meta.config().map(str::to_owned))),
            bindings: Arc::new(Cache::grouped(|binding| binding.meta.config().map(str::to_owned))),
            sources: Mutex::default(),
            as_token: AsToken::new(context)?,
            census: Census::new(&context.metrics),
            metrics: crate::report::Metrics::new(context)?,
            digest_key: Mutex::default(),
            writes_key: tokio::sync::Mutex::default(),
            last_values: Mutex::default(),
            waiting: Mutex::default(),
            repaired: Mutex::default(),
            foreign: Mutex::default(),
            verified: Mutex::default(),
            failing: Mutex::default(),
            expiries: Mutex::default(),
            collected: Mutex::default(),
        }));
        state.watch();
        state.queue.add(Key::DigestKey);
        Ok(state)
    }

    fn watch(&self) {
        let (context, client) = (&self.context, self.context.client.clone());
        let namespace = context.args.namespace.as_str();
        let all = watcher::Config::default;
        let ours = || watcher::Config::default().labels(&format!("{INSTALLATION}={}", self.installation));

        let queue = self.queue.clone();
        let wake = move |change: Change<ConfigView>| {
            for config in change.new.iter().chain(&change.old).take(1) {
                queue.add(Key::Config(config.name.clone()));
            }
        };
        let api: Api<DeserializeGuard<OperatingSystemConfig>> = Api::namespaced(client.clone(), namespace);
        watch::spawn(
            context,
            "operatingsystemconfigs",
            api,
            all(),
            self.configs.clone(),
            |c| Some(ConfigView::of(&c)),
            wake,
        );

        let queue = self.queue.clone();
        let wake = move |change: Change<SecretView>| {
            for secret in change.new.iter().chain(&change.old) {
                if secret.is(ROLE_KEY) {
                    queue.add(Key::DigestKey);
                }
                wake_owner(&queue, &secret.meta);
            }
        };
        let api: Api<DeserializeGuard<Secret>> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        watch::spawn(
            context,
            "secrets",
            api,
            ours(),
            self.secrets.clone(),
            |s| Some(SecretView::of(&s)),
            wake,
        );

        let state = self.clone();
        let wake = move |change: Change<Meta>| {
            for meta in change.new.iter().chain(&change.old) {
                if meta.name == NODE_BOOTSTRAP_ACCOUNT {
                    state.wake(|_| true);
                }
                wake_owner(&state.queue, meta);
            }
        };
        let installation = self.installation.clone();
        let of_interest = move |account: ServiceAccount| {
            let meta = view::account(&account);
            let ours = meta.labels.get(INSTALLATION) == Some(&installation);
            (ours || meta.name == NODE_BOOTSTRAP_ACCOUNT).then_some(meta)
        };
        let api: Api<DeserializeGuard<ServiceAccount>> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        watch::spawn(context, "serviceaccounts", api, all(), self.accounts.clone(), of_interest, wake);

        let queue = self.queue.clone();
        let wake = move |change: Change<RoleView>| {
            change.new.iter().chain(&change.old).for_each(|role| wake_owner(&queue, &role.meta));
        };
        let api: Api<DeserializeGuard<Role>> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        watch::spawn(
            context,
            "roles",
            api,
            ours(),
            self.roles.clone(),
            |role| Some(RoleView::of(&role)),
            wake,
        );

        let queue = self.queue.clone();
        let wake = move |change: Change<BindingView>| {
            change.new.iter().chain(&change.old).for_each(|binding| wake_owner(&queue, &binding.meta));
        };
        let api: Api<DeserializeGuard<RoleBinding>> = Api::namespaced(client.clone(), CLOUD_INIT_SETTINGS);
        watch::spawn(
            context,
            "rolebindings",
            api,
            ours(),
            self.bindings.clone(),
            |b| Some(BindingView::of(&b)),
            wake,
        );

        // So that everything is put back as soon as the namespace is.
        let state = self.clone();
        let wake = move |_: Change<()>| {
            state.queue.add(Key::DigestKey);
            state.wake(|_| true);
        };
        let api: Api<DeserializeGuard<Namespace>> = Api::all(client);
        let named = all().fields(&format!("metadata.name={CLOUD_INIT_SETTINGS}"));
        watch::spawn(context, "namespaces", api, named, Arc::default(), |_| Some(()), wake);

        let state = self.clone();
        settings::on_change(context, &self.settings, move || state.wake(|_| true));
    }

    /// Asks for a reconcile of every config that `which` takes.
    pub fn wake(&self, which: impl Fn(&ConfigView) -> bool) {
        for config in self.configs.select(which) {
            self.queue.add(Key::Config(config.name.clone()));
        }
    }
}

fn wake_owner(queue: &Queue<Key>, meta: &Meta) {
    if let Some(config) = meta.config() {
        queue.add(Key::Config(config.to_owned()));
    }
}

impl Inner {
    /// OperatingSystemConfigs.
    pub fn config_api(&self) -> Api<OperatingSystemConfig> {
        Api::namespaced(self.context.client.clone(), &self.context.args.namespace)
    }

    /// Secrets in `cloud-init-settings`.
    pub fn secret_api(&self) -> Api<Secret> {
        Api::namespaced(self.context.client.clone(), CLOUD_INIT_SETTINGS)
    }

    /// Key in the caches of an object in `cloud-init-settings`.
    pub fn key_in_namespace(&self, name: &str) -> String {
        format!("{CLOUD_INIT_SETTINGS}/{name}")
    }

    /// Records what the server returned for a write of ours.
    pub fn wrote_secret(&self, secret: &Secret) -> SecretView {
        let view = SecretView::of(secret);
        // Whoever writes Secrets asks for another reconcile when it is done.
        let _ =
            self.secrets.wrote(&watch::key(&secret.metadata), Version::of(&secret.metadata), view.clone());
        view
    }

    /// Records what the server returned for a write of ours.
    pub fn wrote_config(&self, config: &OperatingSystemConfig) {
        let (key, version) = (watch::key(&config.metadata), Version::of(&config.metadata));
        let change = self.configs.wrote(&key, version, ConfigView::of(config));
        // What osc-controller wrote in the meantime came back with our own write.
        let Some(Change { old, new: Some(new), .. }) = change else { return };
        if old.is_none_or(|old| old.of_others() != new.of_others()) {
            self.queue.add(Key::Config(new.name.clone()));
        }
    }
}

/// A lock whose holder panicked is still good: nothing here is left half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
