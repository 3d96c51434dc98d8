//! When the API server has to be asked whether a pool's token opens what its Role names.

use std::time::Duration;

use crate::plan::findings::Cause;

/// The Roles of all pools have the same form, so an answer about one of them is good for this long.
const READ_RIGHT_TTL: Duration = Duration::from_secs(300);

/// `found`: how long ago a token of any pool was last found to open its Secret; `None` also after it was found not to.
/// `is_as_written`: the API server has stored the pool's Role and RoleBinding as they were sent.
pub fn has_to_be_asked(found: Option<Duration>, causes: &[Cause], is_as_written: bool) -> bool {
    let is_repaired = |cause: &Cause| {
        matches!(
            cause,
            Cause::Modified | Cause::TokensInvalid | Cause::RoleModified
        )
    };
    !is_as_written || causes.iter().any(is_repaired) || found.is_none_or(|ago| ago >= READ_RIGHT_TTL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_is_good_for_five_minutes_for_identities_that_are_as_written_and_that_nobody_else_changed() {
        for (found, cause, is_as_written, expected) in [
            (None, Cause::NewRevision, true, true),
            (Some(0), Cause::NewRevision, true, false),
            (Some(299), Cause::Missing, true, false),
            (Some(300), Cause::Missing, true, true),
            (Some(0), Cause::RenewalDue, false, true),
            (Some(0), Cause::RenewalDue, true, false),
            (Some(0), Cause::RoleModified, true, true),
            (Some(0), Cause::Modified, true, true),
            (Some(0), Cause::TokensInvalid, true, true),
        ] {
            let found = found.map(Duration::from_secs);
            assert_eq!(
                has_to_be_asked(found, &[cause], is_as_written),
                expected,
                "{found:?} {cause:?} {is_as_written}"
            );
        }
    }
}
