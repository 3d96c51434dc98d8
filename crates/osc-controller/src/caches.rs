//! What the watches of this controller show, reduced to what decisions need.

use std::collections::BTreeMap;
use std::sync::Arc;

use osm_api::cluster_endpoint::Discovered;
use osm_runtime::cache::Cache;
use parking_lot::Mutex;

use crate::view::{ConfigView, PoolView, ProfileView, SettingsDocument};

pub struct Caches {
    /// MachineDeployments of the whole cluster, grouped by the name of the config that they claim.
    pub pools: Arc<Cache<PoolView>>,
    pub profiles: BTreeMap<String, Arc<Cache<ProfileView>>>,
    /// OperatingSystemConfigs of the installation's namespace.
    pub configs: Arc<Cache<ConfigView>>,
    /// Settings documents of the ConfigMaps that pools name, by namespace. A namespace is watched from the first time that a pool in it names one.
    pub pool_settings: Mutex<BTreeMap<String, Arc<Cache<SettingsDocument>>>>,
    pub cluster_info: Arc<Cache<Discovered>>,
    pub endpoint_slices: Arc<Cache<Discovered>>,
}

impl Caches {
    /// Empty caches for profiles of these namespaces.
    pub fn new(namespaces: &[&str]) -> Self {
        let profiles = namespaces
            .iter()
            .map(|namespace| ((*namespace).to_owned(), Arc::default()));
        let pools = Cache::grouped(|pool: &PoolView| Some(pool.pool_ref.config_name()));
        Self {
            pools: Arc::new(pools),
            profiles: profiles.collect(),
            configs: Arc::default(),
            pool_settings: Mutex::default(),
            cluster_info: Arc::default(),
            endpoint_slices: Arc::default(),
        }
    }

    /// The configs whose content has a record of the API server's address.
    pub fn with_api_server(&self) -> Vec<Arc<ConfigView>> {
        self.configs.select(|config| config.api_server().is_some())
    }

    /// Where the cluster says that its API server is, `kube-public/cluster-info` first. The order is always the same.
    pub fn discovered(&self) -> Vec<Discovered> {
        let sources = [&self.cluster_info, &self.endpoint_slices].into_iter();
        sources
            .flat_map(|cache| {
                let mut found: Vec<Discovered> = cache
                    .select(|_| true)
                    .iter()
                    .map(|found| (**found).clone())
                    .collect();
                found.sort();
                found
            })
            .collect()
    }
}
