//! When the key pair of the admission webhooks is replaced. A webhook that an API server does not trust is skipped without a sign, so a new pair
//! is trusted before it is served, and the old one as long as a pod may still serve it.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::admission_pair::{Pair, Stored};

/// How long before its end a pair is replaced.
const RENEW_BEFORE: Duration = Duration::from_hours(30 * 24);

/// A new pair is served once it has been trusted for this long. API servers learn of their webhooks by a watch.
const TRUSTED_BEFORE: Duration = Duration::from_hours(1);

/// A new pair is served this long before the end of the last one, even if a cluster can't be reached and does not trust it yet. The others need
/// not lose their webhooks for that.
const SERVED_BEFORE: Duration = Duration::from_hours(24);

/// The CA of the last pair is trusted for this long after its successor came into use. The kubelet brings a pair to the pods within minutes.
const TRUSTED_AFTER: Duration = Duration::from_hours(24);

/// Clocks of API servers may differ by this much.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairStep {
    Keep,
    /// Nothing can be served: make a pair, and serve it at once.
    Start,
    /// Make the pair that follows.
    Prepare,
    /// Serve the pair that follows.
    Promote,
    /// Trust only the pair in use.
    Forget,
}

/// `next_is_trusted`: all API servers were given the CA of the pair that follows.
pub fn plan(stored: &Stored, hosts: &BTreeSet<String>, now: Timestamp, next_is_trusted: bool) -> PairStep {
    let after = |at: Timestamp, time: Duration| at.saturating_add(time).unwrap_or(Timestamp::MAX);
    // A clock that was ahead may have made a pair that is valid later.
    let is_usable =
        |pair: &&Pair| pair.made <= after(now, CLOCK_SKEW) && now < pair.expires && stored.trusts(pair);
    let is_good =
        |pair: &&Pair| is_usable(pair) && pair.hosts == *hosts && after(now, RENEW_BEFORE) < pair.expires;
    let next = stored.next.as_ref().filter(is_good);
    let Some(serving) = stored.serving.as_ref().filter(is_usable) else {
        return match next {
            Some(_) => PairStep::Promote,
            None => PairStep::Start,
        };
    };
    if is_good(&serving) {
        let is_over = now
            >= after(
                stored.since.filter(|since| *since <= now).unwrap_or(serving.made),
                TRUSTED_AFTER,
            );
        let is_left = stored.next.is_some() || stored.trusts_others();
        return if is_over && is_left {
            PairStep::Forget
        } else {
            PairStep::Keep
        };
    }
    match next {
        None => PairStep::Prepare,
        Some(next) => {
            let is_due = next_is_trusted || serving.expires <= after(now, SERVED_BEFORE);
            match is_due && now >= after(next.made, TRUSTED_BEFORE) {
                true => PairStep::Promote,
                false => PairStep::Keep,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::admission_pair::{LIFETIME, Made};

    fn hosts(name: &str) -> BTreeSet<String> {
        BTreeSet::from([name.to_owned()])
    }

    fn at(hours: u64) -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap() + Duration::from_hours(hours)
    }

    fn start(made: Made) -> Stored {
        let mut stored = Stored::default();
        stored.start(made);
        stored
    }

    fn made(hours: u64, number: u128) -> Made {
        Made::new(&hosts("a"), at(hours), number).unwrap()
    }

    #[test]
    fn a_pair_lives_until_its_successor_is_trusted_and_is_trusted_after_that() {
        let (a, lifetime) = (hosts("a"), LIFETIME.as_secs() / 3600);
        let renewal = lifetime - RENEW_BEFORE.as_secs() / 3600;
        assert_eq!(plan(&Stored::default(), &a, at(0), false), PairStep::Start);
        let mut stored = start(made(0, 1));
        assert_eq!(plan(&stored, &a, at(0), false), PairStep::Keep);
        assert_eq!(plan(&stored, &a, at(renewal - 1), false), PairStep::Keep);
        assert_eq!(plan(&stored, &a, at(renewal), false), PairStep::Prepare);
        stored.prepare(made(renewal, 2));
        assert_eq!(plan(&stored, &a, at(renewal), true), PairStep::Keep);
        // As long as one API server does not know the new CA, the old pair is served, but not to its end.
        assert_eq!(plan(&stored, &a, at(renewal + 9), false), PairStep::Keep);
        assert_eq!(plan(&stored, &a, at(lifetime - 25), false), PairStep::Keep);
        assert_eq!(plan(&stored, &a, at(lifetime - 24), false), PairStep::Promote);
        assert_eq!(plan(&stored, &a, at(renewal + 1), true), PairStep::Promote);
        let mut promoted = stored.clone();
        promoted.promote(at(renewal + 1));
        assert_eq!(plan(&promoted, &a, at(renewal + 24), false), PairStep::Keep);
        assert_eq!(plan(&promoted, &a, at(renewal + 25), false), PairStep::Forget);
        promoted.forget_others();
        assert_eq!(plan(&promoted, &a, at(renewal + 25), false), PairStep::Keep);
        // The service was stopped for months.
        assert_eq!(plan(&stored, &a, at(lifetime), false), PairStep::Promote);
        assert_eq!(plan(&stored, &a, at(3 * lifetime), false), PairStep::Start);
    }

    #[test]
    fn another_address_needs_another_pair() {
        let mut stored = start(made(0, 1));
        assert_eq!(plan(&stored, &hosts("b"), at(1), false), PairStep::Prepare);
        stored.prepare(Made::new(&hosts("b"), at(1), 2).unwrap());
        assert_eq!(plan(&stored, &hosts("b"), at(2), true), PairStep::Promote);
        // The address is what it was.
        assert_eq!(plan(&stored, &hosts("a"), at(2), true), PairStep::Keep);
        assert_eq!(plan(&stored, &hosts("a"), at(30), true), PairStep::Forget);
    }

    #[test]
    fn a_pair_that_nothing_trusts_is_replaced() {
        let stored = start(made(0, 1));
        let mut data = stored.data();
        data.remove("ca.crt");
        assert_eq!(
            plan(&Stored::read(&data), &hosts("a"), at(1), true),
            PairStep::Start
        );
        // A CA of the same name has not signed it.
        data.insert("ca.crt".to_owned(), start(made(0, 1)).data()["ca.crt"].clone());
        assert_eq!(
            plan(&Stored::read(&data), &hosts("a"), at(1), true),
            PairStep::Start
        );
    }
}
