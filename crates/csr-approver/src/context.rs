//! What all reconciles share: what the watches have shown, the queue and the metrics.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use osm_runtime::Api;
use osm_runtime::cache::Cache;
use osm_runtime::queue::Queue;
use osm_runtime::runner::Shared;
use osm_runtime::{Cluster, Process};

use crate::key::Key;
use crate::reporting::Reporting;
use crate::request::Seen;
use crate::requester::Requester;
use crate::views::{Bearer, ClaimView, MachineSetView, MachineView, PoolView};

/// Pending requests that are remembered of one requester. A pool has at most as many machines that join at the same time.
pub const MAX_OF_REQUESTER: usize = 1_000;
/// Requests that are remembered of all requesters. Of approved ones, twice as many.
pub const MAX_REQUESTS: usize = 20_000;
/// Requests for one machine, beyond which none is remembered only because the machine has yet to join.
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
    pub process: Arc<Process>,
    pub cluster: Cluster,
    pub queue: Arc<Queue<Key>>,
    /// Pending and approved requests by name, grouped by the [name of their node](by_name); pending ones also by requester.
    pub requests: Arc<Cache<Seen>>,
    /// Machines, grouped by the [name of their node](by_name) and by [their Node](by_node_ref).
    pub machines: Arc<Cache<MachineView>>,
    pub machine_sets: Arc<Cache<MachineSetView>>,
    /// MachineDeployments, grouped by their ServiceAccount; those of edge pools also by the [name of their node](by_name).
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

/// The group of the Machines whose `nodeRef` names this Node.
pub fn by_node_ref(node: &str) -> String {
    format!("ref/{node}")
}

impl Context {
    /// # Errors
    /// Metrics whose names are taken.
    pub fn new(process: &Arc<Process>, cluster: &Cluster) -> anyhow::Result<Self> {
        let machines = Cache::grouped(|machine: &MachineView| {
            let name = machine.node_name().map(by_name);
            name.into_iter()
                .chain(machine.node_ref.as_deref().map(by_node_ref))
        });
        Ok(Self(Arc::new(Inner {
            process: process.clone(),
            cluster: cluster.clone(),
            queue: Arc::new(Queue::new(&process.environment)),
            requests: Arc::new(Cache::grouped(|seen: &Seen| {
                let requester = seen.pending().map(|request| request.requester.to_string());
                requester.into_iter().chain(seen.joins_as().map(by_name))
            })),
            machines: Arc::new(machines),
            machine_sets: Arc::default(),
            pools: Arc::new(Cache::grouped(|pool: &PoolView| {
                let node = pool.edge_node.as_deref().map(by_name);
                [pool.account.clone()].into_iter().chain(node)
            })),
            nodes: Arc::default(),
            claims: Arc::default(),
            reporting: Reporting::new(&process.metrics)?,
        })))
    }
}

/// Whether there is room for a further request, where so many of its requester and of all are remembered. Before the machines are listed, the
/// bounds are twice as large, because any request may be for one of them. The room that is left then is for those of which it is known.
fn has_room(
    of_requester: usize,
    of_all: usize,
    are_machines_listed: bool,
    is_awaited: impl FnOnce() -> bool,
) -> bool {
    let times = if are_machines_listed { 1 } else { 2 };
    let has_room = of_requester < times * MAX_OF_REQUESTER && of_all < times * MAX_REQUESTS;
    has_room || (of_requester < 3 * MAX_OF_REQUESTER && is_awaited())
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
        Api::namespaced(self.cluster.worker.client.clone(), self.cluster.namespace())
    }

    /// Whether to remember this request, which is new. Of a flood, only requests for machines that have yet to join are kept beyond the bounds,
    /// and those of one requester no further than three times its bound. A kubelet whose request is ignored sends another one within 15 minutes.
    pub fn is_kept(&self, seen: &Seen) -> bool {
        let Seen::Pending(request) = seen else {
            return self.requests.len() < 2 * MAX_REQUESTS;
        };
        let of_requester = self.requests.group_len(&request.requester.to_string());
        let is_awaited = || {
            let Some(node) = seen.joins_as().filter(|node| self.nodes.get(node).is_none()) else {
                return false;
            };
            let name = by_name(node);
            let edges = self.pools.group(&name).into_iter();
            let edges = edges.map(|edge| Bearer::of_edge_pool(&edge).machine);
            let mut machines = self.machines.group(&name).into_iter().chain(edges);
            self.requests.group_len(&name) < MAX_OF_MACHINE
                && machines.any(|machine| {
                    machine.node_ref.is_none() && !machine.is_deleting && machine.created <= request.created
                })
        };
        let are_machines_listed = self.machines.is_listed() && self.pools.is_listed();
        let is_kept = has_room(of_requester, self.requests.len(), are_machines_listed, is_awaited);
        if !is_kept {
            self.reporting.dropped(&request.requester);
        }
        is_kept
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

impl Shared<Key> for Context {
    fn known(&self) -> Vec<Key> {
        let requesters = self.requesters().into_iter().map(Key::Requester);
        requesters.chain([Key::Housekeeping]).collect()
    }

    fn released(&self, key: &Key) {
        match key {
            Key::Requester(requester) => self.reporting.forget(requester),
            Key::Housekeeping => self.reporting.metrics.machines_without_node.set(0),
        }
    }
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use osm_api::machine_deployment::MachineDeploymentSpec;
    use osm_api::node_name::NodeName;
    use osm_api::rbac::{Installation, Service};
    use osm_api::{Machine, MachineDeployment};
    use osm_runtime::args::{CommonArgs, LogFormat};
    use osm_runtime::cache::Version;
    use osm_runtime::{Connection, Connections, Environment, Metrics, Readiness};
    use osm_sim::memory::{Calm, Link, Network, Server, User};
    use serde_json::json;

    use crate::pkcs10::Asked;
    use crate::request::Request;

    use super::*;

    /// Of a service that reaches an empty API server over this network.
    pub fn context(network: impl Network + 'static) -> Context {
        let (server, link) = (
            Server::new(jiff::Timestamp::UNIX_EPOCH),
            Link::new(Arc::new(network)),
        );
        let service = Service::CsrApprover;
        let (metrics, environment) = (Metrics::of(service).unwrap(), Environment::default());
        let clients = [(); 2].map(|()| server.client(User::Admin, &link));
        let connection = Connection::by(service, clients, &metrics, Duration::from_secs(10), &environment);
        let args = CommonArgs {
            namespace: "kube-system".to_owned(),
            kubeconfig: None,
            settings: "osm-settings".to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            log_format: LogFormat::Text,
            log: String::new(),
            concurrency: 1,
            request_timeout: 10,
            reconcile_timeout: 60,
            replica: None,
            pod_uid: None,
        };
        let process = Arc::new(Process {
            service,
            args,
            environment,
            metrics,
            readiness: Readiness::default(),
            shutdown: Default::default(),
        });
        let connections = Connections::only(connection);
        let (cluster, _) = Cluster::new(&process, Installation::default(), connections);
        Context::new(&process, &cluster).unwrap()
    }

    #[test]
    fn requests_beyond_the_bounds_are_kept_only_for_machines_that_exist() {
        for (of_requester, of_all, any, any_at_start, awaited) in [
            (999, 19_999, true, true, true),
            (1_000, 1_000, false, true, true),
            (0, 20_000, false, true, true),
            (0, 40_000, false, false, true),
            (2_000, 2_000, false, false, true),
            (2_999, 100_000, false, false, true),
            (3_000, 3_000, false, false, false),
        ] {
            let has_room = |is_listed, is_awaited| has_room(of_requester, of_all, is_listed, || is_awaited);
            let case = format!("{of_requester} of {of_all}");
            assert_eq!(has_room(true, false), any, "{case}");
            assert_eq!(has_room(false, false), any_at_start, "{case}");
            assert_eq!(has_room(true, true), awaited, "{case}");
        }
    }

    fn pending(name: String, node: &str) -> Seen {
        let asked = Asked {
            node: node.to_owned(),
            names: Vec::new(),
        };
        let created = jiff::Timestamp::UNIX_EPOCH;
        Seen::Pending(Arc::new(Request::for_test(&name, created, Ok(asked))))
    }

    /// All tokens of `osm-node-bootstrap` are one requester.
    #[tokio::test]
    async fn a_flood_for_one_machine_leaves_room_for_the_others_and_for_edge_pools() {
        let context = context(Calm);
        let version = |uid: &str| {
            Version::of(&ObjectMeta {
                uid: Some(uid.to_owned()),
                ..ObjectMeta::default()
            })
        };
        for name in ["flooded", "joins", "joined"] {
            let machine = json!({"metadata": {"name": name, "namespace": "n"}, "spec": {}});
            let mut machine = MachineView::from(serde_json::from_value::<Machine>(machine).unwrap());
            machine.node = NodeName::Known(name.to_owned());
            drop(context.machines.wrote(name, version(name), machine));
        }
        drop(context.nodes.wrote("joined", version("joined"), ()));
        let md = MachineDeployment::new("edge", MachineDeploymentSpec::default());
        let edge = PoolView {
            edge_node: Some("edge".to_owned()),
            ..PoolView::of(&md)
        };
        drop(context.pools.wrote("n/edge", version("edge"), edge));
        for i in 0..2 * MAX_OF_REQUESTER {
            let node = if i < 1_900 { "unknown" } else { "flooded" };
            let (name, seen) = (format!("csr-{i}"), pending(format!("csr-{i}"), node));
            drop(context.requests.wrote(&name, version(&name), seen));
        }
        for (node, kept) in [
            ("unknown", false),
            ("flooded", false),
            ("joined", false),
            ("joins", true),
            ("edge", true),
        ] {
            let seen = pending("csr".to_owned(), node);
            assert_eq!(context.is_kept(&seen), kept, "{node}");
        }
        assert_eq!(context.reporting.metrics.dropped.get(), 3);
    }
}
