//! Connections, and the APIs that are used on them.

use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Secret;
use osm_api::Joining;
use osm_api::config::OperatingSystemConfig;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_runtime::Api;
use osm_runtime::{Cluster, Process};

use crate::io::token_probe::TokenProbe;

pub struct Clients {
    pub process: Arc<Process>,
    pub cluster: Cluster,
    /// Value of the label on everything that is made here.
    pub installation: String,
    pub token_probe: TokenProbe,
}

impl Clients {
    pub fn new(process: &Arc<Process>, cluster: &Cluster, installation: String) -> Self {
        Self {
            process: process.clone(),
            cluster: cluster.clone(),
            installation,
            token_probe: TokenProbe::new(cluster.worker.anonymous.clone()),
        }
    }

    pub fn joining(&self) -> Joining {
        self.cluster.installation.joining
    }

    pub fn configs(&self) -> Api<OperatingSystemConfig> {
        Api::namespaced(
            self.cluster.management.client.clone(),
            &self.cluster.installation.namespace,
        )
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
