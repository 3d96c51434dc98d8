//! Merges several watches into one history.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::Change;

/// Holds changes from several watches for a while and gives them out in the order of their resourceVersions, which one API server
/// counts over all kinds.
#[derive(Debug)]
pub struct InOrder {
    hold: SignedDuration,
    waiting: BTreeMap<(u64, u64), Change>,
    arrived: u64,
}

impl InOrder {
    /// Holds each change for `hold`: longer than one watch lags behind another.
    #[must_use]
    pub fn new(hold: SignedDuration) -> Self {
        Self {
            hold,
            waiting: BTreeMap::new(),
            arrived: 0,
        }
    }

    /// A watch has shown a change.
    pub fn add(&mut self, change: Change) {
        let version = super::observer::text(&change.object, "/metadata/resourceVersion")
            .parse()
            .unwrap_or(0);
        self.arrived += 1;
        self.waiting.insert((version, self.arrived), change);
    }

    /// The changes that were held long enough by `now`, in order. One that waits holds those after it.
    pub fn ready(&mut self, now: Timestamp) -> Vec<Change> {
        let mut ready = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            if now.duration_since(first.get().at) < self.hold {
                break;
            }
            ready.push(first.remove());
        }
        ready
    }

    /// All that are left, in order.
    pub fn rest(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }
}
