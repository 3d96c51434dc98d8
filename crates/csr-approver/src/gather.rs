//! Collects what the decisions about a requester depend on, from what the watches have shown. It sends no request.

use std::collections::BTreeMap;
use std::sync::Arc;

use osm_api::PoolRef;

use crate::plan::{Gathered, Named};
use crate::request::Request;
use crate::requester::Requester;
use crate::state::State;
use crate::views::{Bearer, MachineView, PoolView};

/// Everything about the requests of one requester.
pub fn gather(state: &State, requester: &Requester) -> Gathered {
    let mut requests: Vec<Arc<Request>> = state.requests.group(&requester.to_string());
    requests.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let pool = match requester {
        Requester::Pool(account) => state
            .pools
            .group(account)
            .into_iter()
            .find(|pool| !pool.is_deleting),
        Requester::AnyPool | Requester::Node(_) => None,
    };
    let mut edges: BTreeMap<String, Vec<Bearer>> = BTreeMap::new();
    for edge in state.pools.select(|pool| pool.edge_node.is_some()) {
        if let Some(node) = edge.edge_node.clone() {
            edges.entry(node).or_default().push(Bearer::EdgePool(edge));
        }
    }
    let mut nodes: BTreeMap<String, Named> = BTreeMap::new();
    for node in requests.iter().filter_map(|request| request.node()) {
        if !nodes.contains_key(node) {
            let mut named = named(state, node, &edges);
            if matches!(requester, Requester::Node(_)) {
                named.machines = state
                    .machines
                    .select(|machine| machine.node_ref.as_deref() == Some(node));
            }
            nodes.insert(node.to_owned(), named);
        }
    }
    Gathered {
        now: state.cluster.worker.server_time.now(),
        requester: requester.clone(),
        pool,
        requests,
        nodes,
    }
}

fn named(state: &State, node: &str, edges: &BTreeMap<String, Vec<Bearer>>) -> Named {
    let machines = state.machines.group(node).into_iter();
    let machines = machines.map(|machine| Bearer::Machine {
        pool: pool_of(state, &machine),
        machine,
    });
    Named {
        bearers: machines
            .chain(edges.get(node).into_iter().flatten().cloned())
            .collect(),
        machines: Vec::new(),
        has_node: state.nodes.get(node).is_some(),
        claims: state.claims.group(node),
    }
}

/// The MachineDeployment that exists and that the Machine belongs to. Names in owner references count only with the uid.
fn pool_of(state: &State, machine: &MachineView) -> Option<PoolRef> {
    let owner = machine.owner.as_ref()?;
    let set = state
        .machine_sets
        .get(&format!("{}/{}", machine.namespace, owner.name))?;
    let owner = set.owner.as_ref().filter(|_| set.uid == owner.uid)?;
    let pool: Arc<PoolView> = state
        .pools
        .get(&format!("{}/{}", machine.namespace, owner.name))?;
    (pool.pool.uid == owner.uid && !pool.is_deleting).then(|| pool.pool.clone())
}
