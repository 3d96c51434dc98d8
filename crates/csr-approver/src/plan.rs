//! All decisions about the requests of one requester. Pure: no client, no clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use osm_api::node_name::NodeName;
use osm_api::{PoolRef, names};

use crate::claim::{self, Claim};
use crate::request::{Granted, Request, RequestView};
use crate::requester::Requester;
use crate::verdict::{Denial, Refusal, Wait};
use crate::views::{NodeNameOwner, PoolView};

/// Requests that one reconcile approves or denies. The rest waits for the next one, so that a flood delays
/// only its own pool.
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
    /// The nodes that they ask for, by name.
    pub nodes: BTreeMap<String, Named>,
}

/// What is known of the name of a node.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// What bears it.
    pub name_owners: Vec<NodeNameOwner>,
    pub has_node: bool,
    /// The requests of all requesters for it: the pending ones, and the approved ones that still exist.
    /// kube-controller-manager deletes them after an hour.
    pub requests: Vec<Arc<RequestView>>,
}

/// The decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Approve it, if it is [confirmed](confirm) by live reads, the Node does not exist and the claim can be
    /// made.
    Approve(Box<Approval>),
    /// Deny it because of what the watches have shown, if live reads [`confirm`] that this approval is not
    /// allowed.
    ConfirmDenial(Box<Approval>),
    /// Deny it because of its own content.
    Deny(Denial),
    Wait(Wait),
}

/// An approval, and what it depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub claim: Claim,
    /// The owner of the name of the node.
    pub name_owner: NodeNameOwner,
    /// A request for the same machine was approved before, and still exists.
    pub is_again: bool,
    /// The pool whose machines the requester may join as.
    own: PoolRef,
}

/// A request with its decision.
#[derive(Clone, Debug)]
pub struct Decided {
    pub request: Arc<Request>,
    /// The pool that it is about, as far as that is known.
    pub pool: Option<PoolRef>,
    pub decision: Decision,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub decided: Vec<Decided>,
    /// There are more requests, about which nothing was decided.
    pub has_more: bool,
}

/// Decides about requests, oldest first, until there is enough to write. What no kubelet sends comes last, so
/// that a flood of it delays no machine.
pub fn plan(gathered: &Gathered) -> Plan {
    let (good, bad): (Vec<_>, Vec<_>) = gathered
        .requests
        .iter()
        .partition(|request| request.asked.is_ok());
    let mut further = BTreeMap::new();
    let mut plan = Plan {
        decided: Vec::new(),
        has_more: false,
    };
    let mut writes = 0;
    for request in good.into_iter().chain(bad) {
        if writes == MAX_DECIDED {
            plan.has_more = true;
            break;
        }
        let (pool, decision) = decide(gathered, request, &mut further);
        writes += usize::from(!matches!(decision, Decision::Wait(_)));
        plan.decided.push(Decided {
            request: request.clone(),
            pool,
            decision,
        });
    }
    plan
}

/// `further`: why further requests for a node wait, about which one was decided.
fn decide(
    gathered: &Gathered,
    request: &Request,
    further: &mut BTreeMap<String, Wait>,
) -> (Option<PoolRef>, Decision) {
    let Some(own) = gathered.pool.as_ref().map(|pool| &pool.pool) else {
        return (None, Decision::Wait(Wait::PoolNotFound));
    };
    (Some(own.clone()), decide_for(own, gathered, request, further))
}

/// `own`: the pool whose machines the requester may join as.
fn decide_for(
    own: &PoolRef,
    gathered: &Gathered,
    request: &Request,
    further: &mut BTreeMap<String, Wait>,
) -> Decision {
    let node = match &request.asked {
        Ok(node) => node,
        Err(denial) => return Decision::Deny(denial.clone()),
    };
    let unknown = Named::default();
    let named = gathered.nodes.get(node).unwrap_or(&unknown);
    let name_owner = match name_owner(&named.name_owners, own) {
        Ok(name_owner) => name_owner,
        Err(wait) => return Decision::Wait(wait(node.clone())),
    };
    let mut approval = Approval {
        claim: Claim::new(node, name_owner, &request.uid),
        name_owner: name_owner.clone(),
        is_again: false,
        own: own.clone(),
    };
    match admit(node, own, name_owner, request) {
        Ok(()) if named.has_node => return Decision::Wait(Wait::NodeExists(node.clone())),
        Ok(()) => {}
        Err(Refusal::Deny(_)) => return Decision::ConfirmDenial(Box::new(approval)),
        Err(Refusal::Wait(wait)) => return Decision::Wait(wait),
    }
    if let Some(wait) = further.get(node) {
        return Decision::Wait(wait.clone());
    }
    match compare(request, name_owner, &named.requests, gathered.now) {
        Ok(is_again) => {
            let (node, until) = (node.clone(), claim::expires(gathered.now));
            further.insert(node.clone(), Wait::AlreadyApproved { node, until });
            approval.is_again = is_again;
            Decision::Approve(Box::new(approval))
        }
        Err(wait) => {
            further.insert(node.clone(), wait.clone());
            Decision::Wait(wait)
        }
    }
}

/// The owner of the name of a node, for a requester that may join as machines of its `own` pool. Of several,
/// it is the oldest one, so that no pool can take the name of a machine of another one. A name that the cloud
/// has recorded counts more than one that the owner of a pool has chosen, because that one can be chosen in
/// advance.
fn name_owner<'a>(
    name_owners: &'a [NodeNameOwner],
    own: &PoolRef,
) -> Result<&'a NodeNameOwner, fn(String) -> Wait> {
    if let [only] = name_owners {
        return Ok(only);
    }
    let rank = |name_owner: &&NodeNameOwner| {
        (
            !name_owner.machine.is_node_name_reassignable,
            name_owner.machine.created,
        )
    };
    let Some(first) = name_owners.iter().min_by_key(rank) else {
        return Err(Wait::MachineNotFound);
    };
    let is_alone = name_owners
        .iter()
        .filter(|name_owner| rank(name_owner) == rank(&first))
        .count()
        == 1;
    if is_alone && first.pool.as_ref() == Some(own) {
        Ok(first)
    } else {
        Err(Wait::MachineNotUnique)
    }
}

/// Compares a request that is right by itself with the others for the same machine. Returns whether one was
/// approved before.
fn compare(
    request: &Request,
    name_owner: &NodeNameOwner,
    others: &[Arc<RequestView>],
    now: Timestamp,
) -> Result<bool, Wait> {
    // A request that is older than the machine was for a former machine of that name.
    let of_machine =
        |granted: &&Arc<Granted>| granted.uid != request.uid && granted.created >= name_owner.machine.created;
    let last = others
        .iter()
        .filter_map(|seen| seen.approved())
        .filter(of_machine)
        .map(|granted| granted.at)
        .max();
    if let Some(until) = last.map(claim::expires).filter(|until| now < *until) {
        let node = request.node().unwrap_or_default().to_owned();
        return Err(Wait::AlreadyApproved { node, until });
    }
    let pool = name_owner.pool.as_ref();
    let account = pool.map(|pool| names::pool_account(&pool.id()));
    let competes = |other: &&Arc<Request>| {
        account.as_ref() == Some(&other.requester.0)
            && other.uid != request.uid
            && other.created >= name_owner.machine.created
    };
    let mut pending = others.iter().filter_map(|seen| seen.pending()).filter(competes);
    if pending.all(|other| request.is_before(other)) {
        Ok(last.is_some())
    } else {
        Err(Wait::OrderUnknown(request.node().unwrap_or_default().to_owned()))
    }
}

/// Judges an approval by what a live read of the owner of the name has shown.
///
/// # Errors
/// Why it is not approved.
pub fn confirm(request: &Request, approval: &Approval, live: Option<&NodeNameOwner>) -> Result<(), Refusal> {
    let claim = &approval.claim;
    let is_same = |live: &&NodeNameOwner| {
        live.machine.uid == claim.joins_as_uid && live.machine.node_name() == Some(claim.node.as_str())
    };
    match live.filter(is_same) {
        Some(live) => admit(&claim.node, &approval.own, live, request),
        None => Err(Refusal::Wait(Wait::MachineNotFound(claim.node.clone()))),
    }
}

/// Whether the requester may join as the owner of the name.
fn admit(name: &str, own: &PoolRef, name_owner: &NodeNameOwner, request: &Request) -> Result<(), Refusal> {
    let node = || name.to_owned();
    let wait = |wait: Wait| Err(Refusal::Wait(wait));
    let machine = &name_owner.machine;
    // What is about to go may make room for a machine of this pool, so it denies nothing.
    if machine.is_deleting {
        return wait(Wait::MachineDeleting(node()));
    }
    let Some(pool) = &name_owner.pool else {
        return wait(Wait::MachineNotInPool(node()));
    };
    if own != pool {
        return if machine.is_node_name_reassignable {
            wait(Wait::ForeignMachine(node()))
        } else {
            Err(Refusal::Deny(Denial::ForeignMachine(node())))
        };
    }
    // A machine boots only once its Machine exists. An earlier request comes from someone who guessed the
    // name.
    if request.created < machine.created {
        return wait(Wait::OlderThanMachine(node()));
    }
    if matches!(machine.node, NodeName::Unverified(_)) {
        return wait(Wait::NodeNameUnverified(node()));
    }
    if machine.has_node_ref {
        return wait(Wait::MachineHasNode(node()));
    }
    Ok(())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
