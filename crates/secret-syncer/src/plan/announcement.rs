//! Which changes of the condition `Published` are worth an Event, and which failures are worth a status.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use osm_api::Reason;
use osm_api::condition::{REASON_DELETED, Verdict};

/// A failure that may pass is reported once it has lasted this long.
const REPORT_FAILURE_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// Waiting for another controller, and the end of a pool, are no failures.
const NO_FAILURES: [Reason; 3] = [
    Reason::WaitingForRendering,
    Reason::WaitingForRevision,
    REASON_DELETED,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announcement {
    Warning,
    Recovery,
}

/// Whether status or reason differ; another message alone is not worth a line in the log.
pub fn is_change(before: Option<&Condition>, verdict: &Verdict) -> bool {
    before
        .is_none_or(|before| verdict.reason != *before.reason || (before.status == "True") != verdict.status)
}

/// The Event for a verdict, given the condition before.
pub fn event(before: Option<&Condition>, verdict: &Verdict) -> Option<Announcement> {
    let is_failure = |reason: &str| NO_FAILURES.iter().all(|other| *other != *reason);
    let failed_before = before.is_some_and(|before| before.status != "True" && is_failure(&before.reason));
    if verdict.status {
        failed_before.then_some(Announcement::Recovery)
    } else {
        let warns = is_change(before, verdict) && is_failure(verdict.reason.as_str());
        warns.then_some(Announcement::Warning)
    }
}

/// Whether a failure that began at `since` is reported at `now`.
pub fn is_reported(may_pass: bool, since: Timestamp, now: Timestamp) -> bool {
    !may_pass || now.duration_since(since) >= REPORT_FAILURE_AFTER
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::messages;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn failures_and_recoveries_are_announced_once() {
        let condition = |verdict: &Verdict| verdict.condition(&[], Some(1), at(0));
        let published = messages::published("tomorrow", false);
        let failed = messages::not_published(Reason::ForeignSecret, "failed");
        let other = messages::not_published(Reason::SourceMissing, "failed");
        let (waiting, gone) = (messages::waiting_for_revision(), messages::torn_down());
        let (warning, recovery) = (Some(Announcement::Warning), Some(Announcement::Recovery));
        for (what, before, after, expected) in [
            ("the first publish", None, &published, None),
            ("a failure", Some(&published), &failed, warning),
            ("the first thing is a failure", None, &failed, warning),
            ("the same failure", Some(&failed), &failed, None),
            ("another failure", Some(&failed), &other, warning),
            ("a recovery", Some(&failed), &published, recovery),
            ("a wait", Some(&published), &waiting, None),
            ("the end of a wait", Some(&waiting), &published, None),
            ("a failure after a wait", Some(&waiting), &failed, warning),
            ("the end", Some(&failed), &gone, None),
        ] {
            assert_eq!(event(before.map(condition).as_ref(), after), expected, "{what}");
        }
    }

    #[test]
    fn what_may_pass_is_reported_when_it_lasts() {
        for (may_pass, lasts, expected) in [
            (false, 0, true),
            (true, 0, false),
            (true, 9, false),
            (true, 10, true),
        ] {
            assert_eq!(
                is_reported(may_pass, at(0), at(lasts)),
                expected,
                "{may_pass} {lasts}"
            );
        }
    }
}
