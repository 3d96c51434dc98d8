//! Holds what all reconciles share: what the watches have shown, the queue and the metrics.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use osm_runtime::Api;
use osm_runtime::Cluster;
use osm_runtime::cache::Cache;
use osm_runtime::queue::Queue;
use osm_runtime::runner::Keys;

use crate::key::Key;
use crate::metrics::JoiningMetrics;
use crate::reporting::Reporting;
use crate::request::{Request, RequestView};
use crate::requester::Requester;
use crate::views::{ClaimView, MachineSetView, MachineView, NodeNameOwner, PoolView};

/// Pending requests that are kept of one requester, so that its flood leaves room for those of others. Beyond
/// it, a request is kept only for a machine that has yet to join. Hardly any pool has more machines that join
/// at the same time.
const MAX_OF_REQUESTER: usize = 1_000;
/// Requests that are kept only because their machine has yet to join, so that a flood for one machine leaves
/// room for others. A kubelet sends one every 15 minutes.
const MAX_OF_MACHINE: usize = 16;

#[derive(Clone)]
pub struct Context(Arc<Inner>);

impl std::ops::Deref for Context {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

pub struct Inner {
    pub cluster: Cluster,
    pub queue: Arc<Queue<Key>>,
    /// Pending and approved requests by name, grouped by the [name of their node](by_name); pending ones also
    /// by requester.
    pub requests: Arc<Cache<RequestView>>,
    /// Machines, grouped by the [name of their node](by_name).
    pub machines: Arc<Cache<MachineView>>,
    pub machine_sets: Arc<Cache<MachineSetView>>,
    /// MachineDeployments, grouped by their ServiceAccount; those of edge pools also by the [name of their
    /// node](by_name).
    pub pools: Arc<Cache<PoolView>>,
    /// The names of the Nodes.
    pub nodes: Arc<Cache<()>>,
    /// To be deleted once they are no longer needed. Whether a claim holds is read from the API server.
    pub claims: Arc<Cache<ClaimView>>,
    pub reporting: Reporting,
}

/// The group of what bears this name of a node, or asks for it. No ServiceAccount has a slash in its name.
pub fn by_name(node: &str) -> String {
    format!("name/{node}")
}

impl Context {
    pub fn new(metrics: &Arc<JoiningMetrics>, cluster: &Cluster) -> Self {
        let machines = Cache::grouped(|machine: &MachineView| machine.node_name().map(by_name));
        Self(Arc::new(Inner {
            cluster: cluster.clone(),
            queue: Arc::new(Queue::new(&cluster.process.environment)),
            requests: Arc::new(Cache::grouped(|seen: &RequestView| {
                let requester = seen.pending().map(|request| request.requester.to_string());
                requester.into_iter().chain(seen.node().map(by_name))
            })),
            machines: Arc::new(machines),
            machine_sets: Arc::default(),
            pools: Arc::new(Cache::grouped(|pool: &PoolView| {
                let node = pool.edge_node.as_deref().map(by_name);
                [pool.account.clone()].into_iter().chain(node)
            })),
            nodes: Arc::default(),
            claims: Arc::default(),
            reporting: Reporting::new(metrics),
        }))
    }
}

impl Inner {
    /// Objects of machine-controller in this namespace.
    pub fn worker<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.cluster.worker.client.clone(), namespace)
    }

    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(
            self.cluster.worker.client.clone(),
            self.cluster.installation.worker_namespace(),
        )
    }

    /// Whether to keep this pending request, which is new. A kubelet whose request is ignored sends another
    /// one within 15 minutes.
    pub fn is_kept(&self, request: &Request) -> bool {
        let of_requester = self.requests.group_len(&request.requester.to_string());
        let is_kept = of_requester < MAX_OF_REQUESTER || self.is_for_awaited_machine(request);
        if !is_kept {
            self.reporting.dropped(&request.requester);
        }
        is_kept
    }

    /// Whether it is one of the first requests for a machine that has yet to join, as far as the watches have
    /// shown.
    fn is_for_awaited_machine(&self, request: &Request) -> bool {
        let Some(node) = request.node().filter(|node| self.nodes.get(node).is_none()) else {
            return false;
        };
        let name = by_name(node);
        let edges = self.pools.group(&name).into_iter();
        let edges = edges.map(|edge| NodeNameOwner::of_edge_pool(&edge).machine);
        let mut machines = self.machines.group(&name).into_iter().chain(edges);
        self.requests.group_len(&name) < MAX_OF_MACHINE
            && machines.any(|machine| {
                !machine.has_node_ref && !machine.is_deleting && machine.created <= request.created
            })
    }

    /// Queues every requester that has a pending request for this node.
    pub fn wake_for(&self, node: &str) {
        for seen in self.requests.group(&by_name(node)) {
            if let Some(request) = seen.pending() {
                self.queue.add(Key::Requester(request.requester.clone()));
            }
        }
    }

    /// Queues every requester that has pending requests.
    pub fn wake_all(&self) {
        for requester in self.requesters() {
            self.queue.add(Key::Requester(requester));
        }
    }

    fn requesters(&self) -> BTreeSet<Requester> {
        let requests = self.requests.select(|seen| seen.pending().is_some());
        let pending = requests.iter().filter_map(|seen| seen.pending());
        pending.map(|request| request.requester.clone()).collect()
    }
}

impl Keys<Key> for Context {
    fn known(&self) -> Vec<Key> {
        let requesters = self.requesters().into_iter().map(Key::Requester);
        requesters
            .chain([Key::Housekeeping, Key::NodeclientBinding])
            .collect()
    }

    fn released(&self, key: &Key) {
        let reporting = &self.reporting;
        match key {
            Key::Requester(requester) => reporting.forget(requester),
            Key::Housekeeping => drop(reporting.machines_without_node.set(&[], None)),
            Key::NodeclientBinding => drop(reporting.nodeclient_binding_found.set(&[], None)),
        }
    }
}

#[cfg(test)]
#[path = "context_tests.rs"]
pub mod tests;
