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
use crate::key::Key;
use crate::request::Seen;
use crate::requester::Requester;
use crate::state::State;
use crate::views::{ClaimView, MachineSetView, MachineView, PoolView};

/// Interval of listing requests again that were not remembered.
const RELIST_INTERVAL: Duration = Duration::from_secs(300);

/// Starts all watches.
pub fn start(state: &State) {
    requests(state, CLIENT_SIGNER, "certificatesigningrequests");
    machines(state);
    machine_sets(state);
    pools(state);
    nodes(state);
    claims(state);
    if state.cluster.installation.serving_certificates {
        requests(state, SERVING_SIGNER, "serving-certificate-requests");
    }
    relist(state);
    state.queue.add(Key::Claims);
    state.queue.add(Key::Unjoined);
}

fn requests(state: &State, signer: &str, what: &'static str) {
    let (keeper, waker) = (state.clone(), state.clone());
    Watch::all(&state.cluster.worker, what)
        .fields(&format!("spec.signerName={signer}"))
        // What is remembered has bounds of its own, which do not break the watch.
        .at_most(usize::MAX)
        .project(move |object: CertificateSigningRequest| {
            let known = keeper.requests.get(object.metadata.name.as_deref()?);
            let seen = Seen::of(object, known.as_deref())?;
            (known.is_some() || keeper.is_kept(&seen)).then_some(seen)
        })
        .into_cache(&state.requests)
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
        .spawn(&state.cluster);
}

/// Whether something that decisions depend on has changed.
fn differs<V: PartialEq>(change: &Change<V>) -> bool {
    change.old.as_deref() != change.new.as_deref()
}

fn machines(state: &State) {
    let waker = state.clone();
    Watch::all(&state.cluster.worker, "machines")
        .project(|machine: Machine| Some(MachineView::from(machine)))
        .into_cache(&state.machines)
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
        .spawn(&state.cluster);
}

fn machine_sets(state: &State) {
    let waker = state.clone();
    Watch::<MachineSet>::all(&state.cluster.worker, "machinesets")
        .metadata_only()
        .project(|set: PartialObjectMeta<MachineSet>| Some(MachineSetView::from(set)))
        .into_cache(&state.machine_sets)
        .on_change(move |change| {
            if differs(&change) {
                waker.wake_where(|_| true);
            }
        })
        .spawn(&state.cluster);
}

fn pools(state: &State) {
    let waker = state.clone();
    Watch::all(&state.cluster.worker, "machinedeployments")
        .project(|md: MachineDeployment| Some(PoolView::of(&md)))
        .unreadable(|md| Some(PoolView::unreadable(md)))
        .into_cache(&state.pools)
        .on_change(move |change| {
            if differs(&change) {
                for pool in change.old.iter().chain(&change.new) {
                    waker.wake(Requester::Pool(pool.account.clone()));
                    waker.wake_askers(&[pool.edge_node.as_deref()]);
                }
                waker.wake_where(|request| matches!(request.requester, Requester::AnyPool(_)));
            }
        })
        .spawn(&state.cluster);
}

fn nodes(state: &State) {
    let waker = state.clone();
    Watch::<Node>::all(&state.cluster.worker, "nodes")
        .metadata_only()
        .project(|_: PartialObjectMeta<Node>| Some(()))
        .into_cache(&state.nodes)
        .on_change(move |change| {
            if differs(&change) {
                waker.wake_askers(&[Some(&change.key)]);
            }
        })
        .spawn(&state.cluster);
}

fn claims(state: &State) {
    let waker = state.clone();
    Watch::namespaced(&state.cluster.worker, state.cluster.namespace(), "claims")
        .labels(&format!("{ROLE}={}", claim::ROLE))
        .project(|lease: Lease| ClaimView::of(&lease))
        .into_cache(&state.claims)
        .on_change(move |change| {
            // A new claim makes nothing right; one that is gone, or has changed, may.
            if differs(&change)
                && let Some(claim) = &change.old
            {
                waker.wake_askers(&[Some(&claim.node)]);
            }
        })
        .spawn(&state.cluster);
}

/// Lists everything again, at intervals, while requests were not remembered: meanwhile others may have been decided.
fn relist(state: &State) {
    let (lister, shutdown) = (state.clone(), state.cluster.shutdown.clone());
    let end = shutdown.clone();
    state
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
