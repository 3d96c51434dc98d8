//! The conditions: which failures are worth a status, which changes of `Published` are worth an Event, and
//! `Ready`, which says whether new machines can boot with what is published, even if newer content is not.
//!
//! `Ready` is written together with `Published`, and never changes without a reason to write that one.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use osm_api::condition::{READY, REASON_DELETED, Verdict};
use osm_api::config::{OperatingSystemConfigStatus, Published};
use osm_api::{Reason, names};

use crate::model::existing::ExistingObjects;
use crate::model::view::{ConfigView, SecretView};

/// `kept` is what stays in force although `published` is `False`; `None`: nothing does.
pub fn ready(published: &Verdict, kept: Option<&Published>) -> Verdict {
    let message = match kept {
        _ if published.status => "user data is published, so new machines can boot".to_owned(),
        Some(kept) if published.reason != Reason::RepeatedlyModified => format!(
            "new machines boot with what was published last, whose credentials expire at {}; newer content is not published, see the \
             condition Published",
            kept.credential_expiration_time
        ),
        _ => return published.of_type(READY),
    };
    Verdict {
        type_: READY,
        status: true,
        reason: Reason::Published,
        message,
    }
}

/// What the status says is published, where nothing was just seen to be: what was stays, unless the pool is
/// gone.
pub fn kept(before: &OperatingSystemConfigStatus, published: &Verdict) -> Option<Published> {
    let is_kept = published.reason != REASON_DELETED;
    before.published.clone().filter(|_| is_kept)
}

/// When the credentials of a pool expire: as its bootstrap Secret has it, and as its status has it where that
/// is missing.
pub fn expiry(config: &ConfigView, bootstrap: Option<&SecretView>) -> Option<Timestamp> {
    if config.is_retired() {
        return None;
    }
    let of_secret = bootstrap.and_then(|secret| secret.meta.time(names::EXPIRES));
    let status = config.status.published.as_ref();
    of_secret.or_else(|| status?.credential_expiration_time.parse().ok())
}

/// Whether machines of `pool` can boot with these objects: none is missing, and the credentials have not
/// expired.
pub fn is_in_force(
    existing: &ExistingObjects,
    pool: &str,
    needs_kubeconfig_secret: bool,
    now: Timestamp,
) -> bool {
    let Some(bootstrap) = existing.bootstrap.as_ref().map(|secret| &secret.meta) else {
        return false;
    };
    bootstrap.pool() == Some(pool)
        && bootstrap.time(names::EXPIRES).is_some_and(|at| at > now)
        && existing.document().is_some()
        && (existing.kubeconfig.is_some() || !needs_kubeconfig_secret)
        && existing.account.is_some()
        && existing.role.is_some()
        && existing.binding.is_some()
}

/// A failure that may pass is reported once it has lasted this long. Most pass sooner, and their condition
/// would only change twice.
const REPORT_FAILURE_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// Waiting for another controller is not a failure, and neither is the end of a pool.
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
    use std::sync::Arc;

    use super::*;
    use crate::plan::fixtures::{self, POOL};
    use crate::plan::messages;

    fn last() -> Published {
        Published {
            digest: "d".into(),
            revision: "1".into(),
            bootstrap_secret: "b".into(),
            provisioning_secret: "p".into(),
            credential_expiration_time: "tomorrow".into(),
        }
    }

    #[test]
    fn it_is_true_while_something_is_in_force() {
        let published = messages::published("tomorrow");
        let failed = messages::not_published(Reason::SourceNotFound, "a Secret is missing");
        let altered = messages::not_published(Reason::RepeatedlyModified, "altered");
        let kept = last();
        for (of, kept, status, reason, text) in [
            (
                &published,
                Some(&kept),
                true,
                Reason::Published,
                "new machines can boot",
            ),
            (
                &failed,
                Some(&kept),
                true,
                Reason::Published,
                "expire at tomorrow; newer content",
            ),
            (
                &failed,
                None,
                false,
                Reason::SourceNotFound,
                "a Secret is missing",
            ),
            (
                &altered,
                Some(&kept),
                false,
                Reason::RepeatedlyModified,
                "altered",
            ),
            (
                &messages::waiting_for_revision(),
                None,
                false,
                Reason::WaitingForRevision,
                "machine-controller has not set",
            ),
            (
                &messages::torn_down(),
                None,
                false,
                Reason::Deleted,
                "the pool is gone",
            ),
        ] {
            let ready = ready(of, kept);
            assert_eq!((ready.type_, ready.status, ready.reason), (READY, status, reason));
            assert!(ready.message.contains(text), "{}", ready.message);
        }
    }

    #[test]
    fn what_lacks_a_part_or_has_expired_is_not_in_force() {
        let existing = fixtures::published().existing;
        let is = |existing: &ExistingObjects| is_in_force(existing, POOL, false, fixtures::now());
        assert!(is(&existing));
        assert!(!is_in_force(&existing, POOL, true, fixtures::now()));
        assert!(is_in_force(&existing, POOL, false, fixtures::hours(19)));
        assert!(!is_in_force(&existing, POOL, false, fixtures::hours(21)));
        assert!(!is_in_force(&existing, "another pool", false, fixtures::now()));
        let late = fixtures::published_late().existing;
        assert!(is_in_force(&late, POOL, true, fixtures::now()));
        type Break = fn(&mut ExistingObjects);
        let breaks: [(&str, Break); 6] = [
            ("bootstrap", |o| o.bootstrap = None),
            ("account", |o| o.account = None),
            ("role", |o| o.role = None),
            ("binding", |o| o.binding = None),
            ("provisioning", |o| o.provisioning.clear()),
            ("another document", |o| {
                Arc::make_mut(&mut o.provisioning[0]).meta.name = "other".into();
            }),
        ];
        for (what, break_it) in breaks {
            let mut existing = existing.clone();
            break_it(&mut existing);
            assert!(!is(&existing), "{what}");
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn failures_and_recoveries_are_announced_once() {
        let condition = |verdict: &Verdict| verdict.condition(&[], Some(1), at(0));
        let published = messages::published("tomorrow");
        let failed = messages::not_published(Reason::ForeignSecret, "failed");
        let other = messages::not_published(Reason::SourceNotFound, "failed");
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
        assert!(is_reported(false, at(0), at(0)));
        assert!(!is_reported(true, at(0), at(9)) && is_reported(true, at(0), at(10)));
    }
}
