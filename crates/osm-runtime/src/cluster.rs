//! Holds what a controller works with in one worker cluster: connections, settings, gates and watches.

use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::LeaseSpec;
use osm_api::rbac::Installation;

use crate::cache::Cache;
use crate::connection::Connection;
use crate::replicas::Replicas;
use crate::scope::Scope;
use crate::settings;
use crate::shared_problem::SharedProblem;

/// Leases by key, with what of their spec can be decoded.
pub type GoLeases = Cache<Option<LeaseSpec>>;

/// One worker cluster, with the cluster that its profiles, configs and settings are in. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    /// It ends when the process stops, or this cluster is no longer served.
    pub scope: Scope,
    pub installation: Installation,
    /// The cluster of profiles, configs, settings and the replicas' Leases: of a fleet, the seed.
    pub management: Connection,
    /// The cluster of MachineDeployments and of `cloud-init-settings`: the same, or a user cluster of a fleet.
    pub worker: Connection,
    pub settings: settings::Receiver,
    /// Those that share the work in this cluster.
    pub replicas: Replicas,
    /// Why nothing new may be started, because of the upstream OSM.
    pub upstream_osm: SharedProblem,
    /// Leases of the upstream OSM in the management cluster, where one watch shows those of all clusters.
    pub go_leases: Option<Arc<GoLeases>>,
}

impl Cluster {
    /// A cluster that has everything is given twice.
    pub fn new(
        scope: Scope,
        installation: Installation,
        [management, worker]: [Connection; 2],
        settings: settings::Receiver,
        replicas: Replicas,
    ) -> Self {
        Self {
            scope,
            installation,
            management,
            worker,
            settings,
            replicas,
            upstream_osm: SharedProblem::default(),
            go_leases: None,
        }
    }

    /// Namespace of profiles and configs.
    pub fn namespace(&self) -> &str {
        &self.installation.namespace
    }
}

impl Deref for Cluster {
    type Target = Scope;

    fn deref(&self) -> &Scope {
        &self.scope
    }
}
