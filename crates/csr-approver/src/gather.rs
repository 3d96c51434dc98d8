//! Collects what the decisions about a requester depend on, from what the watches have shown. It sends no
//! request.

use std::collections::BTreeSet;
use std::sync::Arc;

use osm_api::PoolRef;

use crate::context::{Context, by_name};
use crate::plan::{Gathered, Named};
use crate::request::Request;
use crate::requester::Requester;
use crate::views::{MachineView, NodeNameOwner};

/// Everything about the requests of one requester.
pub fn gather(context: &Context, requester: &Requester) -> Gathered {
    let requests = context.requests.group(&requester.to_string());
    let mut requests: Vec<Arc<Request>> = requests
        .iter()
        .filter_map(|seen| seen.pending().cloned())
        .collect();
    requests.sort_by_key(|request| (request.created, request.order));
    let mut pools = context.pools.group(&requester.0).into_iter();
    let pool = pools.find(|pool| !pool.is_deleting);
    let nodes: BTreeSet<&str> = requests.iter().filter_map(|request| request.node()).collect();
    let nodes = nodes
        .into_iter()
        .map(|node| (node.to_owned(), named(context, node)));
    Gathered {
        now: context.cluster.worker.server_time.now(),
        requester: requester.clone(),
        pool,
        nodes: nodes.collect(),
        requests,
    }
}

fn named(context: &Context, node: &str) -> Named {
    let name = by_name(node);
    let machines = context.machines.group(&name).into_iter();
    let machines = machines.map(|machine| {
        let pool = pool_of(context, &machine);
        NodeNameOwner::of_machine(machine, pool)
    });
    let edges = context.pools.group(&name).into_iter();
    let edges = edges.map(|edge| NodeNameOwner::of_edge_pool(&edge));
    Named {
        name_owners: machines.chain(edges).collect(),
        has_node: context.nodes.get(node).is_some(),
        requests: context.requests.group(&name),
    }
}

/// The MachineDeployment that exists and that the Machine belongs to. Names in owner references count only
/// with the uid.
pub fn pool_of(context: &Context, machine: &MachineView) -> Option<PoolRef> {
    let owner = machine.owner.as_ref()?;
    let set = context
        .machine_sets
        .get(&format!("{}/{}", machine.namespace, owner.name))?;
    let owner = set.owner_of_what_belongs_to(owner)?;
    let pool = context
        .pools
        .get(&format!("{}/{}", machine.namespace, owner.name))?;
    pool.if_it_is(owner)
}
