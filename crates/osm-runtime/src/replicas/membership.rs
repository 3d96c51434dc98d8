//! Decides which replicas of a service are alive, as one of them sees it, and which of them owns a key. Pure:
//! no client, no clock.
//!
//! A replica is alive as long as its Lease changes. The observer measures the time since the last change that
//! it saw by its own clock, so that no other clock matters.

use std::collections::BTreeMap;
use std::time::Duration;

use osm_api::digest::sha256;
use tokio::time::Instant;

/// A replica whose Lease has not changed for this long counts as dead. It is as long as for the Leases of
/// nodes, and so leaves room for three failed renewals.
pub const EXPIRY: Duration = Duration::from_secs(40);
/// An observer that has seen no change at all for this long, not even of its own Lease, can't judge the
/// others. It stops before they would expire for it.
const MAX_SILENCE: Duration = Duration::from_secs(25);

/// Replicas that are alive, by the names of their Leases, and whether each is fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live(BTreeMap<String, bool>);

impl Live {
    /// The replica that owns a key: the same for all that see the same replicas. A replica that starts or
    /// ends moves only its own keys (rendezvous hashing). One that is not fit owns keys only while no replica
    /// is. `None`: no replica is alive.
    pub fn owner(&self, key: &str) -> Option<&str> {
        let is_any_fit = self.0.values().any(|is_fit| *is_fit);
        let owners = self.0.iter().filter(|(_, is_fit)| **is_fit || !is_any_fit);
        owners
            .map(|(replica, _)| replica.as_str())
            .max_by_key(|replica| sha256(format!("{replica} {key}").as_bytes()))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Names of those that are fit, or of the others.
    pub fn names(&self, fit: bool) -> Vec<&str> {
        let wanted = self.0.iter().filter(|(_, is_fit)| **is_fit == fit);
        wanted.map(|(replica, _)| replica.as_str()).collect()
    }
}

/// Of replicas that are fit.
impl<S: Into<String>> FromIterator<S> for Live {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self(names.into_iter().map(|name| (name.into(), true)).collect())
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
    /// When a change of any Lease was last seen.
    heard: Instant,
}

impl Membership {
    pub fn new(own: &str, now: Instant) -> Self {
        Self {
            own: own.to_owned(),
            is_fit: false,
            others: BTreeMap::new(),
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

    /// This replica has just started, or was cut off, and may have missed changes. The expiry of every
    /// replica starts again.
    pub fn trust(&mut self, now: Instant) {
        self.heard = now;
        self.others.values_mut().for_each(|other| other.seen = now);
    }

    /// The replicas that are alive now, of which this one is. `None`: this one has heard too little to judge
    /// the others.
    pub fn judge(&self, now: Instant) -> Option<Live> {
        if now.saturating_duration_since(self.heard) >= MAX_SILENCE {
            return None;
        }
        let recent = |other: &Other| now.saturating_duration_since(other.seen) < EXPIRY;
        let others = self.others.iter().filter(|(_, other)| recent(other));
        let others = others.map(|(name, other)| (name.clone(), other.is_fit));
        Some(Live(others.chain([(self.own.clone(), self.is_fit)]).collect()))
    }

    /// When the next replica may expire.
    pub fn due(&self, now: Instant) -> Option<Instant> {
        let expiries = self.others.values().map(|other| other.seen + EXPIRY);
        expiries.filter(|at| *at > now).min()
    }
}

#[cfg(test)]
#[path = "membership_tests.rs"]
mod tests;
