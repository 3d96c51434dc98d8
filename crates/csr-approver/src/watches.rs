//! What is watched, and which change queues which requester.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::PartialObjectMeta;
use osm_api::names::ROLE;
use osm_api::rbac::CLIENT_SIGNER;
use osm_api::{Machine, MachineDeployment, MachineSet};
use osm_runtime::cache::Change;
use osm_runtime::watch::Watch;

use crate::claim;
use crate::context::Context;
use crate::key::Key;
use crate::request::Seen;
use crate::views::{ClaimView, MachineSetView, MachineView, PoolView};

pub fn start(context: &Context) {
    requests(context);
    machines(context);
    machine_sets(context);
    pools(context);
    nodes(context);
    claims(context);
    context.queue.add(Key::Housekeeping);
}

fn requests(context: &Context) {
    let (keeper, waker) = (context.clone(), context.clone());
    Watch::all(&context.cluster.worker, "certificatesigningrequests")
        .fields(&format!("spec.signerName={CLIENT_SIGNER}"))
        // What is remembered has bounds of its own, which do not break the watch.
        .at_most(usize::MAX)
        .project(move |object: CertificateSigningRequest| {
            let known = keeper.requests.get(object.metadata.name.as_deref()?);
            let seen = Seen::of(object, known.as_deref())?;
            (known.is_some() || keeper.is_kept(&seen)).then_some(seen)
        })
        .into_cache(&context.requests)
        .on_change(move |change| {
            let both = || change.new.iter().chain(&change.old);
            if let Some(request) = both().find_map(|seen| seen.pending()) {
                waker.queue.add(Key::Requester(request.requester.clone()));
            }
            // Without the approval, another request may be right.
            if change.new.is_none() && change.old.is_some_and(|old| old.approved().is_some()) {
                waker.wake_all();
            }
        })
        .spawn(&context.cluster);
}

/// Decides again if something that decisions depend on has changed. Most updates, such as those of a status, change nothing that is kept.
fn wake_if_different<V: PartialEq + 'static>(context: &Context) -> impl Fn(Change<V>) + Send + Sync + use<V> {
    let waker = context.clone();
    move |change| {
        if change.old.as_deref() != change.new.as_deref() {
            waker.wake_all();
        }
    }
}

fn machines(context: &Context) {
    Watch::all(&context.cluster.worker, "machines")
        .project(|machine: Machine| Some(MachineView::from(machine)))
        .into_cache(&context.machines)
        .on_change(wake_if_different(context))
        .spawn(&context.cluster);
}

fn machine_sets(context: &Context) {
    Watch::all(&context.cluster.worker, "machinesets")
        .project(|set: PartialObjectMeta<MachineSet>| Some(MachineSetView::from(set)))
        .into_cache(&context.machine_sets)
        .on_change(wake_if_different(context))
        .spawn(&context.cluster);
}

fn pools(context: &Context) {
    Watch::all(&context.cluster.worker, "machinedeployments")
        .project(|md: MachineDeployment| Some(PoolView::of(&md)))
        .unreadable(|md| Some(PoolView::unreadable(md)))
        .into_cache(&context.pools)
        .on_change(wake_if_different(context))
        .spawn(&context.cluster);
}

fn nodes(context: &Context) {
    Watch::all(&context.cluster.worker, "nodes")
        .project(|_: PartialObjectMeta<Node>| Some(()))
        .into_cache(&context.nodes)
        .on_change(wake_if_different(context))
        .spawn(&context.cluster);
}

fn claims(context: &Context) {
    Watch::namespaced(&context.cluster.worker, context.cluster.namespace(), "claims")
        .labels(&format!("{ROLE}={}", claim::ROLE))
        .project(|lease: Lease| ClaimView::of(&lease))
        .into_cache(&context.claims)
        .spawn(&context.cluster);
}
