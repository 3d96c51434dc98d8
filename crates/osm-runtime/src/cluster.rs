//! Holds what a controller works with in one worker cluster: connections, settings, gates and watches.

use std::sync::Arc;

use osm_api::rbac::Installation;
use tokio_util::sync::CancellationToken;

use crate::connection::Connection;
use crate::connection_role::ConnectionRole;
use crate::process::Process;
use crate::readiness::Readiness;
use crate::settings;
use crate::shared_problem::SharedProblem;
use crate::supervisor::Supervisor;

/// One worker cluster, with the clusters that its profiles, configs and settings are in. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    pub process: Arc<Process>,
    pub installation: Installation,
    /// The cluster of profiles, configs, settings and the replicas' Leases; the worker cluster for a service
    /// that needs no other.
    pub management: Connection,
    /// The cluster of MachineDeployments and of `cloud-init-settings`; the same as `management` unless
    /// another one is given.
    pub worker: Connection,
    pub settings: settings::Receiver,
    pub gates: Readiness,
    /// Whether the CustomResourceDefinitions are known to be too old. Every watch lists its objects again
    /// when that changes.
    pub outdated_definitions: SharedProblem,
    /// Why nothing new may be started, because of the upstream OSM.
    pub upstream_osm: SharedProblem,
    /// Cancelled when the process stops, or this cluster is no longer served.
    pub shutdown: CancellationToken,
}

impl Cluster {
    /// A cluster that has everything is given twice. Returns the handle, and the sender of its settings for
    /// [`settings_watch::spawn`](crate::settings_watch::spawn).
    pub fn new(
        process: &Arc<Process>,
        installation: Installation,
        management: Connection,
        worker: Connection,
    ) -> (Self, settings::Sender) {
        let (sender, settings) = tokio::sync::watch::channel(None);
        let shutdown = process.shutdown.child_token();
        (
            Self {
                process: process.clone(),
                installation,
                management,
                worker,
                settings,
                gates: process.readiness.clone(),
                outdated_definitions: SharedProblem::default(),
                upstream_osm: SharedProblem::default(),
                shutdown,
            },
            sender,
        )
    }

    /// Starts tasks that must not end before the service does.
    pub fn supervisor(&self) -> Supervisor {
        Supervisor::new(&self.gates, &self.process.shutdown)
    }

    /// Runs a task, which must not end, for as long as this cluster is served.
    pub fn spawn(&self, what: impl Into<String>, task: impl Future<Output = ()> + Send + 'static) {
        let end = self.shutdown.clone();
        self.supervisor().spawn(what, &self.shutdown, async move {
            end.run_until_cancelled(task).await;
        });
    }

    pub fn connections(&self) -> Vec<&Connection> {
        match self.management.role() {
            ConnectionRole::Only => vec![&self.management],
            ConnectionRole::Of(_) => vec![&self.management, &self.worker],
        }
    }

    /// Namespace of profiles and configs.
    pub fn namespace(&self) -> &str {
        &self.installation.namespace
    }
}
