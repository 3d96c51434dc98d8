//! What this controller knows: its watches, and what wakes which OperatingSystemConfig.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use osm_api::condition::PUBLISHED;
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{CLOUD_INIT_SETTINGS, INSTALLATION, NODE_BOOTSTRAP_ACCOUNT};
use osm_runtime::cache::{Cache, Change, Version};
use osm_runtime::metrics::Census;
use osm_runtime::queue::Queue;
use osm_runtime::runner::{self, Shared};
use osm_runtime::strangers::Strangers;
use osm_runtime::{Context, settings, watch};

use crate::bootstrap_token;
use crate::eternal_tokens::{self, EternalToken};
use crate::key::DigestKey;
use crate::report;
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
    /// Tokens without end that others have left.
    EternalTokens,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(name) => f.write_str(name),
            Self::DigestKey => f.write_str("(HMAC key)"),
            Self::EternalTokens => f.write_str("(tokens without end)"),
        }
    }
}

impl runner::Key for Key {
    fn is_of_each(&self) -> bool {
        // Each needs it in memory, and puts the same one back.
        *self == Self::DigestKey
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
    /// Tokens without end that others have left.
    pub eternal_tokens: Arc<Cache<EternalToken>>,
    /// Secrets and ConfigMaps of others that documents take values from.
    pub sources: Followed,
    /// Asks the API server what a token may do.
    pub as_token: AsToken,
    /// Objects by condition.
    pub census: Arc<Census>,
    /// What is of another cluster than those that we are connected to.
    pub strangers: Strangers,
    /// When the worker cluster last said that it is the one that was met first.
    pub(crate) met: Mutex<Option<tokio::time::Instant>>,
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
    /// Bootstrap tokens that were created for a document that could not be written then.
    pub(crate) unpublished: Mutex<HashMap<String, bootstrap_token::Unpublished>>,
    /// Of which tokens without end people were told.
    pub(crate) told_of_tokens: Mutex<eternal_tokens::Told>,
    /// Names that were found taken by Secrets of others.
    pub(crate) foreign: Mutex<HashSet<String>>,
    /// Configs whose whole document has been compared since this process started.
    pub(crate) verified: Mutex<HashMap<String, String>>,
    /// Since when a config's reconciles fail.
    pub(crate) failing: Mutex<HashMap<String, Timestamp>>,
    /// When credentials expire.
    pub(crate) expiries: Mutex<crate::report::Expiries>,
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
            queue: Arc::new(Queue::new(&context.surroundings)),
            configs: Arc::default(),
            secrets: Arc::new(Cache::grouped(|secret| secret.meta.config().map(str::to_owned))),
            accounts: Arc::new(Cache::grouped(|account| account.config().map(str::to_owned))),
            roles: Arc::new(Cache::grouped(|role| role.meta.config().map(str::to_owned))),
            bindings: Arc::new(Cache::grouped(|binding| binding.meta.config().map(str::to_owned))),
            eternal_tokens: Arc::default(),
            sources: Mutex::default(),
            as_token: AsToken::new(context.worker.anonymous.clone()),
            census: Census::new(&context.metrics),
            strangers: Strangers::new(context),
            met: Mutex::default(),
            metrics: crate::report::Metrics::new(context)?,
            digest_key: Mutex::default(),
            writes_key: tokio::sync::Mutex::default(),
            last_values: Mutex::default(),
            waiting: Mutex::default(),
            repaired: Mutex::default(),
            unpublished: Mutex::default(),
            told_of_tokens: Mutex::default(),
            foreign: Mutex::default(),
            verified: Mutex::default(),
            failing: Mutex::default(),
            expiries: Mutex::default(),
        }));
        state.watch();
        state.queue.add(Key::DigestKey);
        Ok(state)
    }

    fn watch(&self) {
        let context = &self.context;
        let (management, worker) = (&context.management, &context.worker);
        let namespace = context.args.namespace.as_str();
        let all = watcher::Config::default;
        let ours = || watcher::Config::default().labels(&format!("{INSTALLATION}={}", self.installation));

        let state = self.clone();
        let wake = move |change: Change<ConfigView>| {
            for config in change.new.iter().chain(&change.old).take(1) {
                state.queue.add(Key::Config(config.name.clone()));
            }
            if !state.eternal_tokens.is_empty() {
                state.queue.add(Key::EternalTokens);
            }
        };
        let api: Api<DeserializeGuard<OperatingSystemConfig>> =
            Api::namespaced(management.client.clone(), namespace);
        watch::spawn(
            context,
            management.watched("operatingsystemconfigs"),
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
        let api: Api<DeserializeGuard<Secret>> = Api::namespaced(worker.client.clone(), CLOUD_INIT_SETTINGS);
        watch::spawn(
            context,
            worker.watched("secrets"),
            api,
            ours(),
            self.secrets.clone(),
            |s| Some(SecretView::of(&s)),
            wake,
        );

        let queue = self.queue.clone();
        let wake = move |_: Change<EternalToken>| queue.add(Key::EternalTokens);
        let api: Api<DeserializeGuard<Secret>> = Api::namespaced(worker.client.clone(), CLOUD_INIT_SETTINGS);
        watch::spawn(
            context,
            worker.watched("tokens without end"),
            api,
            all().fields(&format!("type={}", eternal_tokens::TYPE)),
            self.eternal_tokens.clone(),
            |secret| Some(EternalToken::of(&secret)),
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
        let api: Api<DeserializeGuard<ServiceAccount>> =
            Api::namespaced(worker.client.clone(), CLOUD_INIT_SETTINGS);
        let watched = worker.watched("serviceaccounts");
        watch::spawn(context, watched, api, all(), self.accounts.clone(), of_interest, wake);

        let queue = self.queue.clone();
        let wake = move |change: Change<RoleView>| {
            change.new.iter().chain(&change.old).for_each(|role| wake_owner(&queue, &role.meta));
        };
        let api: Api<DeserializeGuard<Role>> = Api::namespaced(worker.client.clone(), CLOUD_INIT_SETTINGS);
        watch::spawn(
            context,
            worker.watched("roles"),
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
        let api: Api<DeserializeGuard<RoleBinding>> =
            Api::namespaced(worker.client.clone(), CLOUD_INIT_SETTINGS);
        watch::spawn(
            context,
            worker.watched("rolebindings"),
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
        let api: Api<DeserializeGuard<Namespace>> = Api::all(worker.client.clone());
        let named = all().fields(&format!("metadata.name={CLOUD_INIT_SETTINGS}"));
        let watched = worker.watched("namespaces");
        watch::spawn(context, watched, api, named, Arc::default(), |_| Some(()), wake);

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

impl Shared<Key> for State {
    fn known(&self) -> Vec<Key> {
        let configs = self.configs.select(|_| true);
        // What was made for a config that is gone is known by these alone.
        let made =
            [self.secrets.groups(), self.accounts.groups(), self.roles.groups(), self.bindings.groups()];
        let names = configs.iter().map(|config| config.name.clone()).chain(made.into_iter().flatten());
        let names: BTreeSet<String> = names.collect();
        names.into_iter().map(Key::Config).chain([Key::EternalTokens]).collect()
    }

    fn released(&self, key: &Key) {
        match key {
            Key::Config(name) => {
                self.forget(name);
                self.strangers.note(name, None);
            }
            Key::EternalTokens => eternal_tokens::released(self),
            Key::DigestKey => {}
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
        Api::namespaced(self.context.management.client.clone(), &self.context.args.namespace)
    }

    /// A config is gone, or another replica's.
    pub fn forget(&self, name: &str) {
        self.census.forget(name, PUBLISHED);
        lock(&self.failing).remove(name);
        lock(&self.verified).remove(name);
        lock(&self.last_values).remove(name);
        lock(&self.waiting).remove(name);
        lock(&self.repaired).remove(name);
        lock(&self.unpublished).remove(name);
        report::note_expiry(self, name, None);
    }

    /// Secrets in `cloud-init-settings`.
    pub fn secret_api(&self) -> Api<Secret> {
        Api::namespaced(self.context.worker.client.clone(), CLOUD_INIT_SETTINGS)
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
        if !self.eternal_tokens.is_empty() {
            self.queue.add(Key::EternalTokens);
        }
        if old.is_none_or(|old| old.of_others() != new.of_others()) {
            self.queue.add(Key::Config(new.name.clone()));
        }
    }
}

/// A lock whose holder panicked is still good: nothing here is left half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
