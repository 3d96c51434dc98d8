//! What the tasks of all clusters share: the connection to the seed, the controller, and what the seed has about
//! each cluster.

use std::sync::Arc;

use futures::future::BoxFuture;
use kube::{Api, Config, ResourceExt};
use osm_api::Reason;
use osm_api::names::{WORKER_CLUSTER as NAME, worker_kubeconfig};
use osm_api::worker_cluster::WorkerCluster;
use tokio::sync::Semaphore;

use super::registration::{self, KubeconfigText, Registration, State, WorkerClusterView};
use crate::bounds;
use crate::cache::{Cache, Version};
use crate::cluster::Cluster;
use crate::transport::Transports;

/// Connections that are being opened at the same time. A cluster that was not reached before leaves room for
/// those that may be there.
const OPENING: usize = 64;
const OPENING_AGAIN: usize = 48;

/// Transports by the text of a kubeconfig, or what is wrong with it. Tests provide their own.
pub type Connect =
    Box<dyn Fn(Arc<str>) -> BoxFuture<'static, anyhow::Result<(Config, Transports)>> + Send + Sync>;

pub struct Seed<C> {
    /// The cluster of the WorkerClusters.
    pub(super) cluster: Cluster,
    pub(super) controller: C,
    pub(super) connect: Connect,
    /// By the uid of their cluster.
    pub(super) clusters: Arc<Cache<WorkerClusterView>>,
    pub(super) kubeconfigs: Arc<Cache<KubeconfigText>>,
    pub(super) opening: Semaphore,
    pub(super) opening_again: Semaphore,
    pub(super) large: Arc<Semaphore>,
}

impl<C> Seed<C> {
    pub(super) fn new(cluster: Cluster, controller: C, connect: Connect) -> Arc<Self> {
        let by_uid = Cache::grouped(|view: &WorkerClusterView| view.cluster_uid.clone());
        Arc::new(Self {
            cluster,
            controller,
            connect,
            clusters: Arc::new(by_uid),
            kubeconfigs: Arc::default(),
            opening: Semaphore::new(OPENING),
            opening_again: Semaphore::new(OPENING_AGAIN),
            large: bounds::turns(),
        })
    }

    pub(super) fn view(&self, namespace: &str) -> Option<Arc<WorkerClusterView>> {
        self.clusters.get(&format!("{namespace}/{NAME}"))
    }

    pub(super) fn api(&self, namespace: &str) -> Api<WorkerCluster> {
        Api::namespaced(self.cluster.management.client.clone(), namespace)
    }

    /// Records what the API server returned for a write.
    pub(super) fn saw(&self, cluster: WorkerCluster) {
        let version = Version::of(&cluster.metadata);
        let key = format!("{}/{NAME}", cluster.namespace().unwrap_or_default());
        let _ = self.clusters.wrote(&key, version, WorkerClusterView::of(cluster));
    }

    /// Why the cluster of this WorkerCluster, which has this uid, is another one's.
    pub(super) fn duplicate(&self, view: &WorkerClusterView, uid: &str) -> Option<State> {
        let same = self.clusters.group(uid);
        let first = same.iter().find(|other| view.is_younger_than(other))?;
        let message = format!(
            "the WorkerCluster in namespace {} is older and has the same cluster; delete one of them",
            first.namespace
        );
        Some(State::new(Reason::DuplicateCluster, message))
    }

    /// How the cluster is to be served, or why it is not.
    pub(super) fn wanted(&self, view: &WorkerClusterView) -> Result<Registration, State> {
        let service = self.cluster.process.service;
        let uid = view.cluster_uid.as_deref();
        if let Some(duplicate) = uid.and_then(|uid| self.duplicate(view, uid)) {
            return Err(duplicate);
        }
        let name = worker_kubeconfig(service.name());
        let secret = self.kubeconfigs.get(&format!("{}/{name}", view.namespace));
        registration::read(view, secret.as_deref(), &self.cluster.installation, service)
    }
}
