//! Whether the worker cluster has to confirm, before anything is written, that it still is the one that the watches showed.

use std::time::Duration;

use crate::plan::cause::Cause;

/// A confirmation is good for this long: many pools may be new at once, and no cluster replaces another within this time.
const CONFIRMATION_TTL: Duration = Duration::from_secs(5);

/// A pool of which nothing exists looks like a pool in a new cluster.
pub fn has_to_be_confirmed(causes: &[Cause], confirmed: Option<Duration>) -> bool {
    causes.contains(&Cause::Missing) && confirmed.is_none_or(|ago| ago >= CONFIRMATION_TTL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_where_nothing_exists_and_not_again_within_seconds() {
        for (cause, ago, expected) in [
            (Cause::Missing, None, true),
            (Cause::Missing, Some(4), false),
            (Cause::Missing, Some(5), true),
            (Cause::NewContent, None, false),
        ] {
            assert_eq!(
                has_to_be_confirmed(&[cause], ago.map(Duration::from_secs)),
                expected,
                "{cause:?} {ago:?}"
            );
        }
    }
}
