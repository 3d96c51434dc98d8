//! What this controller knows: its watches, and what wakes which profile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use osm_api::condition::ACCEPTED;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec};
use osm_runtime::cache::{Cache, Change, Version};
use osm_runtime::metrics::Census;
use osm_runtime::queue::Queue;
use osm_runtime::runner::Shared;
use osm_runtime::{Context, settings, watch};

use crate::judge::Judge;

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
    /// The built-in profiles by name.
    pub defaults: Vec<(String, OperatingSystemProfileSpec)>,
    /// Profiles that want a reconcile, as `namespace/name`.
    pub queue: Arc<Queue<String>>,
    /// Profiles by namespace, whole: what is judged, and what the status must go on saying.
    pub profiles: BTreeMap<String, Arc<Cache<OperatingSystemProfile>>>,
    /// Profiles by condition.
    pub census: Arc<Census>,
    /// Judges profiles.
    pub judge: Judge,
}

impl State {
    /// Starts the watches.
    pub fn start(context: &Context, settings: settings::Receiver) -> Self {
        let namespaces = context.installation.namespaces_of_profiles().into_iter();
        let profiles = namespaces.map(|namespace| (namespace.to_owned(), Arc::default())).collect();
        let state = Self(Arc::new(Inner {
            context: context.clone(),
            settings,
            defaults: osm_render::defaults(),
            queue: Arc::new(Queue::new(&context.surroundings)),
            profiles,
            census: Census::new(&context.metrics),
            judge: Judge::default(),
        }));
        state.watch();
        state
    }

    fn watch(&self) {
        let context = &self.context;
        for (namespace, cache) in &self.profiles {
            let queue = self.queue.clone();
            let wake = move |change: Change<OperatingSystemProfile>| queue.add(change.key);
            let api: Api<DeserializeGuard<OperatingSystemProfile>> =
                Api::namespaced(context.management.client.clone(), namespace);
            let (all, cache) = (watcher::Config::default(), cache.clone());
            let watched = context.management.watched("operatingsystemprofiles");
            watch::spawn(context, watched, api, all, cache, |profile| Some(trim(profile)), wake);
        }

        let state = self.clone();
        settings::on_change(context, &self.settings, move || state.wake_defaults());
    }

    fn wake_defaults(&self) {
        self.keys_of_defaults().for_each(|key| self.queue.add(key));
    }

    fn keys_of_defaults(&self) -> impl Iterator<Item = String> {
        self.defaults.iter().map(|(name, _)| format!("{}/{name}", self.context.args.namespace))
    }
}

impl Shared<String> for State {
    fn known(&self) -> Vec<String> {
        let profiles = self.profiles.values().flat_map(|cache| cache.select(|_| true));
        let stored = profiles.map(|profile| watch::key(&profile.metadata));
        stored.chain(self.keys_of_defaults()).collect::<BTreeSet<String>>().into_iter().collect()
    }

    fn released(&self, key: &String) {
        self.census.forget(key, ACCEPTED);
        self.judge.forget(key);
    }
}

impl Inner {
    /// OperatingSystemProfiles of a namespace.
    pub fn profile_api(&self, namespace: &str) -> Api<OperatingSystemProfile> {
        Api::namespaced(self.context.management.client.clone(), namespace)
    }

    /// The profile with this key, `namespace/name`.
    pub fn profile(&self, key: &str) -> Option<Arc<OperatingSystemProfile>> {
        let (namespace, _) = key.split_once('/')?;
        self.profiles.get(namespace)?.get(key)
    }

    /// Records what the server returned for a write of ours.
    pub fn wrote(&self, profile: OperatingSystemProfile) {
        let (key, version) = (watch::key(&profile.metadata), Version::of(&profile.metadata));
        if let Some(cache) = profile.namespace().and_then(|namespace| self.profiles.get(&namespace)) {
            // What people wrote in the meantime came back with our own write.
            let generation = profile.metadata.generation;
            let change = cache.wrote(&key, version, trim(profile));
            let old = change.and_then(|change| change.old);
            if old.is_none_or(|old| old.metadata.generation != generation) {
                self.queue.add(key);
            }
        }
    }
}

/// Drops what nobody here reads. Annotations stay: metadata is written back when a default profile is restored.
fn trim(mut profile: OperatingSystemProfile) -> OperatingSystemProfile {
    profile.metadata.managed_fields = None;
    profile
}
