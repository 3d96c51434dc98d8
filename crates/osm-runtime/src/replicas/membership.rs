//! Which replicas of a service live, as one of them sees it, and which of them a key belongs to. Pure: no client, no clock.
//!
//! A replica lives as long as its Lease changes. When it last did is measured by our own clock from what we saw, so that nobody
//! else's clock matters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use osm_api::digest::sha256;
use tokio::time::Instant;

/// A replica whose Lease has not changed for this long is dead, or as good as that.
pub const EXPIRY: Duration = Duration::from_secs(4);
/// Who has been shown no Lease at all for this long, not even a change of its own, can't tell whether others change.
const HEARING: Duration = Duration::from_millis(2500);
/// The Lease of a replica that has been dead for this long is of no use to anybody.
const FORGOTTEN: Duration = Duration::from_secs(900);

/// Replicas that live, by the names of their Leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live(BTreeSet<String>);

impl Live {
    /// The replica that a key belongs to, the same for everybody who sees the same replicas. One that comes or goes moves only
    /// the keys that are, or were, its own (rendezvous hashing). `None`: nobody lives.
    pub fn owner(&self, key: &str) -> Option<&str> {
        let weight = |replica: &&String| sha256(format!("{replica} {key}").as_bytes());
        self.0.iter().max_by_key(weight).map(String::as_str)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl<S: Into<String>> FromIterator<S> for Live {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}

/// What one replica knows of the others.
#[derive(Debug)]
pub struct Membership {
    own: String,
    /// When the Lease of each other one was last seen to change.
    others: BTreeMap<String, Instant>,
    /// As last judged; nobody before.
    live: Live,
    /// When a change of any Lease was last seen.
    heard: Instant,
}

impl Membership {
    /// Nothing is known yet but the name of our own Lease.
    pub fn new(own: &str, now: Instant) -> Self {
        Self { own: own.to_owned(), others: BTreeMap::new(), live: Live::default(), heard: now }
    }

    /// A Lease is there for the first time, or has changed.
    pub fn changed(&mut self, replica: &str, now: Instant) {
        self.heard = now;
        if replica != self.own {
            self.others.insert(replica.to_owned(), now);
        }
    }

    /// A Lease is gone: it was given back.
    pub fn gone(&mut self, replica: &str, now: Instant) {
        self.heard = now;
        self.others.remove(replica);
    }

    /// We have just begun, or were away, and may have missed something: whoever lived when we last judged, or was never judged,
    /// has its time once more.
    pub fn trust(&mut self, now: Instant) {
        self.heard = now;
        for (name, seen) in &mut self.others {
            if self.live.is_empty() || self.live.0.contains(name) {
                *seen = now;
            }
        }
    }

    /// Who lives now; we do in any case.
    pub fn judge(&mut self, now: Instant) -> &Live {
        let hears = self.hears(now);
        let lives = |(name, seen): &(&String, &Instant)| {
            now.saturating_duration_since(**seen) < EXPIRY || (!hears && self.live.0.contains(*name))
        };
        let others = self.others.iter().filter(lives).map(|(name, _)| name.clone());
        self.live = others.chain([self.own.clone()]).collect();
        &self.live
    }

    /// Who lived when that was last judged.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// When somebody is to be judged again, unless something is heard before.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let live = |(name, seen): (&String, &Instant)| self.live.0.contains(name).then_some(*seen + EXPIRY);
        self.others.iter().filter_map(live).min().filter(|_| self.hears(now))
    }

    /// Those whose Leases are to be deleted.
    pub fn forgotten(&self, now: Instant) -> Vec<String> {
        let long_dead = |seen: &Instant| now.saturating_duration_since(*seen) >= FORGOTTEN;
        self.others.iter().filter(|(_, seen)| long_dead(seen)).map(|(name, _)| name.clone()).collect()
    }

    fn hears(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < HEARING
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
