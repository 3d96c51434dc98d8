//! Holds what all clusters that this process serves share: what is in the management cluster, and metrics.

use std::sync::Arc;

use osm_runtime::Process;
use osm_runtime::cache::Cache;

use crate::io::reporting::PublishMetrics;
use crate::model::view::ConfigView;

pub struct Shared {
    /// OperatingSystemConfigs, grouped by namespace.
    pub configs: Arc<Cache<ConfigView>>,
    pub metrics: PublishMetrics,
}

impl Shared {
    /// # Errors
    /// Metrics whose names are taken.
    pub fn new(process: &Process) -> Result<Arc<Self>, prometheus::Error> {
        let namespace_of = |config: &ConfigView| Some(config.namespace.clone());
        Ok(Arc::new(Self {
            configs: Arc::new(Cache::grouped(namespace_of)),
            metrics: PublishMetrics::new(&process.metrics)?,
        }))
    }
}
