//! Reports what was decided: metrics, logs and Events. No other module does.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use osm_api::Reason;

use crate::apply::{Applied, Approved, Outcome};
use crate::context::Context;
use crate::reporting::Pending;
use crate::request::Request;
use crate::requester::Requester;
use crate::verdict::Wait;

/// Pending requests are decided again after this time, if nothing else requeues their requester: some waits
/// end, and all become late, by time alone.
const RECHECK: Duration = Duration::from_secs(60);

/// A request waits this long before an Event is emitted: machine-controller may just be recording its
/// Machine.
const PATIENCE: SignedDuration = SignedDuration::from_secs(60);

/// Reports the outcomes of a requester's requests; returns when to decide again.
pub async fn report(
    context: &Context,
    requester: &Requester,
    applied: &[Applied],
    has_more: bool,
) -> Option<Duration> {
    let now = context.cluster.worker.server_time.now();
    let reporting = &context.reporting;
    for applied in applied {
        match &applied.outcome {
            Outcome::Approved(approved) => {
                let waited = now.duration_since(applied.request.created);
                reporting.metrics.approved(approved.reason());
                reporting.metrics.approval.observe(waited.as_secs_f64().max(0.0));
                let Approved {
                    node,
                    joining_identity,
                    ..
                } = approved;
                tracing::info!(request = applied.request.name, %requester, node, joins_as = joining_identity, ?waited, "approved");
                warn_of_another(context, &applied.request, approved).await;
            }
            Outcome::Denied(denial) => {
                let reason = denial.reason();
                reporting.metrics.denied(reason);
                tracing::warn!(request = applied.request.name, %requester, %reason, "denied: {denial}");
                warn(context, applied, reason, &denial.to_string()).await;
            }
            Outcome::Waiting(wait) => {
                tracing::debug!(request = applied.request.name, %requester, "waits: {wait}");
                if is_late(&applied.request, wait, now) {
                    warn(context, applied, wait.reason(), &wait.to_string()).await;
                }
            }
            Outcome::Gone => {}
        }
    }
    reporting.count(requester, pending(applied), now);
    requeue_after(applied, has_more)
}

/// Whether a request has waited so long that its pool's owner should know. A request of a deleted pool is
/// never late: there is no owner to notify.
fn is_late(request: &Request, wait: &Wait, now: Timestamp) -> bool {
    *wait != Wait::PoolNotFound && now.duration_since(request.created) >= PATIENCE
}

/// Logs why a request is not approved and emits an Event about its pool, if that is known, unless this was
/// done with the same reason minutes ago.
async fn warn(context: &Context, applied: &Applied, reason: Reason, text: &str) {
    let (pool, requester) = (applied.pool.as_ref(), &applied.request.requester);
    let about = pool.map_or_else(|| requester.to_string(), |pool| pool.uid.clone());
    if !context.reporting.is_due(&about, reason.as_str()) {
        return;
    }
    let message = format!("CertificateSigningRequest {}: {text}", applied.request.name);
    let Some(pool) = pool else {
        tracing::info!(%requester, %reason, "{message}");
        return;
    };
    tracing::info!(%pool, %reason, "{message}");
    let events = &context.cluster.worker.events;
    events
        .warning(&ObjectReference::from(pool), reason, &message)
        .await;
}

/// Warns of a second certificate for the same machine. The holder of the first one has not used it yet.
async fn warn_of_another(context: &Context, request: &Request, approved: &Approved) {
    let Some(about) = &approved.again else {
        return;
    };
    let message = format!(
        "CertificateSigningRequest {} is not the first one that was approved for node {}, which has no Node; if the machine was not restarted \
         or reinstalled, delete {}",
        request.name, approved.node, approved.joining_identity
    );
    tracing::warn!(reason = %Reason::ApprovedAgain, "{message}");
    let events = &context.cluster.worker.events;
    events.warning(about, Reason::ApprovedAgain, &message).await;
}

fn pending(applied: &[Applied]) -> Pending {
    let mut pending = Pending::default();
    for applied in applied {
        if let Outcome::Waiting(wait) = &applied.outcome {
            *pending.reasons.entry(wait.reason()).or_default() += 1;
            if *wait != Wait::PoolNotFound {
                let created = applied.request.created;
                pending.oldest = Some(pending.oldest.map_or(created, |oldest| oldest.min(created)));
            }
        }
    }
    pending
}

/// When to decide again.
fn requeue_after(applied: &[Applied], has_more: bool) -> Option<Duration> {
    let waits = |applied: &Applied| matches!(applied.outcome, Outcome::Waiting(_));
    // Requeue at once only if at least one request was handled: otherwise the next reconcile would find the
    // same.
    if has_more && !applied.iter().all(waits) {
        return Some(Duration::ZERO);
    }
    applied.iter().any(waits).then_some(RECHECK)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use osm_api::PoolRef;
    use osm_sim::memory::Calm;

    use crate::context::tests::context;
    use crate::verdict::Denial;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn applied(pool: &str, created: i64, outcome: Outcome) -> Applied {
        let request = Request::for_test(
            &format!("csr-{created}"),
            at(created),
            Err(Denial::Unreadable("x")),
        );
        Applied {
            request: Arc::new(request),
            pool: Some(PoolRef::machine_deployment("kube-system", pool, pool)),
            outcome,
        }
    }

    fn waits(created: i64, wait: Wait) -> Applied {
        applied("a", created, Outcome::Waiting(wait))
    }

    #[test]
    fn who_has_just_asked_or_belongs_to_no_pool_is_not_late() {
        let exists = Wait::NodeExists("n".to_owned());
        for (created, wait, late) in [
            (40, &exists, true),
            (41, &exists, false),
            (0, &Wait::PoolNotFound, false),
        ] {
            let request = waits(created, wait.clone()).request;
            assert_eq!(is_late(&request, wait, at(100)), late, "{created}");
        }
    }

    #[test]
    fn pending_requests_are_decided_again() {
        let exists = || waits(0, Wait::NodeExists("n".to_owned()));
        let gone = || applied("a", 0, Outcome::Gone);
        for (applied, has_more, seconds) in [
            (vec![], false, None),
            (vec![gone()], false, None),
            (vec![gone()], true, Some(0)),
            (vec![exists()], false, Some(60)),
            (vec![exists(), gone()], true, Some(0)),
            (vec![exists()], true, Some(60)),
        ] {
            let due = requeue_after(&applied, has_more);
            assert_eq!(due.map(|due| due.as_secs()), seconds, "{applied:?}");
        }
    }

    /// No Event can be emitted about it.
    #[tokio::test]
    async fn a_request_that_waits_without_a_pool_is_logged_once_in_a_while() {
        let context = context(Calm);
        let mut waits = waits(0, Wait::MachineNotFound("n".to_owned()));
        waits.pool = None;
        let requester = waits.request.requester.clone();
        report(&context, &requester, &[waits], false).await;
        let is_due = |reason: Reason| context.reporting.is_due(&requester.to_string(), reason.as_str());
        assert!(!is_due(Reason::MachineNotFound), "it was logged");
        assert!(is_due(Reason::NodeExists));
    }

    #[test]
    fn requests_of_pools_that_are_gone_are_counted_but_not_as_the_oldest() {
        let all = [
            waits(5, Wait::PoolNotFound),
            waits(7, Wait::NodeExists("n".to_owned())),
        ];
        let pending = pending(&all);
        assert_eq!(pending.oldest, Some(at(7)));
        assert_eq!(pending.reasons.values().sum::<i64>(), 2);
    }
}
