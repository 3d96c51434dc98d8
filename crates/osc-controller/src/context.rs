//! Holds what all reconciles of one cluster share: the cluster, the queue, caches, memory and metrics.

use std::collections::BTreeSet;
use std::sync::Arc;

use osm_api::cluster_endpoint::{self, Choice};
use osm_api::condition;
use osm_api::config::{OperatingSystemConfig, RequestedProfile};
use osm_api::{Reason, Settings};
use osm_runtime::Api;
use osm_runtime::cache::{Cache, Change, Version};
use osm_runtime::foreign_cluster::ForeignCluster;
use osm_runtime::metrics::ConditionGauge;
use osm_runtime::queue::Queue;
use osm_runtime::request::failed;
use osm_runtime::runner::Keys;
use osm_runtime::{Cluster, Error, read, watch};
use parking_lot::Mutex;

use crate::caches::Caches;
use crate::memory::Memory;
use crate::metrics::Sizes;
use crate::shared::Shared;
use crate::view::{ConfigView, PoolView, ProfileView};

#[derive(Clone)]
pub struct Context(Arc<Inner>);

impl std::ops::Deref for Context {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

pub struct Inner {
    /// What it shares with other clusters.
    pub shared: Arc<Shared>,
    pub cluster: Cluster,
    /// Names of OperatingSystemConfigs that need a reconcile.
    pub queue: Arc<Queue<String>>,
    pub caches: Caches,
    pub memory: Memory,
    pub conditions: Arc<ConditionGauge>,
    pub sizes: Sizes,
    pub foreign_cluster: ForeignCluster,
    /// What was started once something needed it.
    started: Mutex<BTreeSet<String>>,
}

impl Context {
    pub fn new(shared: &Arc<Shared>, cluster: &Cluster) -> Self {
        let process = &cluster.process;
        Self(Arc::new(Inner {
            shared: shared.clone(),
            cluster: cluster.clone(),
            queue: Arc::new(Queue::new(&process.environment)),
            caches: Caches::new(&cluster.installation),
            memory: Memory::default(),
            conditions: ConditionGauge::new(&process.metrics),
            sizes: Sizes::new(shared.largest_user_data.part()),
            foreign_cluster: ForeignCluster::new(cluster),
            started: Mutex::default(),
        }))
    }

    /// Whether user data of any pool is published.
    pub fn has_published(&self) -> bool {
        let mut configs = self.configs().into_iter();
        configs.any(|config| config.status.published.is_some())
    }
}

impl Keys<String> for Context {
    fn known(&self) -> Vec<String> {
        let mut names = self.caches.pools.groups();
        let configs = self.configs();
        names.extend(configs.iter().filter_map(|config| config.metadata.name.clone()));
        names.sort();
        names.dedup();
        names
    }

    fn released(&self, name: &String) {
        self.forget(name);
        self.foreign_cluster.note(name, None);
        for pool in self.caches.pools.group(name) {
            self.no_longer_rejected(&pool.pool_ref.uid);
        }
    }
}

impl Inner {
    pub fn config_api(&self) -> Api<OperatingSystemConfig> {
        Api::namespaced(self.cluster.management.client.clone(), self.cluster.namespace())
    }

    /// Whether this, which something needs, is not started yet. The caller starts it.
    pub fn is_first_to_start(&self, what: &str) -> bool {
        self.started.lock().insert(what.to_owned())
    }

    /// The profiles of this namespace, if pools of this cluster may use them.
    pub fn profiles_in(&self, namespace: &str) -> Option<&Arc<Cache<ProfileView>>> {
        let allowed = self.cluster.installation.namespaces_to_render_from();
        let profiles = self.shared.profiles.get(namespace);
        profiles.filter(|_| allowed.contains(&namespace))
    }

    /// The OperatingSystemConfigs of this cluster.
    pub fn configs(&self) -> Vec<Arc<ConfigView>> {
        self.shared.configs.group(self.cluster.namespace())
    }

    /// Key of an OperatingSystemConfig in the cache.
    pub fn config_key(&self, name: &str) -> String {
        format!("{}/{name}", self.cluster.namespace())
    }

    /// Records what the API server returned for a write of this controller.
    pub fn wrote(&self, config: OperatingSystemConfig) -> ConfigView {
        let version = Version::of(&config.metadata);
        self.saw(version, ConfigView::of(config))
    }

    /// Records what the API server returned for a read of this controller.
    pub fn saw(&self, version: Version, view: ConfigView) -> ConfigView {
        let key = watch::key(&view.metadata);
        let change = self.shared.configs.wrote(&key, version, view.clone());
        // The answer can hold what others wrote in the meantime, and the watch does not report it again.
        if let Some(Change {
            old, new: Some(new), ..
        }) = change
            && old.is_none_or(|old| old.written_by_others() != new.written_by_others())
            && let Some(name) = new.metadata.name.clone()
        {
            self.queue.add(name);
        }
        view
    }

    /// Reads an OperatingSystemConfig from the API server; `None`: there is none.
    ///
    /// # Errors
    /// The request, if it failed.
    pub async fn read_config(&self, name: &str) -> Result<Option<ConfigView>, Error> {
        let api = self.config_api();
        let found = read::get(
            &api,
            name,
            |config| (Version::of(&config.metadata), ConfigView::of(config)),
            |config| (Version::of(&config.metadata), ConfigView::unreadable(config)),
        );
        let found = found.await.map_err(failed("the OperatingSystemConfig"))?;
        Ok(found.map(|(version, view)| self.saw(version, view)))
    }

    /// Records that this controller deleted an OperatingSystemConfig.
    pub fn deleted(&self, name: &str, uid: &str) {
        self.shared.configs.deleted(&self.config_key(name), uid);
        self.queue.add(name.to_owned());
        self.wake_for_room();
    }

    /// The largest number of configs, if there are as many. Reconciles at the same moment can exceed it by
    /// what they create.
    pub fn full_at(&self) -> Option<u32> {
        let settings = self.cluster.settings.borrow();
        let limits = settings.as_ref().map(|current| current.settings.limits.clone());
        let most = limits.unwrap_or_default().machine_deployments;
        let configs =
            u32::try_from(self.shared.configs.group_len(self.cluster.namespace())).unwrap_or(u32::MAX);
        (configs >= most).then_some(most)
    }

    /// A config is gone. Requeues the pools that have none because there were too many.
    pub fn wake_for_room(&self) {
        let waiting = self.memory.rejected_for(Reason::TooManyMachineDeployments);
        if !waiting.is_empty() && self.full_at().is_none() {
            self.wake(|pool| waiting.contains(&pool.pool_ref.uid));
        }
    }

    /// Requeues every pool that `these` selects.
    pub fn wake(&self, these: impl Fn(&PoolView) -> bool) {
        for pool in self.caches.pools.select(these) {
            self.queue.add(pool.pool_ref.config_name());
        }
    }

    /// Requeues every pool that uses the profile with this key.
    pub fn wake_users_of(&self, profile: &str) {
        let is_it = |RequestedProfile { namespace, name }| profile == format!("{namespace}/{name}");
        self.wake(|pool| {
            let requested = pool.requested_profiles(&self.cluster.installation);
            requested.into_iter().any(is_it)
        });
    }

    /// Where the nodes of a pool find the API server. A pool without a record joins the others, so that all
    /// pools agree.
    pub fn endpoint(&self, settings: &Settings, config: Option<&ConfigView>) -> Option<Choice> {
        let others;
        let in_use = match config.and_then(ConfigView::api_server) {
            Some(recorded) => vec![recorded],
            None => {
                others = self.configs();
                cluster_endpoint::by_frequency(others.iter().filter_map(|config| config.api_server()))
            }
        };
        let own_ca = self
            .cluster
            .worker
            .config()
            .root_cert
            .as_deref()
            .and_then(cluster_endpoint::pem);
        cluster_endpoint::choose(settings, &self.caches.discovered(), &in_use, own_ca.as_deref())
    }

    /// A MachineDeployment that had no config of its own has one now, or is gone.
    pub fn no_longer_rejected(&self, uid: &str) {
        if self.memory.accept(uid) {
            self.conditions.forget(uid, condition::RENDERED);
        }
    }

    /// A config and its pool are gone, or another replica owns them.
    pub fn forget(&self, name: &str) {
        self.conditions.forget(name, condition::RENDERED);
        self.sizes.note(name, None);
    }
}
