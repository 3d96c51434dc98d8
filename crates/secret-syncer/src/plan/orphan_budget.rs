//! Limits how many orphaned pools may be deleted: an accident that made many configs vanish must not delete many pools at once.
//!
//! The deletions are recorded on a Secret without data, so that the limit holds across restarts and for all replicas together.
//! The resourceVersion of that Secret keeps two replicas from using the same permission.

use jiff::{SignedDuration, Timestamp, Unit};

use crate::model::gathered::OrphanBudget;

/// The time over which deletions are counted.
const HOUR: SignedDuration = SignedDuration::from_hours(1);

/// How many pools may be deleted at `now`.
pub fn left(budget: &OrphanBudget, now: Timestamp) -> usize {
    allowed(budget.pools).saturating_sub(recent(&budget.recorded, now).len())
}

/// What is to be recorded before a pool is deleted at `now`; `None`: it may not be.
pub fn record(budget: &OrphanBudget, now: Timestamp) -> Option<String> {
    if left(budget, now) == 0 {
        return None;
    }
    let mut times: Vec<String> = recent(&budget.recorded, now)
        .iter()
        .map(ToString::to_string)
        .collect();
    // Without the fraction of a second, the record of `MOST` deletions stays short.
    let now = now.round(Unit::Second).unwrap_or(now);
    times.push(now.to_string());
    Some(times.join(","))
}

/// At most this many pools are deleted in an hour, however many there are: the record has an entry for each, and must fit into an
/// annotation.
const MOST: usize = 1000;

/// A tenth of the pools in an hour, but at least one.
fn allowed(pools: usize) -> usize {
    (pools / 10).clamp(1, MOST)
}

/// The recorded deletions of the hour before `now`. A time in the future was written by a clock that has been corrected since: it counts.
fn recent(recorded: &str, now: Timestamp) -> Vec<Timestamp> {
    let times = recorded
        .split(',')
        .filter_map(|time| time.parse::<Timestamp>().ok());
    times.filter(|at| now.duration_since(*at).abs() <= HOUR).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Secret;
    use osm_api::names;

    use super::*;
    use crate::model::view::SecretView;

    fn noon() -> Timestamp {
        "2026-11-21T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_tenth_in_an_hour_and_at_least_one() {
        assert_eq!(
            [0, 1, 9, 10, 29, 2000, 50_000].map(allowed),
            [1, 1, 1, 1, 2, 200, MOST]
        );
    }

    #[test]
    fn what_was_collected_counts_for_an_hour() {
        let text =
            "2026-11-21T10:59:59Z,2026-11-21T11:00:00Z,2026-11-21T11:59:00Z,nonsense,,2026-11-21T12:10:00Z";
        assert_eq!(recent(text, noon()).len(), 3);
        assert_eq!(recent("", noon()).len(), 0);
    }

    #[test]
    fn a_record_holds_the_last_hour_and_this_deletion() {
        let budget = |pools, recorded: &str| OrphanBudget {
            pools,
            recorded: recorded.into(),
        };
        for (what, budget, expected) in [
            ("the first", budget(3, ""), Some("2026-11-21T12:00:00Z")),
            (
                "an old one is dropped",
                budget(3, "2026-11-21T09:00:00Z"),
                Some("2026-11-21T12:00:00Z"),
            ),
            ("one was this hour", budget(3, "2026-11-21T11:30:00Z"), None),
            (
                "one of two was",
                budget(20, "2026-11-21T11:30:00Z"),
                Some("2026-11-21T11:30:00Z,2026-11-21T12:00:00Z"),
            ),
        ] {
            assert_eq!(record(&budget, noon()).as_deref(), expected, "{what}");
        }
    }
    #[test]
    fn the_limit_holds_with_the_record_that_views_of_the_secret_keep() {
        let mut secret = Secret::default();
        for deletions in 0..=MOST {
            let view = SecretView::of(&secret);
            let recorded = view.meta.annotation(names::COLLECTED).unwrap_or_default();
            let budget = OrphanBudget {
                pools: 10_000,
                recorded: recorded.to_owned(),
            };
            let now = noon() + SignedDuration::from_millis(i64::try_from(deletions).unwrap() * 1234);
            let record = record(&budget, now);
            assert_eq!(record.is_some(), deletions < MOST, "after {deletions} deletions");
            secret.metadata.annotations = record.map(|record| [(names::COLLECTED.to_owned(), record)].into());
        }
    }
}
