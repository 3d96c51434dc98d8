//! Everything that one reconcile decides from.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use osm_api::{PoolRef, names};

use crate::model::existing::ExistingObjects;
use crate::model::memory::PoolMemory;
use crate::model::published_content::Published;
use crate::model::source::{Inputs, SourceError};
use crate::model::view::ConfigView;

#[derive(Clone)]
pub struct Gathered {
    /// The API server's time.
    pub now: Timestamp,
    /// Name of the OperatingSystemConfig.
    pub name: String,
    pub config: Option<Arc<ConfigView>>,
    pub clusters: Clusters,
    /// Whether there are so many Secrets that every pool has to do with few documents.
    pub are_secrets_crowded: bool,
    /// What exists for its pool.
    pub existing: ExistingObjects,
    /// What exists for other pools under the same config name, by pool.
    pub orphans: Vec<(String, ExistingObjects)>,
    /// Values of the objects that the config refers to; empty where nothing is to be published.
    pub inputs: Result<Inputs, SourceError>,
    /// What is published, where new content is held back and what is published can be renewed without it.
    pub published: Option<Arc<Published>>,
    /// Why nothing new may be published, because of the upstream OSM.
    pub upstream_osm: Option<String>,
    /// Why the CustomResourceDefinitions are known to be too old.
    pub outdated_definitions: Option<String>,
    /// For how long tokens are requested.
    pub token_lifetime: Duration,
    pub memory: PoolMemory,
}

impl Gathered {
    /// The MachineDeployment of its pool; `None` without a config, or if that is of the upstream OSM.
    pub fn machine_deployment(&self) -> Option<&PoolRef> {
        self.config.as_ref()?.machine_deployment.as_ref()
    }

    /// Id of its pool; empty without one.
    pub fn pool(&self) -> String {
        self.machine_deployment().map(PoolRef::id).unwrap_or_default()
    }

    /// Whether machines of its pool fetch a kubeconfig Secret.
    pub fn needs_kubeconfig_secret(&self) -> bool {
        let of_config = |config: &Arc<ConfigView>| config.needs_kubeconfig_secret;
        let of_published = |published: &Arc<Published>| published.content.needs_kubeconfig_secret();
        self.config.as_ref().is_some_and(of_config) || self.published.as_ref().is_some_and(of_published)
    }
}

/// uids of the `kube-system` namespaces. They were read a moment ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// Of the cluster of OperatingSystemConfigs.
    pub management: String,
    /// Of the cluster that Secrets are published in.
    pub worker: String,
}

impl Clusters {
    /// The uid of the worker cluster that the config was made for, where another one answers now.
    pub fn other_worker<'a>(&self, config: &'a ConfigView) -> Option<&'a str> {
        other(config.made_in.as_deref(), &self.worker)
    }

    /// Whether objects were published through another management cluster than the one that answers now.
    pub fn is_other_management(&self, objects: &ExistingObjects) -> bool {
        let mut recorded = objects
            .metas()
            .map(|meta| meta.annotation(names::MANAGEMENT_CLUSTER_UID));
        recorded.any(|uid| other(uid, &self.management).is_some())
    }
}

/// What an object records, if that is not the uid of the cluster that answers now.
fn other<'a>(recorded: Option<&'a str>, live: &str) -> Option<&'a str> {
    recorded.filter(|recorded| *recorded != live)
}
