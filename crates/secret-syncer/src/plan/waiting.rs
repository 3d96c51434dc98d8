//! Waiting for another controller. Short waits are normal and are not reported.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::plan::timing::until;

/// A wait for a rendering or a revision is reported after this time.
pub const REPORT_AFTER: SignedDuration = SignedDuration::from_secs(3);

/// Since when there has been nothing to publish; `None` while there is.
pub fn since(before: Option<Timestamp>, is_ready: bool, now: Timestamp) -> Option<Timestamp> {
    if is_ready {
        None
    } else {
        Some(before.unwrap_or(now))
    }
}

/// How long it is still too early to report a wait that is reported after `report_after`; `None`: it is time.
pub fn is_early(now: Timestamp, since: Option<Timestamp>, report_after: SignedDuration) -> Option<Duration> {
    let since = since.unwrap_or(now);
    (now.duration_since(since) < report_after).then(|| until(now, since + report_after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_when_it_lasts() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        for (waited, again) in [(0, Some(3)), (2, Some(1)), (3, None), (60, None)] {
            let early = is_early(at(waited), Some(at(0)), REPORT_AFTER);
            assert_eq!(early.map(|left| left.as_secs()), again, "after {waited} s");
        }
        assert_eq!(is_early(at(0), None, SignedDuration::ZERO), None);
        assert_eq!(since(None, false, at(5)), Some(at(5)));
        assert_eq!(since(Some(at(1)), false, at(5)), Some(at(1)), "the wait goes on");
        assert_eq!(since(Some(at(1)), true, at(5)), None);
    }
}
