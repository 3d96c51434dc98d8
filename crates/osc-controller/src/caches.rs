//! Caches what the watches of one worker cluster show, reduced to what decisions need.

use std::collections::BTreeMap;
use std::sync::Arc;

use osm_api::cluster_endpoint::Discovered;
use osm_api::rbac::Installation;
use osm_runtime::cache::Cache;

use crate::view::PoolView;

pub struct Caches {
    /// MachineDeployments of the whole cluster, grouped by the name of the config that they claim.
    pub pools: Arc<Cache<PoolView>>,
    /// ConfigMaps with settings of pools, by namespace. Their text is not kept: anyone who may write
    /// ConfigMaps there decides how long it is.
    pub pool_settings: BTreeMap<String, Arc<Cache<()>>>,
    pub cluster_info: Arc<Cache<Discovered>>,
    pub endpoint_slices: Arc<Cache<Discovered>>,
}

impl Caches {
    pub fn new(installation: &Installation) -> Self {
        let pool_settings = installation.pool_settings_namespaces.iter();
        let pools = Cache::grouped(|pool: &PoolView| Some(pool.pool_ref.config_name()));
        Self {
            pools: Arc::new(pools),
            pool_settings: pool_settings
                .map(|namespace| (namespace.clone(), Arc::default()))
                .collect(),
            cluster_info: Arc::default(),
            endpoint_slices: Arc::default(),
        }
    }

    /// Where the cluster says that its API server is, `kube-public/cluster-info` first. The order is always
    /// the same.
    pub fn discovered(&self) -> Vec<Discovered> {
        let mut all = Vec::new();
        for cache in [&self.cluster_info, &self.endpoint_slices] {
            let found = cache.select(|_| true);
            let mut found: Vec<Discovered> = found.iter().map(|found| (**found).clone()).collect();
            found.sort();
            all.append(&mut found);
        }
        all
    }
}
