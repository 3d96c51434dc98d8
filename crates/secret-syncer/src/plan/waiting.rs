//! Waiting for another controller. Short waits are normal and are not reported.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use osm_api::condition::Verdict;

use crate::plan::steps::Step;
use crate::plan::timing::until;

/// A wait for a rendering or a revision is reported after this time.
pub const REPORT_AFTER: SignedDuration = SignedDuration::from_secs(3);
/// osc-controller writes a config and confirms its generation in two requests. After this time it has failed to do the second.
pub const REPORT_UNCONFIRMED_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// Since when there has been nothing to publish; `None` while there is.
pub fn since(before: Option<Timestamp>, is_ready: bool, now: Timestamp) -> Option<Timestamp> {
    if is_ready {
        None
    } else {
        Some(before.unwrap_or(now))
    }
}

/// Reports `verdict` once the wait has lasted `report_after`.
pub fn wait(
    now: Timestamp,
    since: Option<Timestamp>,
    report_after: SignedDuration,
    verdict: Verdict,
) -> (Step, Option<Duration>) {
    let since = since.unwrap_or(now);
    if now.duration_since(since) < report_after {
        return (Step::None, Some(until(now, since + report_after)));
    }
    (Step::SetStatus(verdict), None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::messages;

    #[test]
    fn a_wait_is_reported_when_it_lasts() {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        for (waited, reported, again) in [
            (0, false, Some(3)),
            (2, false, Some(1)),
            (3, true, None),
            (60, true, None),
        ] {
            let (step, next) = wait(
                at(waited),
                Some(at(0)),
                REPORT_AFTER,
                messages::awaiting_revision(),
            );
            assert_eq!(matches!(step, Step::SetStatus(_)), reported, "after {waited} s");
            assert_eq!(next.map(|next| next.as_secs()), again, "after {waited} s");
        }
        assert_eq!(since(None, false, at(5)), Some(at(5)));
        assert_eq!(since(Some(at(1)), false, at(5)), Some(at(1)), "the wait goes on");
        assert_eq!(since(Some(at(1)), true, at(5)), None);
    }
}
