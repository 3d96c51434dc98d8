//! What is watched, and which change queues which requester.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::PartialObjectMeta;
use osm_api::names::ROLE;
use osm_api::rbac::{CLIENT_SIGNER, SERVING_SIGNER};
use osm_api::{Machine, MachineDeployment, MachineSet};
use osm_runtime::cache::Change;
use osm_runtime::watch::Watch;

use crate::claim;
use crate::context::Context;
use crate::key::Key;
use crate::request::Seen;
use crate::requester::Requester;
use crate::views::{ClaimView, MachineSetView, MachineView, PoolView};

/// Interval of listing requests again that were not remembered.
const RELIST_INTERVAL: Duration = Duration::from_secs(300);

pub fn start(context: &Context) {
    requests(context);
    machines(context);
    machine_sets(context);
    pools(context);
    nodes(context);
    claims(context);
    relist(context);
    context.queue.add(Key::Claims);
    context.queue.add(Key::Unjoined);
}

/// One watch, because a list of one signer's requests would end those of the other one in the cache.
fn requests(context: &Context) {
    let (keeper, waker) = (context.clone(), context.clone());
    let mut requests = Watch::all(&context.cluster.worker, "certificatesigningrequests");
    if !context.cluster.installation.serving_certificates {
        requests = requests.fields(&format!("spec.signerName={CLIENT_SIGNER}"));
    }
    requests
        // What is remembered has bounds of its own, which do not break the watch.
        .at_most(usize::MAX)
        .project(move |object: CertificateSigningRequest| {
            if ![CLIENT_SIGNER, SERVING_SIGNER].contains(&object.spec.signer_name.as_str()) {
                return None;
            }
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
            if let (Some(old), None) = (&change.old, &change.new) {
                waker.wake_askers(&[old.approved().map(|granted| granted.node.as_str())]);
            }
        })
        .spawn(&context.cluster);
}

/// Whether something that decisions depend on has changed.
fn differs<V: PartialEq>(change: &Change<V>) -> bool {
    change.old.as_deref() != change.new.as_deref()
}

fn machines(context: &Context) {
    let waker = context.clone();
    Watch::all(&context.cluster.worker, "machines")
        .project(|machine: Machine| Some(MachineView::from(machine)))
        .into_cache(&context.machines)
        .on_change(move |change| {
            if !differs(&change) {
                return;
            }
            let both = || change.old.iter().chain(&change.new);
            let names: Vec<Option<&str>> = both().map(|machine| machine.node_name()).collect();
            waker.wake_askers(&names);
            for node in both().filter_map(|machine| machine.node_ref.clone()) {
                waker.wake(Requester::Node(node));
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
            if differs(&change) {
                waker.wake_where(|_| true);
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
            if differs(&change) {
                for pool in change.old.iter().chain(&change.new) {
                    waker.wake(Requester::Pool(pool.account.clone()));
                    waker.wake_askers(&[pool.edge_node.as_deref()]);
                }
                waker.wake_where(|request| matches!(request.requester, Requester::AnyPool(_)));
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
            if differs(&change) {
                waker.wake_askers(&[Some(&change.key)]);
            }
        })
        .spawn(&context.cluster);
}

fn claims(context: &Context) {
    let waker = context.clone();
    Watch::namespaced(&context.cluster.worker, context.cluster.namespace(), "claims")
        .labels(&format!("{ROLE}={}", claim::ROLE))
        .project(|lease: Lease| ClaimView::of(&lease))
        .into_cache(&context.claims)
        .on_change(move |change| {
            // A new claim makes nothing right; one that is gone, or has changed, may.
            if differs(&change)
                && let Some(claim) = &change.old
            {
                waker.wake_askers(&[Some(&claim.node)]);
            }
        })
        .spawn(&context.cluster);
}

/// Lists everything again, at intervals, while requests were not remembered: meanwhile others may have been decided.
fn relist(context: &Context) {
    let (lister, shutdown) = (context.clone(), context.cluster.shutdown.clone());
    let end = shutdown.clone();
    context
        .cluster
        .supervisor()
        .spawn("forgotten requests", &end, async move {
            while shutdown
                .run_until_cancelled(tokio::time::sleep(RELIST_INTERVAL))
                .await
                .is_some()
            {
                if lister.has_forgotten() {
                    lister.cluster.relist.now();
                }
            }
        });
}
