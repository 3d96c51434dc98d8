//! csr-approver: approves the certificates with which the machines of a pool join the cluster.
//!
//! It owns the conditions `Approved` and `Denied` of CertificateSigningRequests that ServiceAccounts of pools
//! have made, and the Leases that record its approvals. It reports a binding with which tokens of pools need
//! no approval. It connects only to worker clusters, and for a fleet to the seed. It reads no settings, and no
//! Secret but its kubeconfigs of a fleet.
//!
//! A reconcile decides about the requests of one requester: `gather → plan → apply → report`. [`gather`]
//! collects what the watches have shown, [`mod@plan`] makes all decisions, [`apply`] makes sure of a decision
//! by [`live`] reads, makes the [`claim`] ([`acquire`](mod@acquire)) and writes the decision, and [`report`]
//! alone counts, logs and emits Events.

pub mod acquire;
pub mod apply;
pub mod claim;
pub mod claims;
pub mod context;
pub mod gather;
pub mod key;
pub mod live;
pub mod metrics;
pub mod nodeclient_binding;
pub mod pkcs10;
pub mod plan;
pub mod report;
pub mod reporting;
pub mod request;
pub mod requester;
pub mod unjoined;
pub mod verdict;
pub mod views;
pub mod watches;

use std::sync::Arc;
use std::time::Duration;

use osm_runtime::Controller;
use osm_runtime::{Cluster, Error, runner};

use crate::context::Context;
use crate::key::Key;
use crate::metrics::JoiningMetrics;
use crate::requester::Requester;

/// What this process has once, however many clusters it serves: the metrics.
pub struct CsrApprover(Arc<JoiningMetrics>);

impl Controller for CsrApprover {
    fn start(of: &Cluster) -> Result<Self, prometheus::Error> {
        Ok(Self(Arc::new(JoiningMetrics::new(&of.process.metrics)?)))
    }

    async fn serve(&self, cluster: Cluster) {
        let context = Context::new(&self.0, &cluster);
        let _ = cluster
            .shutdown
            .run_until_cancelled(watches::start(&context))
            .await;
        let (queue, keys) = (context.queue.clone(), context.clone());
        let work = move |key| reconcile(context.clone(), key);
        runner::work((&cluster, &cluster.replicas), queue, keys, work).await;
    }
}

async fn reconcile(context: Context, key: Key) -> Result<Option<Duration>, Error> {
    match key {
        Key::Housekeeping => {
            unjoined::count(&context);
            claims::reconcile(&context).await
        }
        Key::NodeclientBinding => nodeclient_binding::reconcile(&context).await,
        Key::Requester(requester) => decide(&context, &requester).await,
    }
}

/// Decides about the requests of one requester.
async fn decide(context: &Context, requester: &Requester) -> Result<Option<Duration>, Error> {
    let gathered = gather::gather(context, requester);
    let plan = plan::plan(&gathered);
    let has_more = plan.has_more;
    let results = apply::apply(context, gathered.now, plan).await;
    let again = report::report(context, requester, &results.applied, has_more).await;
    results.failure.map_or(Ok(again), Err)
}
