//! Holds what all clusters that this process serves share: what is in the management cluster, and a metric.

use std::collections::BTreeMap;
use std::sync::Arc;

use osm_api::rbac::Installation;
use osm_runtime::Process;
use osm_runtime::cache::Cache;
use osm_runtime::cluster_gauge::ClusterGauge;

use crate::metrics;
use crate::view::{ConfigView, ProfileView};

pub struct Shared {
    /// OperatingSystemConfigs, grouped by namespace.
    pub configs: Arc<Cache<ConfigView>>,
    /// Profiles by namespace.
    pub profiles: BTreeMap<String, Arc<Cache<ProfileView>>>,
    pub largest_user_data: Arc<ClusterGauge>,
}

impl Shared {
    /// # Errors
    /// Metrics whose names are taken.
    pub fn new(process: &Process, installation: &Installation) -> Result<Arc<Self>, prometheus::Error> {
        let profiles = installation.namespaces_to_render_from().into_iter();
        let namespace_of = |config: &ConfigView| config.metadata.namespace.clone();
        Ok(Arc::new(Self {
            configs: Arc::new(Cache::grouped(namespace_of)),
            profiles: profiles
                .map(|namespace| (namespace.to_owned(), Arc::default()))
                .collect(),
            largest_user_data: metrics::largest_user_data(&process.metrics)?,
        }))
    }
}
