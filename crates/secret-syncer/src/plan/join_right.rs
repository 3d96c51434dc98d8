//! When the API server has to be asked again what tokens may do to join.

use std::time::Duration;

/// Tokens of all pools join with the same rights, so an answer is good for this long.
pub const JOIN_RIGHT_TTL: Duration = Duration::from_secs(300);

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
}
