//! What this controller knows: its watches, and what wakes which profile.

use std::sync::Arc;

use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec};
use osm_runtime::cache::{Cache, Change, Version};
use osm_runtime::metrics::Census;
use osm_runtime::queue::Queue;
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
    /// Names of profiles that want a reconcile.
    pub queue: Arc<Queue<String>>,
    /// Profiles of the namespace, whole: what is judged, and what the status must go on saying.
    pub profiles: Arc<Cache<OperatingSystemProfile>>,
    /// Profiles by condition.
    pub census: Arc<Census>,
    /// Judges profiles.
    pub judge: Judge,
}

impl State {
    /// Starts the watches.
    pub fn start(context: &Context, settings: settings::Receiver) -> Self {
        let state = Self(Arc::new(Inner {
            context: context.clone(),
            settings,
            defaults: osm_render::defaults(),
            queue: Arc::default(),
            profiles: Arc::default(),
            census: Census::new(&context.metrics),
            judge: Judge::default(),
        }));
        state.watch();
        state
    }

    fn watch(&self) {
        let context = &self.context;
        let queue = self.queue.clone();
        let wake = move |change: Change<OperatingSystemProfile>| {
            if let Some((_, name)) = change.key.split_once('/') {
                queue.add(name.to_owned());
            }
        };
        let api: Api<DeserializeGuard<OperatingSystemProfile>> =
            Api::namespaced(context.client.clone(), &context.args.namespace);
        let (all, cache) = (watcher::Config::default(), self.profiles.clone());
        watch::spawn(
            context,
            "operatingsystemprofiles",
            api,
            all,
            cache,
            |profile| Some(trim(profile)),
            wake,
        );

        let (state, mut settings) = (self.clone(), self.settings.clone());
        let shutdown = context.shutdown.clone();
        tokio::spawn(async move {
            while let Some(Ok(())) = shutdown.run_until_cancelled(settings.changed()).await {
                state.wake_defaults();
            }
        });
    }

    fn wake_defaults(&self) {
        for (name, _) in &self.defaults {
            self.queue.add(name.clone());
        }
    }
}

impl Inner {
    /// OperatingSystemProfiles.
    pub fn profile_api(&self) -> Api<OperatingSystemProfile> {
        Api::namespaced(self.context.client.clone(), &self.context.args.namespace)
    }

    /// Key of a profile in the cache.
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.context.args.namespace)
    }

    /// Records what the server returned for a write of ours.
    pub fn wrote(&self, profile: OperatingSystemProfile) {
        let (key, version) = (watch::key(&profile.metadata), Version::of(&profile.metadata));
        self.profiles.wrote(&key, version, trim(profile));
    }
}

/// Drops what nobody here reads. Annotations stay: metadata is written back when a default profile is restored.
fn trim(mut profile: OperatingSystemProfile) -> OperatingSystemProfile {
    profile.metadata.managed_fields = None;
    profile
}
