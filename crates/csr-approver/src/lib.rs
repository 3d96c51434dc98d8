//! csr-approver: approves the certificates with which the machines of a pool join the cluster.
//!
//! It owns the conditions `Approved` and `Denied` of CertificateSigningRequests that ServiceAccounts of pools have made, and the Leases
//! that record its approvals. It connects only to the worker cluster. It has no right on Secrets and reads no settings.
//!
//! A reconcile decides about the requests of one requester: `gather → plan → apply → report`. [`gather`] collects what the watches have
//! shown, [`mod@plan`] makes all decisions, [`apply`] makes sure of a decision by [`live`] reads, makes the [`claim`]
//! ([`hold`](mod@hold)) and writes the decision, and [`report`] alone counts, logs and emits Events.

#![allow(missing_docs)] // This crate is not published; comments say why, and names say what.
#![deny(clippy::disallowed_types)]

pub mod apply;
pub mod claim;
pub mod claims;
pub mod gather;
pub mod hold;
pub mod key;
pub mod live;
pub mod metrics;
pub mod pkcs10;
pub mod plan;
pub mod report;
pub mod reporting;
pub mod request;
pub mod requester;
pub mod state;
pub mod unjoined;
pub mod verdict;
pub mod views;
pub mod watches;

use std::sync::Arc;
use std::time::Duration;

use osm_runtime::{Cluster, Process, RequestError, runner};

use crate::key::Key;
use crate::requester::Requester;
use crate::state::State;

/// Runs the controller until shutdown.
///
/// # Errors
/// Metrics whose names are taken.
pub async fn run(process: Arc<Process>, cluster: Cluster) -> anyhow::Result<()> {
    let state = State::new(&process, &cluster)?;
    watches::start(&state);
    let (queue, shared) = (state.queue.clone(), state.clone());
    let work = move |key| reconcile(state.clone(), key);
    runner::work(&cluster, cluster.namespace(), queue, shared, work).await;
    Ok(())
}

async fn reconcile(state: State, key: Key) -> Result<Option<Duration>, RequestError> {
    match key {
        Key::Claims => claims::reconcile(&state).await,
        Key::Unjoined => Ok(Some(unjoined::reconcile(&state))),
        Key::Requester(requester) => decide(&state, &requester).await,
    }
}

/// Decides about the requests of one requester.
async fn decide(state: &State, requester: &Requester) -> Result<Option<Duration>, RequestError> {
    let gathered = gather::gather(state, requester);
    let plan = plan::plan(&gathered);
    let has_more = plan.has_more;
    let results = apply::apply(state, gathered.now, plan).await;
    let again = report::report(state, requester, &results.applied, has_more).await;
    results.failure.map_or(Ok(again), Err)
}
