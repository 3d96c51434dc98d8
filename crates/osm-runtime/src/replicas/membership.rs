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

/// Replicas that are alive, by the names of their Leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    fit: BTreeSet<String>,
    /// The others. They own keys only while no replica is fit.
    standby: BTreeSet<String>,
}

impl Live {
    /// The replica that owns a key: the same for all that see the same replicas. A replica that starts or ends moves only its own
    /// keys (rendezvous hashing). `None`: no replica is alive.
    pub fn owner(&self, key: &str) -> Option<&str> {
        let weight = |replica: &&String| sha256(format!("{replica} {key}").as_bytes());
        let owners = if self.fit.is_empty() {
            &self.standby
        } else {
            &self.fit
        };
        owners.iter().max_by_key(weight).map(String::as_str)
    }

    pub fn len(&self) -> usize {
        self.fit.len() + self.standby.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.fit.iter().chain(&self.standby).map(String::as_str)
    }

    /// Names of those that own no key while another replica is fit.
    pub fn standby(&self) -> impl Iterator<Item = &str> {
        self.standby.iter().map(String::as_str)
    }

    pub fn contains(&self, replica: &str) -> bool {
        self.fit.contains(replica) || self.standby.contains(replica)
    }

    fn add(&mut self, replica: &str, is_fit: bool) {
        let group = if is_fit { &mut self.fit } else { &mut self.standby };
        group.insert(replica.to_owned());
    }
}

/// Of replicas that are fit.
impl<S: Into<String>> FromIterator<S> for Live {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self {
            fit: names.into_iter().map(Into::into).collect(),
            standby: BTreeSet::new(),
        }
    }
}

/// Another replica, as its Lease shows it.
#[derive(Debug)]
struct Other {
    /// When its Lease was last seen to change.
    seen: Instant,
    is_fit: bool,
}

/// What one replica knows of the others.
#[derive(Debug)]
pub struct Membership {
    own: String,
    is_fit: bool,
    others: BTreeMap<String, Other>,
    /// As last judged; empty before.
    live: Live,
    /// When a change of any Lease was last seen.
    heard: Instant,
}

impl Membership {
    pub fn new(own: &str, now: Instant) -> Self {
        Self {
            own: own.to_owned(),
            is_fit: false,
            others: BTreeMap::new(),
            live: Live::default(),
            heard: now,
        }
    }

    /// A Lease is new, or has changed.
    pub fn changed(&mut self, replica: &str, is_fit: bool, now: Instant) {
        self.heard = now;
        if replica != self.own {
            self.others
                .insert(replica.to_owned(), Other { seen: now, is_fit });
        }
    }

    /// Whether this replica is fit; returns whether that has changed.
    pub fn set_fit(&mut self, is_fit: bool) -> bool {
        std::mem::replace(&mut self.is_fit, is_fit) != is_fit
    }

    pub fn is_fit(&self) -> bool {
        self.is_fit
    }

    pub fn gone(&mut self, replica: &str, now: Instant) {
        self.heard = now;
        self.others.remove(replica);
    }

    /// This replica has just started, or was cut off, and may have missed changes. The expiry of every replica that was alive at the
    /// last judgement, or was never judged, starts again.
    pub fn trust(&mut self, now: Instant) {
        self.heard = now;
        for (name, other) in &mut self.others {
            if self.live.is_empty() || self.live.contains(name) {
                other.seen = now;
            }
        }
    }

    /// The replicas that are alive now. This replica always is.
    pub fn judge(&mut self, now: Instant) -> &Live {
        let hears = self.hears(now);
        let mut live = Live::default();
        live.add(&self.own, self.is_fit);
        for (name, other) in &self.others {
            let is_recent = now.saturating_duration_since(other.seen) < EXPIRY;
            if is_recent || (!hears && self.live.contains(name)) {
                live.add(name, other.is_fit);
            }
        }
        self.live = live;
        &self.live
    }

    /// The result of the last [`Self::judge`].
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// When the next replica may expire.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let live = |(name, other): (&String, &Other)| self.live.contains(name).then_some(other.seen + EXPIRY);
        self.others
            .iter()
            .filter_map(live)
            .min()
            .filter(|_| self.hears(now))
    }

    fn hears(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.heard) < MAX_SILENCE
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
