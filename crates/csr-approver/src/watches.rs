//! Starts the watches, and maps each change to the requesters that it queues. A change that no waiting
//! request depends on queues no requester, so that a failed reconcile keeps its delay.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::PartialObjectMeta;
use osm_api::names::ROLE;
use osm_api::rbac::CLIENT_SIGNER;
use osm_api::{Machine, MachineDeployment, MachineSet};
use osm_runtime::cache::Change;
use osm_runtime::watch::{GATE, Watch};

use crate::claim;
use crate::context::Context;
use crate::key::Key;
use crate::request::RequestView;
use crate::views::{ClaimView, MachineSetView, MachineView, PoolView};

/// Starts the watches. That of requests waits for the first list of all others, because what they show
/// decides which requests are kept.
pub async fn start(context: &Context) {
    machines(context);
    machine_sets(context);
    pools(context);
    nodes(context);
    claims(context);
    context.queue.add(Key::Housekeeping);
    context.queue.add(Key::NodeclientBinding);
    context.cluster.gates.opened(GATE).await;
    requests(context);
}

fn requests(context: &Context) {
    let (keeper, waker) = (context.clone(), context.clone());
    Watch::all(&context.cluster.worker, "certificatesigningrequests")
        .fields(&format!("spec.signerName={CLIENT_SIGNER}"))
        .project(move |object: CertificateSigningRequest| {
            let known = keeper.requests.get(object.metadata.name.as_deref()?);
            let seen = RequestView::of(object, known.as_deref())?;
            let is_new = seen.pending().filter(|_| known.is_none());
            is_new
                .is_none_or(|request| keeper.is_kept(request))
                .then_some(seen)
        })
        .into_cache(&context.requests)
        .on_change(move |change| {
            let both = || change.new.iter().chain(&change.old);
            if let Some(request) = both().find_map(|seen| seen.pending()) {
                waker.queue.add(Key::Requester(request.requester.clone()));
            }
            // Without it, another request may be right.
            if change.new.is_none()
                && let Some(node) = change.old.as_ref().and_then(|old| old.node())
            {
                waker.wake_for(node);
            }
        })
        .spawn(&context.cluster);
}

/// Whether something has changed that decisions depend on. Most updates, such as those of a status, change
/// nothing that is kept.
fn is_different<V: PartialEq>(change: &Change<V>) -> bool {
    change.old.as_deref() != change.new.as_deref()
}

fn machines(context: &Context) {
    let waker = context.clone();
    Watch::all(&context.cluster.worker, "machines")
        .project(|machine: Machine| Some(MachineView::from(machine)))
        .into_cache(&context.machines)
        .on_change(move |change| {
            if is_different(&change) {
                let both = change.old.iter().chain(&change.new);
                let names = both.filter_map(|machine| machine.node_name());
                names.for_each(|node| waker.wake_for(node));
            }
        })
        .spawn(&context.cluster);
}

fn machine_sets(context: &Context) {
    let waker = context.clone();
    Watch::all(&context.cluster.worker, "machinesets")
        .project(|set: PartialObjectMeta<MachineSet>| Some(MachineSetView::from(set)))
        .into_cache(&context.machine_sets)
        .on_change(move |change| {
            if is_different(&change) {
                waker.wake_all();
            }
        })
        .spawn(&context.cluster);
}

fn pools(context: &Context) {
    let waker = context.clone();
    Watch::all(&context.cluster.worker, "machinedeployments")
        .project(|md: MachineDeployment| Some(PoolView::of(&md)))
        .unreadable(|md| Some(PoolView::unreadable(md)))
        .into_cache(&context.pools)
        .on_change(move |change| {
            if is_different(&change) {
                waker.wake_all();
            }
        })
        .spawn(&context.cluster);
}

fn nodes(context: &Context) {
    let waker = context.clone();
    Watch::all(&context.cluster.worker, "nodes")
        .project(|_: PartialObjectMeta<Node>| Some(()))
        .into_cache(&context.nodes)
        .on_change(move |change| {
            if is_different(&change) {
                waker.wake_for(&change.key);
            }
        })
        .spawn(&context.cluster);
}

fn claims(context: &Context) {
    Watch::namespaced(
        &context.cluster.worker,
        context.cluster.installation.worker_namespace(),
        "claims",
    )
    .labels(&format!("{ROLE}={}", claim::ROLE))
    .project(|lease: Lease| ClaimView::of(&lease))
    .into_cache(&context.claims)
    .spawn(&context.cluster);
}
