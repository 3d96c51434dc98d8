//! When the API server has to be asked what tokens may do.

use std::time::Duration;

use crate::plan::findings::Cause;

/// Tokens of all pools have the same rights, unless another program has bound a single one, and the Roles of all pools have the same form. So
/// an answer about one of them is good for this long.
pub const ANSWER_TTL: Duration = Duration::from_secs(300);

/// The API server is not asked more often than this whether joining is open, however often rights change.
pub const QUESTION_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait before the next question; `asked`: how long ago the last one was.
pub fn pause(asked: Option<Duration>) -> Option<Duration> {
    let left = QUESTION_INTERVAL.saturating_sub(asked?);
    (!left.is_zero()).then_some(left)
}

/// When to ask again. The API server learns of a change of rights by a watch of its own, so the first answer after a change may be an old one.
pub fn requeue_after(has_changed: bool) -> Duration {
    match has_changed {
        true => QUESTION_INTERVAL,
        false => ANSWER_TTL,
    }
}

/// `yes`: how long ago the answer was that tokens may; `None` also after another answer.
pub fn is_known(yes: Option<Duration>) -> bool {
    yes.is_some_and(|ago| ago < ANSWER_TTL)
}

/// Whether it is known that a pool's token opens what its Role names, because that [is known](is_known) of another pool. `is_as_written`: the
/// API server has stored the pool's Role and RoleBinding as they were sent.
pub fn is_readable(yes: Option<Duration>, causes: &[Cause], is_as_written: bool) -> bool {
    let is_repaired = |cause: &Cause| {
        matches!(
            cause,
            Cause::Modified | Cause::TokensInvalid | Cause::RoleModified
        )
    };
    is_as_written && !causes.iter().any(is_repaired) && is_known(yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_is_good_for_five_minutes_for_identities_that_are_as_written_and_that_nobody_else_changed() {
        for (yes, cause, is_as_written, expected) in [
            (None, Cause::NewRevision, true, false),
            (Some(0), Cause::NewRevision, true, true),
            (Some(299), Cause::Missing, true, true),
            (Some(300), Cause::Missing, true, false),
            (Some(0), Cause::RenewalDue, false, false),
            (Some(0), Cause::RenewalDue, true, true),
            (Some(0), Cause::RoleModified, true, false),
            (Some(0), Cause::Modified, true, false),
            (Some(0), Cause::TokensInvalid, true, false),
        ] {
            let known = is_readable(yes.map(Duration::from_secs), &[cause], is_as_written);
            assert_eq!(known, expected, "{yes:?} {cause:?} {is_as_written}");
        }
    }

    #[test]
    fn questions_have_an_interval() {
        let seconds = Duration::from_secs;
        for (asked, expected) in [
            (None, None),
            (Some(0), Some(10)),
            (Some(9), Some(1)),
            (Some(10), None),
            (Some(300), None),
        ] {
            assert_eq!(pause(asked.map(seconds)), expected.map(seconds), "{asked:?}");
        }
    }
}
