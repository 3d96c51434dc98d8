//! When the API server has to be asked again what tokens may do to join.

use std::time::Duration;

/// Tokens of all pools join with the same rights, unless another program has bound a single one. So an answer is good for this long.
pub const JOIN_RIGHT_TTL: Duration = Duration::from_secs(300);

/// The API server is not asked more often than this, however often rights change.
pub const QUESTION_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait before the next question; `asked`: how long ago the last one was.
pub fn pause(asked: Option<Duration>) -> Option<Duration> {
    let left = QUESTION_INTERVAL.saturating_sub(asked?);
    (!left.is_zero()).then_some(left)
}

/// When to ask again. The API server learns of a change of rights by a watch of its own, so the first answer after a change may be an old one.
pub fn again(has_changed: bool) -> Duration {
    match has_changed {
        true => QUESTION_INTERVAL,
        false => JOIN_RIGHT_TTL,
    }
}

/// `found`: how long ago a token was last found to be allowed to join.
pub fn has_to_be_asked(found: Option<Duration>) -> bool {
    found.is_none_or(|ago| ago >= JOIN_RIGHT_TTL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_is_good_for_five_minutes() {
        for (found, expected) in [
            (None, true),
            (Some(0), false),
            (Some(299), false),
            (Some(300), true),
        ] {
            assert_eq!(
                has_to_be_asked(found.map(Duration::from_secs)),
                expected,
                "{found:?}"
            );
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
