//! When the API server has to be asked again what tokens may do to join.

use std::time::Duration;

/// Tokens of all pools join with the same rights, so an answer is good for this long.
pub const JOIN_RIGHT_TTL: Duration = Duration::from_secs(300);

/// The API server is not asked more often than this, however often rights change.
pub const QUESTION_INTERVAL: Duration = Duration::from_secs(10);

/// How long to wait before the next question; `asked`: how long ago the last one was.
pub fn pause(asked: Option<Duration>) -> Option<Duration> {
    let left = QUESTION_INTERVAL.saturating_sub(asked?);
    (!left.is_zero()).then_some(left)
}

/// When to ask again after an answer. The API server learns of a change of rights by a watch of its own, so the first answer after a change
/// may be an old one.
pub fn again(has_changed: bool) -> Duration {
    match has_changed {
        true => QUESTION_INTERVAL,
        false => JOIN_RIGHT_TTL,
    }
}

/// `found`: what was last found to be allowed to join, and how long ago.
pub fn has_to_be_asked(found: Option<(&str, Duration)>, joins_by: &str) -> bool {
    found.is_none_or(|(known, ago)| known != joins_by || ago >= JOIN_RIGHT_TTL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_is_good_for_five_minutes_and_for_the_same_kind_of_token() {
        for (found, expected) in [
            (None, true),
            (Some(("account", 0)), false),
            (Some(("account", 299)), false),
            (Some(("account", 300)), true),
            (Some(("groups", 0)), true),
        ] {
            let found = found.map(|(known, ago)| (known, Duration::from_secs(ago)));
            assert_eq!(has_to_be_asked(found, "account"), expected, "{found:?}");
        }
    }

    #[test]
    fn questions_have_an_interval_and_a_change_of_rights_leads_to_two() {
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
        assert_eq!(again(true), QUESTION_INTERVAL);
        assert_eq!(again(false), JOIN_RIGHT_TTL);
    }
}
