//! All decisions about the requests of one requester. Pure: no client, no clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use osm_api::PoolRef;
use osm_api::node_name::NodeName;

use crate::claim::{self, Claim, Standing};
use crate::pkcs10::{Asked, SubjectName};
use crate::request::Request;
use crate::requester::Requester;
use crate::verdict::{Denial, Wait};
use crate::views::{Bearer, ClaimView, MachineView, PoolView};

/// Requests that one reconcile approves or denies. The rest waits for the next one, so that a flood delays only its own pool.
pub const MAX_DECIDED: usize = 20;

/// Everything that the decisions about a requester's requests depend on.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// By the clock of the API server.
    pub now: Timestamp,
    pub requester: Requester,
    /// The pool whose ServiceAccount it is.
    pub pool: Option<Arc<PoolView>>,
    /// Its pending requests, oldest first.
    pub requests: Vec<Arc<Request>>,
    /// What is known of the names that they ask for.
    pub nodes: BTreeMap<String, Named>,
}

/// What is known of the name of a node.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// What bears it.
    pub bearers: Vec<Bearer>,
    /// The Machines whose `nodeRef` names it; only for requests of nodes.
    pub machines: Vec<Arc<MachineView>>,
    /// Whether the Node exists.
    pub has_node: bool,
    /// The claims of it.
    pub claims: Vec<Arc<ClaimView>>,
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Approve it as a client certificate, if the Node does not exist and the claim can be made.
    Approve(Claim),
    /// Approve it as a serving certificate.
    ApproveServing,
    Deny(Denial),
    Wait(Wait),
}

/// A request with its decision.
#[derive(Clone, Debug)]
pub struct Decided {
    pub request: Arc<Request>,
    /// The pool that it is about, as far as that is known.
    pub pool: Option<PoolRef>,
    pub decision: Decision,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Approvals come first.
    pub decided: Vec<Decided>,
    /// There are more requests to approve or deny.
    pub has_more: bool,
}

/// Decides about every request.
pub fn plan(gathered: &Gathered) -> Plan {
    let mut approved: BTreeSet<String> = BTreeSet::new();
    let decide = |request: &Arc<Request>| {
        let (pool, decision) = decide(gathered, request, &mut approved);
        Decided {
            request: request.clone(),
            pool,
            decision,
        }
    };
    let mut decided: Vec<Decided> = gathered.requests.iter().map(decide).collect();
    let order = |decided: &Decided| match decided.decision {
        Decision::Approve(_) | Decision::ApproveServing => 0,
        Decision::Deny(_) => 1,
        Decision::Wait(_) => 2,
    };
    // The sort is stable, so that the oldest stay first.
    decided.sort_by_key(order);
    let is_write = |decided: &Decided| !matches!(decided.decision, Decision::Wait(_));
    let writes = decided.iter().filter(|decided| is_write(decided)).count();
    let mut left = MAX_DECIDED;
    decided.retain(|decided| {
        !is_write(decided) || {
            let is_kept = left > 0;
            left = left.saturating_sub(1);
            is_kept
        }
    });
    Plan {
        decided,
        has_more: writes > MAX_DECIDED,
    }
}

fn decide(
    gathered: &Gathered,
    request: &Request,
    approved: &mut BTreeSet<String>,
) -> (Option<PoolRef>, Decision) {
    let own = match &gathered.requester {
        Requester::Pool(_) => match &gathered.pool {
            Some(pool) => Some(&pool.pool),
            None => return (None, Decision::Wait(Wait::PoolNotFound)),
        },
        Requester::AnyPool | Requester::Node(_) => None,
    };
    let asked = match &request.asked {
        Ok(asked) => asked,
        Err(denial) => return (own.cloned(), Decision::Deny(denial.clone())),
    };
    let unknown = Named::default();
    let named = gathered.nodes.get(&asked.node).unwrap_or(&unknown);
    if let Requester::Node(_) = gathered.requester {
        return (None, serving(asked, named));
    }
    let bearer = match named.bearers.as_slice() {
        [] => {
            return (
                own.cloned(),
                Decision::Wait(Wait::MachineNotFound(asked.node.clone())),
            );
        }
        [bearer] => bearer,
        _ => {
            return (
                own.cloned(),
                Decision::Wait(Wait::MachineNotUnique(asked.node.clone())),
            );
        }
    };
    let pool = own.cloned().or_else(|| pool_of(bearer).cloned());
    let decision = match judge(asked, own, bearer, named, (request, gathered.now)) {
        Ok(claim) if approved.insert(asked.node.clone()) => Decision::Approve(claim),
        Ok(_) => Decision::Wait(already_approved(asked, gathered.now)),
        Err(decision) => decision,
    };
    (pool, decision)
}

fn pool_of(bearer: &Bearer) -> Option<&PoolRef> {
    match bearer {
        Bearer::Machine { pool, .. } => pool.as_ref(),
        Bearer::EdgePool(edge) => Some(&edge.pool),
    }
}

/// Judges a request for a client certificate. `own`: the only pool whose machines the requester may join as; `None`: any pool.
fn judge(
    asked: &Asked,
    own: Option<&PoolRef>,
    bearer: &Bearer,
    named: &Named,
    (request, now): (&Request, Timestamp),
) -> Result<Claim, Decision> {
    let node = || asked.node.clone();
    let wait = |wait: Wait| Err(Decision::Wait(wait));
    // What is about to go may make room for a machine of this pool, so it denies nothing.
    let is_deleting = match bearer {
        Bearer::Machine { machine, .. } => machine.is_deleting,
        Bearer::EdgePool(edge) => edge.is_deleting,
    };
    if is_deleting {
        return wait(Wait::MachineDeleting(node()));
    }
    let Some(pool) = pool_of(bearer) else {
        return wait(Wait::MachineNotOfPool(node()));
    };
    if own.is_some_and(|own| own != pool) {
        if matches!(bearer, Bearer::Machine { machine, .. } if machine.may_pass_on_name) {
            return wait(Wait::ForeignMachine(node()));
        }
        return Err(Decision::Deny(Denial::ForeignMachine(node())));
    }
    if let Bearer::Machine { machine, .. } = bearer {
        if matches!(machine.node, NodeName::Unproven(_)) {
            return wait(Wait::NodeNameUnproven(node()));
        }
        if machine.node_ref.is_some() {
            return wait(Wait::MachineHasNode(node()));
        }
    }
    if named.has_node {
        return wait(Wait::NodeExists(node()));
    }
    let claim = Claim::new(&asked.node, bearer, &request.uid);
    let held = named.claims.iter().find(|held| held.name == claim.name());
    match held.map(|held| claim::judge(held, &request.uid, now)) {
        Some(Standing::Taken { until }) => wait(Wait::AlreadyApproved { node: node(), until }),
        Some(Standing::Own | Standing::Expired) | None => Ok(claim),
    }
}

/// Of several requests for one node, the oldest is approved.
fn already_approved(asked: &Asked, now: Timestamp) -> Wait {
    Wait::AlreadyApproved {
        node: asked.node.clone(),
        until: now.saturating_add(claim::VALIDITY).unwrap_or(Timestamp::MAX),
    }
}

/// Judges a request for a serving certificate by the addresses that machine-controller has recorded. Other approvers may know more, so
/// nothing is denied but what no kubelet asks for.
fn serving(asked: &Asked, named: &Named) -> Decision {
    let machine = match named.machines.as_slice() {
        [] => return Decision::Wait(Wait::MachineNotFound(asked.node.clone())),
        [machine] => machine,
        _ => return Decision::Wait(Wait::MachineNotUnique(asked.node.clone())),
    };
    // The node has proved its own name with its client certificate.
    let own = SubjectName::Dns(asked.node.clone());
    let is_known = |name: &SubjectName| *name == own || machine.addresses.contains(name);
    match asked.names.iter().all(is_known) {
        true => Decision::ApproveServing,
        false => Decision::Wait(Wait::AddressNotRecorded(asked.node.clone())),
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
