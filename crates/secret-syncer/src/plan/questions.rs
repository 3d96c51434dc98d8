//! When the API server has to be asked what tokens may do.

use std::time::Duration;

use crate::plan::findings::Cause;

/// How long an answer about one token is used for all pools. Their tokens have the same rights, unless
/// another program has bound a single one, and their Roles have the same form.
const ANSWER_TTL: Duration = Duration::from_secs(300);

/// `yes`: how long ago the answer was that tokens may; `None` also after another answer.
pub fn is_known(yes: Option<Duration>) -> bool {
    yes.is_some_and(|ago| ago < ANSWER_TTL)
}

/// Whether it is known that a pool's token opens what its Role names, because that [is known](is_known) of
/// another pool. `is_as_written`: the API server has stored the pool's Role and RoleBinding as they were
/// sent.
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
}
