//! Holds what all reconciles of one cluster share.

use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::config::OperatingSystemConfig;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_runtime::Api;
use osm_runtime::Cluster;
use osm_runtime::cache::{Change, Version};
use osm_runtime::queue::Queue;
use osm_runtime::runner::Keys;

use crate::io::caches::{Caches, uses_source};
use crate::io::reporting::Reporting;
use crate::io::shared::Shared;
use crate::io::token_probe::TokenProbe;
use crate::model::memory::Memory;
use crate::model::view::ConfigView;

/// Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Parts>);

pub struct Parts {
    /// What it shares with other clusters.
    pub shared: Arc<Shared>,
    pub cluster: Cluster,
    /// Value of the label on everything that is made here.
    pub installation: String,
    pub token_probe: TokenProbe,
    pub caches: Caches,
    pub memory: Memory,
    pub reporting: Reporting,
    /// Names of OperatingSystemConfigs, whether they exist or not.
    pub queue: Arc<Queue<String>>,
}

impl std::ops::Deref for Context {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// The APIs that are used.
impl Parts {
    pub fn configs(&self) -> Api<OperatingSystemConfig> {
        Api::namespaced(
            self.cluster.management.client.clone(),
            &self.cluster.installation.namespace,
        )
    }

    /// The OperatingSystemConfigs of this cluster.
    pub fn config_views(&self) -> Vec<Arc<ConfigView>> {
        self.shared.configs.group(self.cluster.namespace())
    }

    /// Key of an OperatingSystemConfig in its cache.
    pub fn config_key(&self, name: &str) -> String {
        format!("{}/{name}", self.cluster.installation.namespace)
    }

    pub fn secrets(&self) -> Api<Secret> {
        self.in_namespace()
    }

    /// Objects in `cloud-init-settings`.
    pub fn in_namespace<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.worker.client.clone(), CLOUD_INIT_SETTINGS)
    }
}

impl Context {
    pub fn new(shared: &Arc<Shared>, cluster: &Cluster) -> Self {
        Self(Arc::new(Parts {
            shared: shared.clone(),
            cluster: cluster.clone(),
            installation: cluster.installation.id.clone(),
            token_probe: TokenProbe::new(&cluster.worker),
            caches: Caches::default(),
            memory: Memory::default(),
            reporting: Reporting::new(&shared.metrics, cluster),
            queue: Arc::new(Queue::new(&cluster.process.environment)),
        }))
    }

    /// Whether user data of any pool is published.
    pub fn has_published(&self) -> bool {
        let mut configs = self.config_views().into_iter();
        configs.any(|config| config.status.published.is_some())
    }

    /// Requeues every config that `which` selects.
    pub fn wake(&self, which: impl Fn(&ConfigView) -> bool) {
        let configs = self.config_views().into_iter();
        for config in configs.filter(|config| which(config)) {
            self.queue.add(config.name.clone());
        }
    }

    /// A config has changed, or is gone. Ends the watches of objects that it used, and that no other config
    /// uses.
    pub fn end_unused_sources(&self, before: &ConfigView) {
        if before.late_bound_values.iter().any(|late| late.source.is_some()) {
            let configs = self.config_views();
            let is_used = |key: &str| configs.iter().any(|config| uses_source(config, key));
            self.caches.sources.keep(is_used);
        }
    }

    /// The config is gone, or another replica's.
    pub fn forget(&self, config: &str) {
        self.memory.forget(config);
        self.reporting.forget(config);
    }

    /// Records what the API server returned for a write or read of ours.
    pub fn saw_config(&self, config: ConfigView) {
        let metadata = ObjectMeta {
            uid: Some(config.uid.clone()),
            resource_version: Some(config.resource_version.clone()),
            ..ObjectMeta::default()
        };
        let (key, version) = (self.config_key(&config.name), Version::of(&metadata));
        let change = self.shared.configs.wrote(&key, version, config);
        // The watch will not show what osc-controller wrote before our own write.
        let Some(Change {
            old, new: Some(new), ..
        }) = change
        else {
            return;
        };
        if let Some(before) = &old {
            self.end_unused_sources(before);
        }
        if old.is_none_or(|old| old.foreign_fields() != new.foreign_fields()) {
            self.queue.add(new.name.clone());
        }
    }
}

impl Keys<String> for Context {
    /// Names of all configs, with those that are gone and of which objects are left.
    fn known(&self) -> Vec<String> {
        let configs = self.config_views().into_iter();
        let mut names = self.caches.config_names();
        names.extend(configs.map(|config| config.name.clone()));
        names.into_iter().collect()
    }

    fn released(&self, name: &String) {
        self.forget(name);
        self.reporting.foreign_cluster.note(name, None);
    }
}
