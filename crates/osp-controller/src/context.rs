//! The watches of this controller, and which change adds which profile to the queue.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::ResourceExt;
use osm_api::condition::ACCEPTED;
use osm_api::{CustomOperatingSystemProfile, OperatingSystemProfile, OperatingSystemProfileSpec};
use osm_runtime::Api;
use osm_runtime::cache::{Cache, Version};
use osm_runtime::metrics::ConditionGauge;
use osm_runtime::queue::Queue;
use osm_runtime::runner::Keys;
use osm_runtime::watch::{self, Watch};
use osm_runtime::{Cluster, settings_watch};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::custom_profile::{CustomProfile, Problem};
use crate::default_profile;
use crate::stored_profile::StoredProfile;
use crate::validate::Validator;

/// Value of the metric label `condition` for custom profiles. They have no condition, because they have no
/// status.
pub const COPIED: &str = "Copied";

/// Profiles of one namespace that are kept. `limits.machineDeployments` does not bound them, because their
/// number does not depend on that of pools.
const MAX_PROFILES: usize = 10_000;

/// Profiles that are validated at a time, besides one of the webhook. Each can take as much memory and time
/// as a profile may take.
const VALIDATIONS: usize = 2;

/// What all reconciles share. Clones are cheap.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

impl std::ops::Deref for Context {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

#[allow(missing_docs)]
pub struct Inner {
    pub cluster: Cluster,
    /// The built-in profiles by name.
    pub defaults: Vec<(String, OperatingSystemProfileSpec)>,
    /// Keys `namespace/name` of the profiles to reconcile.
    pub queue: Arc<Queue<String>>,
    /// Profiles by namespace, grouped by the name that they extend. They are cached whole, because the spec
    /// is validated and the last accepted copy in the status is kept.
    pub profiles: BTreeMap<String, Arc<Cache<StoredProfile>>>,
    /// CustomOperatingSystemProfiles by namespace; empty unless they are copied.
    pub custom_profiles: BTreeMap<String, Arc<Cache<CustomProfile>>>,
    /// The problem of each custom profile that was last reported, by key: a custom profile has no status that
    /// could hold it.
    pub problems: Mutex<HashMap<String, Problem>>,
    /// When each default profile was last restored, by key.
    pub restored: Mutex<HashMap<String, Instant>>,
    pub conditions: Arc<ConditionGauge>,
    pub validator: Validator,
}

impl Context {
    pub fn new(cluster: &Cluster) -> Self {
        let process = &cluster.process;
        let namespaces = cluster.installation.namespaces_of_profiles();
        let custom = namespaces.iter().filter(|_| cluster.installation.custom_profiles);
        let custom_profiles = custom
            .map(|namespace| ((*namespace).to_owned(), Arc::default()))
            .collect();
        let profiles = namespaces
            .iter()
            .map(|namespace| {
                let cache = Cache::grouped(|profile: &StoredProfile| profile.spec.extends.clone());
                ((*namespace).to_owned(), Arc::new(cache))
            })
            .collect();
        Self(Arc::new(Inner {
            cluster: cluster.clone(),
            defaults: osm_render::defaults(),
            queue: Arc::new(Queue::new(&process.environment)),
            profiles,
            custom_profiles,
            problems: Mutex::default(),
            restored: Mutex::default(),
            conditions: ConditionGauge::new(&process.metrics),
            validator: Validator::new(VALIDATIONS),
        }))
    }

    pub fn watch(&self) {
        let cluster = &self.cluster;
        for (namespace, cache) in &self.profiles {
            let context = self.clone();
            Watch::namespaced(&cluster.management, namespace, "operatingsystemprofiles")
                .at_most(MAX_PROFILES)
                .large()
                .project(|profile: OperatingSystemProfile| Some(StoredProfile::from(profile)))
                .unreadable(|profile| Some(StoredProfile::unreadable(profile)))
                .into_cache(cache)
                .on_change(move |change| {
                    context.enqueue_extending(&change.key);
                    context.queue.add(change.key);
                })
                // A namespace that can't be read holds up only its own profiles.
                .awaited(namespace == cluster.namespace())
                .spawn(cluster);
        }

        for (namespace, cache) in &self.custom_profiles {
            let context = self.clone();
            // Other profiles are reconciled while KKP's definition is missing, so no reconcile waits for this
            // watch.
            Watch::namespaced(&cluster.management, namespace, "customoperatingsystemprofiles")
                .at_most(MAX_PROFILES)
                .large()
                .project(|object: CustomOperatingSystemProfile| Some(CustomProfile::new(object)))
                .unreadable(|object| Some(CustomProfile::unreadable(object)))
                .into_cache(cache)
                .on_change(move |change| context.queue.add(change.key))
                .awaited(false)
                .spawn(cluster);
        }

        let context = self.clone();
        settings_watch::on_change(cluster, move || context.enqueue_defaults());
    }

    /// The settings decide which default profiles are installed, and so also whether profiles that extend one
    /// wait for it.
    fn enqueue_defaults(&self) {
        for key in self.keys_of_defaults() {
            self.enqueue_extending(&key);
            self.queue.add(key);
        }
    }

    fn keys_of_defaults(&self) -> impl Iterator<Item = String> {
        self.defaults
            .iter()
            .map(|(name, _)| format!("{}/{name}", self.cluster.installation.namespace))
    }
}

impl Keys<String> for Context {
    fn known(&self) -> Vec<String> {
        let profiles = self.profiles.values().flat_map(|cache| cache.select(|_| true));
        let stored = profiles.map(|profile| watch::key(&profile.metadata));
        let custom = self
            .custom_profiles
            .values()
            .flat_map(|cache| cache.select(|_| true));
        stored
            .chain(self.keys_of_defaults())
            .chain(custom.map(|custom| custom.key()))
            .collect::<BTreeSet<String>>()
            .into_iter()
            .collect()
    }

    fn released(&self, key: &String) {
        self.conditions.forget(key, ACCEPTED);
        self.forget_copy(key);
    }
}

impl Inner {
    pub fn profile_api(&self, namespace: &str) -> Api<OperatingSystemProfile> {
        Api::namespaced(self.cluster.management.client.clone(), namespace)
    }

    /// The profile with this key, `namespace/name`, as its watch keeps it.
    pub fn profile(&self, key: &str) -> Option<Arc<StoredProfile>> {
        let (namespace, _) = key.split_once('/')?;
        self.profiles.get(namespace)?.get(key)
    }

    /// Whether all profiles are known that one of this namespace may extend. While a list arrives, a base can
    /// seem not to exist, or be taken for the one of the same name in the namespace of the installation.
    pub fn knows_bases_of(&self, namespace: &str) -> bool {
        let namespaces = [namespace, &self.cluster.installation.namespace];
        let mut profiles = namespaces
            .into_iter()
            .map(|namespace| self.profiles.get(namespace));
        profiles.all(|profiles| profiles.is_some_and(|profiles| profiles.is_listed()))
    }

    /// The custom profile with this key, `namespace/name`.
    pub fn custom_profile(&self, key: &str) -> Option<Arc<CustomProfile>> {
        let (namespace, _) = key.split_once('/')?;
        self.custom_profiles.get(namespace)?.get(key)
    }

    /// Drops what is counted and remembered for the copy with this key.
    pub fn forget_copy(&self, key: &str) {
        self.conditions.forget(key, COPIED);
        self.problems.lock().remove(key);
    }

    /// Whether there is a default profile of this name, enabled or not.
    pub fn has_default(&self, name: &str) -> bool {
        self.defaults.iter().any(|(default, _)| default == name)
    }

    /// The default profile of this name, unless the settings disable it or are not known yet. The upstream
    /// OSM has defaults of the same names, and both would replace each other's for ever.
    pub fn default_profile(&self, name: &str) -> Option<OperatingSystemProfileSpec> {
        match self.cluster.upstream_osm.problem() {
            Some(_) => None,
            None => self.enabled_default(name),
        }
    }

    fn enabled_default(&self, name: &str) -> Option<OperatingSystemProfileSpec> {
        let settings = self.cluster.settings.borrow();
        let current = settings.as_ref()?;
        default_profile::enabled(&self.defaults, name, &current.settings.default_profiles)
    }

    /// Whether this service installs a default profile of this name, or may do so once it knows the settings
    /// or the upstream OSM has stopped.
    pub fn may_install(&self, name: &str) -> bool {
        let settings_are_known = self.cluster.settings.borrow().is_some();
        self.enabled_default(name).is_some() || (!settings_are_known && self.has_default(name))
    }

    /// Queues the profiles that may extend the one with this key. Those that extend them follow when their
    /// status changes.
    fn enqueue_extending(&self, key: &str) {
        let Some((namespace, name)) = key.split_once('/') else {
            return;
        };
        let is_of_installation = namespace == self.cluster.installation.namespace;
        for (of, cache) in &self.profiles {
            if is_of_installation || of == namespace {
                for extending in cache.group(name) {
                    self.queue.add(watch::key(&extending.metadata));
                }
            }
        }
    }

    /// Records what the API server returned for a write of this service.
    pub fn wrote(&self, profile: OperatingSystemProfile) {
        self.saw(profile.into());
    }

    /// Records what the API server returned for a write or a read of this service.
    pub fn saw(&self, profile: StoredProfile) {
        let (key, version) = (watch::key(&profile.metadata), Version::of(&profile.metadata));
        if let Some(cache) = profile
            .namespace()
            .and_then(|namespace| self.profiles.get(&namespace))
        {
            // The result may contain a change of another client, which the watch will not show again.
            let generation = profile.metadata.generation;
            let change = cache.wrote(&key, version, profile);
            if change.is_some() {
                self.enqueue_extending(&key);
            }
            let old = change.and_then(|change| change.old);
            if old.is_none_or(|old| old.metadata.generation != generation) {
                self.queue.add(key);
            }
        }
    }
}
