//! Reports what was decided: metrics, logs and Events. No other module does.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use osm_api::{PoolRef, Reason};

use crate::apply::{Applied, Approved, Outcome};
use crate::context::Context;
use crate::reporting::Pending;
use crate::request::Request;
use crate::requester::Requester;
use crate::verdict::Wait;

/// Pending requests are decided again after this time, if nothing else wakes their requester.
const RECHECK: Duration = Duration::from_secs(60);

/// A request waits as long as this before an Event is emitted: machine-controller may just be recording its Machine.
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
                let waited = waited(&applied.request, now);
                reporting.metrics.approved(approved.reason());
                reporting.metrics.approval.observe(waited.as_secs_f64());
                let Approved { node, joins_as, .. } = approved;
                tracing::info!(request = applied.request.name, %requester, node, joins_as, ?waited, "approved");
                warn_of_another(context, &applied.request, approved).await;
            }
            Outcome::Denied(denial) => reporting.metrics.denied(denial.reason()),
            Outcome::Waiting(wait) => {
                tracing::debug!(request = applied.request.name, %requester, "waits: {wait}");
            }
            Outcome::Gone => {}
        }
    }
    reporting.count(requester, pending(applied), now);
    for notice in notices(applied, now) {
        let reason = notice.reason;
        let is_due = notice
            .pool
            .as_ref()
            .is_none_or(|pool| reporting.is_due(pool, reason));
        if notice.is_denial {
            tracing::warn!(%requester, %reason, requests = notice.requests, "denied: {}", notice.message);
        } else if is_due {
            tracing::info!(%requester, %reason, requests = notice.requests, "waits: {}", notice.message);
        }
        if let Some(pool) = notice.pool.filter(|_| is_due) {
            let events = &context.cluster.worker.events;
            events
                .warning(&ObjectReference::from(&pool), reason, &notice.message)
                .await;
        }
    }
    again(applied, has_more, now)
}

/// Warns of a second certificate for the same machine. Whoever got the first one has not used it yet.
async fn warn_of_another(context: &Context, request: &Request, approved: &Approved) {
    let Some(about) = &approved.again else {
        return;
    };
    let message = format!(
        "CertificateSigningRequest {} is not the first one that was approved for node {}, which has no Node; if the machine was not restarted \
         or reinstalled, delete {}",
        request.name, approved.node, approved.joins_as
    );
    tracing::warn!(reason = %Reason::ApprovedAgain, "{message}");
    let events = &context.cluster.worker.events;
    events.warning(about, Reason::ApprovedAgain, &message).await;
}

/// How long a request has waited. Its creation time has whole seconds.
fn waited(request: &Request, now: Timestamp) -> Duration {
    let since_created = now.duration_since(request.created) - SignedDuration::from_secs(1);
    let since_created = Duration::try_from(since_created).unwrap_or_default();
    request.seen.elapsed().max(since_created)
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

/// Something to tell about the requests of one pool that have the same reason.
#[derive(Debug, PartialEq, Eq)]
struct Notice {
    /// The object of the Event; `None`: there is no Event.
    pool: Option<PoolRef>,
    reason: Reason,
    is_denial: bool,
    requests: usize,
    message: String,
}

/// One notice for each pool and reason.
fn notices(applied: &[Applied], now: Timestamp) -> Vec<Notice> {
    let mut notices: BTreeMap<(Option<&PoolRef>, Reason), Notice> = BTreeMap::new();
    for Applied {
        request,
        pool,
        outcome,
    } in applied
    {
        let (reason, is_denial, text) = match outcome {
            Outcome::Denied(denial) => (denial.reason(), true, denial.to_string()),
            Outcome::Waiting(wait)
                if *wait != Wait::PoolNotFound && now.duration_since(request.created) >= PATIENCE =>
            {
                (wait.reason(), false, wait.to_string())
            }
            _ => continue,
        };
        let notice = notices.entry((pool.as_ref(), reason)).or_insert_with(|| Notice {
            pool: pool.clone(),
            reason,
            is_denial,
            requests: 0,
            message: format!("CertificateSigningRequest {}: {text}", request.name),
        });
        notice.requests += 1;
    }
    notices.into_values().collect()
}

fn again(applied: &[Applied], has_more: bool, now: Timestamp) -> Option<Duration> {
    // Without progress, the next reconcile would find the same.
    let has_progress = || {
        let mut outcomes = applied.iter().map(|applied| &applied.outcome);
        outcomes.any(|outcome| !matches!(outcome, Outcome::Waiting(_)))
    };
    if has_more && has_progress() {
        return Some(Duration::ZERO);
    }
    let due = applied.iter().filter_map(|applied| match &applied.outcome {
        Outcome::Waiting(Wait::AlreadyApproved { until, .. }) => Some(
            Duration::try_from(until.duration_since(now))
                .unwrap_or_default()
                .min(RECHECK),
        ),
        Outcome::Waiting(_) => Some(RECHECK),
        _ => None,
    });
    due.min()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
    fn each_pool_and_reason_has_one_notice_and_who_has_just_asked_has_none() {
        let exists = || Outcome::Waiting(Wait::NodeExists("n".to_owned()));
        let denied = || Outcome::Denied(Denial::Unreadable("x"));
        let all = [
            applied("a", 0, exists()),
            applied("a", 1, exists()),
            applied("b", 0, exists()),
            applied("a", 99, denied()),
            applied("a", 99, denied()),
            applied("c", 41, exists()),
            applied("c", 0, Outcome::Waiting(Wait::PoolNotFound)),
            applied("c", 0, Outcome::Gone),
        ];
        let notices = notices(&all, at(100));
        let brief: Vec<(&str, Reason, usize, bool)> = notices
            .iter()
            .map(|notice| {
                (
                    notice.pool.as_ref().unwrap().name.as_str(),
                    notice.reason,
                    notice.requests,
                    notice.is_denial,
                )
            })
            .collect();
        assert_eq!(
            brief,
            [
                ("a", Reason::NodeExists, 2, false),
                ("a", Reason::RequestUnreadable, 2, true),
                ("b", Reason::NodeExists, 1, false),
            ]
        );
        assert!(
            notices[0]
                .message
                .starts_with("CertificateSigningRequest csr-0: Node n exists")
        );
    }

    #[test]
    fn pending_requests_are_decided_again() {
        let taken = |until: i64| {
            let node = "n".to_owned();
            waits(
                0,
                Wait::AlreadyApproved {
                    node,
                    until: at(until),
                },
            )
        };
        let exists = || waits(0, Wait::NodeExists("n".to_owned()));
        for (applied, has_more, seconds) in [
            (vec![], false, None),
            (vec![applied("a", 0, Outcome::Gone)], true, Some(0)),
            (vec![exists()], false, Some(60)),
            (vec![exists(), taken(105)], false, Some(5)),
            (vec![taken(90)], false, Some(0)),
            (vec![taken(700)], false, Some(60)),
            (vec![exists(), applied("a", 0, Outcome::Gone)], true, Some(0)),
            (vec![exists()], true, Some(60)),
        ] {
            let due = again(&applied, has_more, at(100));
            assert_eq!(due.map(|due| due.as_secs()), seconds, "{applied:?}");
        }
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

    #[tokio::test(start_paused = true)]
    async fn the_time_of_waiting_is_measured_here_and_by_the_api_server_where_that_is_longer() {
        let request = applied("a", 100, Outcome::Gone).request;
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(waited(&request, at(100)).as_millis(), 300);
        assert_eq!(waited(&request, at(101)).as_millis(), 300);
        assert_eq!(waited(&request, at(161)).as_secs(), 60);
    }
}
