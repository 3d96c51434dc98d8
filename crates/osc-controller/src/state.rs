//! What this controller knows: its watches, and what wakes which OperatingSystemConfig.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use osm_api::config::OperatingSystemConfig;
use osm_api::profile::{AcceptedProfile, OperatingSystemProfile};
use osm_api::{MachineDeployment, condition};
use osm_render::{Profile, ProfileError};
use osm_runtime::cache::{Cache, Change};
use osm_runtime::metrics::Census;
use osm_runtime::queue::Queue;
use osm_runtime::runner::Shared;
use osm_runtime::strangers::Strangers;
use osm_runtime::{Context, settings, watch};

use crate::endpoint::{self, Discovered};
use crate::metrics::Sizes;
use crate::pool_settings;
use crate::view::{self, ConfigView, ProfileView};

/// Shared by all reconciles; cheap to clone.
#[derive(Clone)]
pub struct State(Arc<Inner>);

impl std::ops::Deref for State {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// When something was last asked for.
type LastAsked = Arc<tokio::sync::Mutex<Option<tokio::time::Instant>>>;

/// Of more profiles than this it is not remembered when they were asked for.
const REMEMBERED: usize = 1024;

/// What [`State`] holds.
pub struct Inner {
    /// Clients, flags, metrics.
    pub context: Context,
    /// The settings in force.
    pub settings: settings::Receiver,
    /// Names of OperatingSystemConfigs that want a reconcile.
    pub queue: Arc<Queue<String>>,
    /// MachineDeployments of the whole cluster, grouped by the name of the config that they claim.
    pub machine_deployments: Arc<Cache<MachineDeployment>>,
    /// Profiles, by namespace.
    pub profiles: BTreeMap<String, Arc<Cache<ProfileView>>>,
    /// OperatingSystemConfigs of the namespace.
    pub configs: Arc<Cache<ConfigView>>,
    /// Objects by condition.
    pub census: Arc<Census>,
    /// Sizes of user data.
    pub sizes: Sizes,
    /// MachineDeployments that have no OperatingSystemConfig of their own, and why: they were told.
    pub rejected: Mutex<HashMap<String, &'static str>>,
    /// uids of MachineDeployments whose deletion waits for the Go implementation: they were told.
    pub told_of_finalizer: Mutex<HashSet<String>>,
    /// Configs and pools that are of another cluster than the one that we are connected to.
    pub strangers: Strangers,
    /// ConfigMaps that pools name.
    pub pool_settings: pool_settings::Followed,
    cluster_info: Arc<Cache<Discovered>>,
    endpoint_slices: Arc<Cache<Discovered>>,
    known_endpoints: Mutex<Vec<Discovered>>,
    compiled: Mutex<HashMap<String, Result<Arc<Profile>, ProfileError>>>,
    waiting: Mutex<HashMap<String, (String, Timestamp)>>,
    asked: Mutex<HashMap<String, LastAsked>>,
}

impl State {
    /// Starts the watches.
    ///
    /// # Errors
    /// Metrics that can't be registered.
    pub fn start(context: &Context, settings: settings::Receiver) -> anyhow::Result<Self> {
        let namespaces = context.installation.namespaces_of_profiles().into_iter();
        let profiles = namespaces.map(|namespace| (namespace.to_owned(), Arc::default())).collect();
        let state = Self(Arc::new(Inner {
            context: context.clone(),
            settings,
            queue: Arc::new(Queue::new(&context.surroundings)),
            machine_deployments: Arc::new(Cache::grouped(|md| Some(view::claimed(md)))),
            profiles,
            configs: Arc::default(),
            census: Census::new(&context.metrics),
            sizes: Sizes::new(&context.metrics)?,
            rejected: Mutex::default(),
            told_of_finalizer: Mutex::default(),
            strangers: Strangers::new(context),
            pool_settings: Mutex::default(),
            cluster_info: Arc::default(),
            endpoint_slices: Arc::default(),
            known_endpoints: Mutex::default(),
            compiled: Mutex::default(),
            waiting: Mutex::default(),
            asked: Mutex::default(),
        }));
        state.watch();
        Ok(state)
    }

    fn watch(&self) {
        let context = &self.context;
        let (management, worker) = (&context.management, &context.worker);
        let all = watcher::Config::default;

        let state = self.clone();
        let wake = move |change: Change<MachineDeployment>| {
            if let (Some(gone), None) = (&change.old, &change.new) {
                let uid = gone.metadata.uid.as_deref().unwrap_or_default();
                state.no_longer_rejected(uid);
                lock(&state.told_of_finalizer).remove(uid);
            }
            for md in [change.old, change.new].into_iter().flatten() {
                state.queue.add(view::claimed(&md));
            }
        };
        let api: Api<DeserializeGuard<MachineDeployment>> = Api::all(worker.client.clone());
        let cache = self.machine_deployments.clone();
        let watched = worker.watched("machinedeployments");
        watch::spawn(context, watched, api, all(), cache, |md| Some(view::trim(md)), wake);

        let queue = self.queue.clone();
        let wake = move |change: Change<ConfigView>| {
            if let Some(name) = change.key.split_once('/').map(|(_, name)| name.to_owned()) {
                queue.add(name);
            }
        };
        let api: Api<DeserializeGuard<OperatingSystemConfig>> =
            Api::namespaced(management.client.clone(), &context.args.namespace);
        let cache = self.configs.clone();
        watch::spawn(
            context,
            management.watched("operatingsystemconfigs"),
            api,
            all(),
            cache,
            |config| Some(ConfigView::of(config)),
            wake,
        );

        for (namespace, cache) in &self.profiles {
            let state = self.clone();
            let wake = move |change: Change<ProfileView>| state.wake_users_of(&change.key);
            let api: Api<DeserializeGuard<OperatingSystemProfile>> =
                Api::namespaced(management.client.clone(), namespace);
            let cache = cache.clone();
            watch::spawn(
                context,
                management.watched("operatingsystemprofiles"),
                api,
                all(),
                cache,
                |osp| Some(ProfileView::of(osp)),
                wake,
            );
        }

        let state = self.clone();
        let wake = move |_: Change<Discovered>| state.wake_all();
        let api: Api<DeserializeGuard<ConfigMap>> = Api::namespaced(worker.client.clone(), "kube-public");
        let (named, cache) = (all().fields("metadata.name=cluster-info"), self.cluster_info.clone());
        watch::spawn(
            context,
            worker.watched("cluster-info"),
            api,
            named,
            cache,
            |map| Some(Discovered::from_cluster_info(&map)),
            wake,
        );

        let state = self.clone();
        let wake = move |_: Change<Discovered>| state.wake_all();
        let api: Api<DeserializeGuard<EndpointSlice>> = Api::namespaced(worker.client.clone(), "default");
        let (named, cache) =
            (all().labels("kubernetes.io/service-name=kubernetes"), self.endpoint_slices.clone());
        watch::spawn(
            context,
            worker.watched("endpointslices"),
            api,
            named,
            cache,
            |s| Some(Discovered::from_endpoint_slice(&s)),
            wake,
        );

        let state = self.clone();
        settings::on_change(context, &self.settings, move || state.wake_all());

        // A new kubeconfig may bring a new CA.
        let (state, mut changes) = (self.clone(), worker.changes());
        let shutdown = context.shutdown.clone();
        tokio::spawn(async move {
            while let Some(Ok(())) = shutdown.run_until_cancelled(changes.changed()).await {
                state.wake_all();
            }
        });
    }

    fn wake_all(&self) {
        self.wake(|_| true);
    }

    /// Asks for a reconcile of every pool whose MachineDeployment is one of these.
    pub fn wake(&self, these: impl Fn(&MachineDeployment) -> bool) {
        for md in self.machine_deployments.select(these) {
            self.queue.add(view::claimed(&md));
        }
    }

    /// Asks for a reconcile of every pool that uses the profile with this key.
    pub fn wake_users_of(&self, profile: &str) {
        self.wake(|md| {
            view::wanted_profile(md, &self.context.args.namespace)
                .is_some_and(|(namespace, name)| profile == format!("{namespace}/{name}"))
        });
    }
}

impl Shared<String> for State {
    fn known(&self) -> Vec<String> {
        let claimed = self.machine_deployments.groups();
        let configs = self.configs.select(|_| true);
        let standing = configs.iter().filter_map(|config| config.metadata.name.clone());
        claimed.into_iter().chain(standing).collect::<BTreeSet<String>>().into_iter().collect()
    }

    fn released(&self, name: &String) {
        self.forget(name);
        self.strangers.note(name, None);
        for md in self.machine_deployments.group(name) {
            self.no_longer_rejected(md.metadata.uid.as_deref().unwrap_or_default());
        }
    }
}

impl Inner {
    /// OperatingSystemConfigs.
    pub fn config_api(&self) -> Api<OperatingSystemConfig> {
        Api::namespaced(self.context.management.client.clone(), &self.context.args.namespace)
    }

    /// Key of an OperatingSystemConfig in the cache.
    pub fn config_key(&self, name: &str) -> String {
        format!("{}/{name}", self.context.args.namespace)
    }

    /// Records what the server returned for a write of ours.
    pub fn wrote(&self, config: OperatingSystemConfig) -> ConfigView {
        let (key, version) =
            (watch::key(&config.metadata), osm_runtime::cache::Version::of(&config.metadata));
        let view = ConfigView::of(config);
        let change = self.configs.wrote(&key, version, view.clone());
        // What others wrote in the meantime came back with our own write.
        if let Some(Change { old, new: Some(new), .. }) = change
            && old.is_none_or(|old| old.of_others() != new.of_others())
            && let Some(name) = new.metadata.name.clone()
        {
            self.queue.add(name);
        }
        view
    }

    /// Where nodes find the API server.
    pub fn endpoint(&self, settings: &osm_api::Settings) -> Option<osm_render::ClusterEndpoint> {
        let mut sources: Vec<Discovered> = Vec::new();
        for cache in [&self.cluster_info, &self.endpoint_slices] {
            let mut found: Vec<Discovered> =
                cache.select(|_| true).iter().map(|found| (**found).clone()).collect();
            // The same choice every time.
            found.sort();
            sources.extend(found);
        }
        // While an API server restarts, its EndpointSlice is empty: what was known is still true.
        let mut known = lock(&self.known_endpoints);
        if sources.iter().any(|source| source.api_server.is_some()) {
            known.clone_from(&sources);
        }
        let own_ca = self.context.worker.config().root_cert.as_deref().and_then(endpoint::pem);
        endpoint::choose(settings, &known, own_ca.as_deref())
    }

    /// The compiled templates of an accepted profile; parsing is nearly all of the cost of rendering.
    pub fn compiled(&self, accepted: &AcceptedProfile) -> Result<Arc<Profile>, ProfileError> {
        let mut compiled = lock(&self.compiled);
        if let Some(profile) = compiled.get(&accepted.digest) {
            return profile.clone();
        }
        let in_use =
            self.profiles.values().flat_map(|cache| cache.select(|profile| profile.accepted.is_some()));
        let in_use: Vec<Arc<ProfileView>> = in_use.collect();
        let digests: Vec<&str> = in_use
            .iter()
            .filter_map(|profile| profile.accepted.as_ref())
            .map(|a| a.digest.as_str())
            .collect();
        compiled.retain(|digest, _| digests.contains(&digest.as_str()));
        let profile = osm_render::compile(accepted).map(Arc::new);
        compiled.insert(accepted.digest.clone(), profile.clone());
        profile
    }

    /// Since when a new revision of this pool waits for the verdict on its profile.
    pub fn waiting_since(&self, name: &str, revision: &str, now: Timestamp) -> Timestamp {
        let mut waiting = lock(&self.waiting);
        match waiting.get(name) {
            Some((for_revision, since)) if for_revision == revision => *since,
            _ => {
                waiting.insert(name.to_owned(), (revision.to_owned(), now));
                now
            }
        }
    }

    /// When the API server was last asked for the profile with this key; held while it is being asked.
    pub fn last_asked(&self, key: &str) -> LastAsked {
        let mut asked = lock(&self.asked);
        if asked.len() > REMEMBERED {
            asked.clear();
        }
        asked.entry(key.to_owned()).or_default().clone()
    }

    /// The pool no longer waits.
    pub fn stop_waiting(&self, name: &str) {
        lock(&self.waiting).remove(name);
    }

    /// A MachineDeployment that had no config of its own has one now, or is gone.
    pub fn no_longer_rejected(&self, uid: &str) {
        if lock(&self.rejected).remove(uid).is_some() {
            self.census.forget(uid, condition::RENDERED);
        }
    }

    /// A config and its pool are gone, or another replica's.
    pub fn forget(&self, name: &str) {
        self.count(name, None);
        self.sizes.note(name, None);
        self.stop_waiting(name);
    }

    /// Counts a config under its condition, or no longer.
    pub fn count(&self, name: &str, verdict: Option<&condition::Verdict>) {
        match verdict {
            Some(verdict) => self.census.count(name, verdict.type_, verdict.status, verdict.reason),
            None => self.census.forget(name, condition::RENDERED),
        }
    }
}

/// A lock whose holder panicked is still good: nothing here is left half done.
pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
