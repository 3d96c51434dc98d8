//! Which replicas of a service are alive, as one of them sees it, and which of them owns a key. Pure: no client, no clock.
//!
//! A replica is alive as long as its Lease changes. The observer measures the time since the last change that it saw by its own
//! clock, so that no other clock matters.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use osm_api::digest::sha256;
use tokio::time::Instant;

/// A replica whose Lease has not changed for this long counts as dead.
pub const EXPIRY: Duration = Duration::from_secs(4);
/// An observer that has seen no change at all for this long, not even of its own Lease, can't judge the others.
const MAX_SILENCE: Duration = Duration::from_millis(2500);
/// The Lease of a replica is deleted once it has been dead for this long.
const DEAD_LEASE_RETENTION: Duration = Duration::from_secs(900);

/// Replicas that are alive, by the names of their Leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live(BTreeSet<String>);

impl Live {
    /// The replica that owns a key: the same for all that see the same replicas. A replica that starts or ends moves only its own
    /// keys (rendezvous hashing). `None`: no replica is alive.
    pub fn owner(&self, key: &str) -> Option<&str> {
        let weight = |replica: &&String| sha256(format!("{replica} {key}").as_bytes());
        self.0.iter().max_by_key(weight).map(String::as_str)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

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
    /// When the Lease of each other replica was last seen to change.
    others: BTreeMap<String, Instant>,
    /// As last judged; empty before.
    live: Live,
    /// When a change of any Lease was last seen.
    heard: Instant,
}

impl Membership {
    pub fn new(own: &str, now: Instant) -> Self {
        Self {
            own: own.to_owned(),
            others: BTreeMap::new(),
            live: Live::default(),
            heard: now,
        }
    }

    /// A Lease is new, or has changed.
    pub fn changed(&mut self, replica: &str, now: Instant) {
        self.heard = now;
        if replica != self.own {
            self.others.insert(replica.to_owned(), now);
        }
    }

    /// A Lease was deleted.
    pub fn gone(&mut self, replica: &str, now: Instant) {
        self.heard = now;
        self.others.remove(replica);
    }

    /// This replica has just started, or was cut off, and may have missed changes. The expiry of every replica that was alive at the
    /// last judgement, or was never judged, starts again.
    pub fn trust(&mut self, now: Instant) {
        self.heard = now;
        for (name, seen) in &mut self.others {
            if self.live.is_empty() || self.live.0.contains(name) {
                *seen = now;
            }
        }
    }

    /// The replicas that are alive now. This replica always is.
    pub fn judge(&mut self, now: Instant) -> &Live {
        let hears = self.hears(now);
        let lives = |(name, seen): &(&String, &Instant)| {
            now.saturating_duration_since(**seen) < EXPIRY || (!hears && self.live.0.contains(*name))
        };
        let others = self.others.iter().filter(lives).map(|(name, _)| name.clone());
        self.live = others.chain([self.own.clone()]).collect();
        &self.live
    }

    /// The result of the last [`Self::judge`].
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// When the next replica may expire.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let live = |(name, seen): (&String, &Instant)| self.live.0.contains(name).then_some(*seen + EXPIRY);
        self.others
            .iter()
            .filter_map(live)
            .min()
            .filter(|_| self.hears(now))
    }

    /// Replicas whose Leases are to be deleted.
    pub fn forgotten(&self, now: Instant) -> Vec<String> {
        let long_dead = |seen: &Instant| now.saturating_duration_since(*seen) >= DEAD_LEASE_RETENTION;
        self.others
            .iter()
            .filter(|(_, seen)| long_dead(seen))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn hears(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < MAX_SILENCE
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
