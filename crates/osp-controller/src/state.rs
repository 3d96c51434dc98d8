//! The watches of this controller, and which change adds which profile to the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::{Api, ResourceExt};
use osm_api::condition::ACCEPTED;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec};
use osm_runtime::cache::{Cache, Version};
use osm_runtime::metrics::ConditionGauge;
use osm_runtime::queue::Queue;
use osm_runtime::runner::Shared;
use osm_runtime::watch::{self, Watch};
use osm_runtime::{Cluster, Process, settings_watch};

use crate::validate::Validator;

/// What all reconciles share. Clones are cheap.
#[derive(Clone)]
pub struct State(Arc<Inner>);

impl std::ops::Deref for State {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

#[allow(missing_docs)]
pub struct Inner {
    pub process: Arc<Process>,
    pub cluster: Cluster,
    /// The built-in profiles by name.
    pub defaults: Vec<(String, OperatingSystemProfileSpec)>,
    /// Keys `namespace/name` of the profiles to reconcile.
    pub queue: Arc<Queue<String>>,
    /// Profiles by namespace. They are cached whole, because the spec is validated and the last accepted copy in the status is kept.
    pub profiles: BTreeMap<String, Arc<Cache<OperatingSystemProfile>>>,
    pub conditions: Arc<ConditionGauge>,
    pub validator: Validator,
}

impl State {
    /// Starts the watches.
    pub fn start(process: &Arc<Process>, cluster: &Cluster) -> Self {
        let namespaces = cluster.installation.namespaces_of_profiles().into_iter();
        let profiles = namespaces
            .map(|namespace| (namespace.to_owned(), Arc::default()))
            .collect();
        let state = Self(Arc::new(Inner {
            process: process.clone(),
            cluster: cluster.clone(),
            defaults: osm_render::defaults(),
            queue: Arc::new(Queue::new(&process.environment)),
            profiles,
            conditions: ConditionGauge::new(&process.metrics),
            validator: Validator::default(),
        }));
        state.watch();
        state
    }

    fn watch(&self) {
        let cluster = &self.cluster;
        for (namespace, cache) in &self.profiles {
            let queue = self.queue.clone();
            Watch::each_namespace(&cluster.management, namespace, "operatingsystemprofiles")
                .project(|profile| Some(trim(profile)))
                .into_cache(cache)
                .on_change(move |change| queue.add(change.key))
                .spawn(cluster);
        }

        let state = self.clone();
        settings_watch::on_change(cluster, move || state.enqueue_defaults());
    }

    fn enqueue_defaults(&self) {
        self.keys_of_defaults().for_each(|key| self.queue.add(key));
    }

    fn keys_of_defaults(&self) -> impl Iterator<Item = String> {
        self.defaults
            .iter()
            .map(|(name, _)| format!("{}/{name}", self.cluster.installation.namespace))
    }
}

impl Shared<String> for State {
    fn known(&self) -> Vec<String> {
        let profiles = self.profiles.values().flat_map(|cache| cache.select(|_| true));
        let stored = profiles.map(|profile| watch::key(&profile.metadata));
        stored
            .chain(self.keys_of_defaults())
            .collect::<BTreeSet<String>>()
            .into_iter()
            .collect()
    }

    fn released(&self, key: &String) {
        self.conditions.forget(key, ACCEPTED);
        self.validator.forget(key);
    }
}

impl Inner {
    /// OperatingSystemProfiles of a namespace.
    pub fn profile_api(&self, namespace: &str) -> Api<OperatingSystemProfile> {
        Api::namespaced(self.cluster.management.client.clone(), namespace)
    }

    /// The profile with this key, `namespace/name`.
    pub fn profile(&self, key: &str) -> Option<Arc<OperatingSystemProfile>> {
        let (namespace, _) = key.split_once('/')?;
        self.profiles.get(namespace)?.get(key)
    }

    /// Records what the API server returned for a write of this service.
    pub fn wrote(&self, profile: OperatingSystemProfile) {
        let (key, version) = (watch::key(&profile.metadata), Version::of(&profile.metadata));
        if let Some(cache) = profile
            .namespace()
            .and_then(|namespace| self.profiles.get(&namespace))
        {
            // The result may contain a change of another client, which the watch will not show again.
            let generation = profile.metadata.generation;
            let change = cache.wrote(&key, version, trim(profile));
            let old = change.and_then(|change| change.old);
            if old.is_none_or(|old| old.metadata.generation != generation) {
                self.queue.add(key);
            }
        }
    }
}

/// Drops what is never read. Annotations stay, because restoring a default profile writes the metadata back.
fn trim(mut profile: OperatingSystemProfile) -> OperatingSystemProfile {
    profile.metadata.managed_fields = None;
    profile
}
