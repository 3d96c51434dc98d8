//! Stops endless repairs: a mutating webhook that alters each write at once must not make us write without
//! end.

use jiff::{SignedDuration, Timestamp};

use crate::model::memory::Repairs;
use crate::plan::findings::{Cause, Finding};
use crate::plan::steps::PlanError;

/// This many repairs in succession are made before something is suspected of reverting each.
const MAX_REPAIRS_IN_SUCCESSION: u32 = 20;
/// Repairs further apart than this are not in succession.
const MIN_REPAIR_INTERVAL: SignedDuration = SignedDuration::from_secs(10);

/// Publishes that put something right, as opposed to those for new content.
const REPAIRS: [Cause; 5] = [
    Cause::Modified,
    Cause::TokensInvalid,
    Cause::RenewalDue,
    Cause::RoleModified,
    Cause::Missing,
];

/// Counts a publish for these findings; `None` where none of them is a repair.
///
/// # Errors
/// One repair too many.
pub fn count(
    findings: &[Finding],
    before: Option<Repairs>,
    now: Timestamp,
) -> Result<Option<Repairs>, PlanError> {
    let Some(repair) = findings.iter().find(|finding| REPAIRS.contains(&finding.cause)) else {
        return Ok(None);
    };
    let before = before.unwrap_or(Repairs { last: now, count: 0 });
    let in_succession = now.duration_since(before.last) < MIN_REPAIR_INTERVAL;
    let count = if in_succession { before.count + 1 } else { 1 };
    if count > MAX_REPAIRS_IN_SUCCESSION {
        Err(PlanError::RepeatedlyModified(repair.clone()))
    } else {
        Ok(Some(Repairs { last: now, count }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn found(causes: &[Cause]) -> Vec<Finding> {
        let finding = |cause: &Cause| Finding {
            cause: *cause,
            message: String::new(),
        };
        causes.iter().map(finding).collect()
    }

    #[test]
    fn only_repairs_count_and_only_in_succession() {
        let before = |count| Some(Repairs { last: at(0), count });
        for (what, causes, before, now, expected) in [
            ("the first", vec![Cause::Modified], None, 0, Ok(Some(1))),
            ("soon after", vec![Cause::Modified], before(4), 9, Ok(Some(5))),
            ("later", vec![Cause::Modified], before(4), 10, Ok(Some(1))),
            (
                "the last that is allowed",
                vec![Cause::Missing],
                before(19),
                1,
                Ok(Some(20)),
            ),
            (
                "one too many",
                vec![Cause::NewContent, Cause::RoleModified],
                before(20),
                1,
                Err(Cause::RoleModified),
            ),
            (
                "one too many, after a pause",
                vec![Cause::RoleModified],
                before(20),
                10,
                Ok(Some(1)),
            ),
            (
                "new content is no repair",
                vec![Cause::NewContent, Cause::NewRevision],
                before(20),
                1,
                Ok(None),
            ),
        ] {
            let counted = match count(&found(&causes), before, at(now)) {
                Ok(repairs) => Ok(repairs.map(|repairs| repairs.count)),
                Err(PlanError::RepeatedlyModified(finding)) => Err(finding.cause),
                Err(other) => panic!("{what}: {other}"),
            };
            assert_eq!(counted, expected, "{what}");
        }
    }
}
