//! Remembers between reconciles what this controller could not read from the cluster. All of it may be lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use osm_api::Reason;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Profiles for which [`Memory::last_read`] remembers a time. MachineDeployments can name any number that do
/// not exist, so the memory needs a bound.
const MAX_REMEMBERED_READS: usize = 1024;

/// When an object was last read from the API server.
type LastRead = Arc<tokio::sync::Mutex<Option<Instant>>>;

#[derive(Default)]
pub struct Memory {
    /// uids of MachineDeployments without an OperatingSystemConfig of their own, with the reason that was
    /// reported.
    rejected: Mutex<HashMap<String, Reason>>,
    /// uids of MachineDeployments whose finalizer of the upstream OSM was reported.
    reported_finalizers: Mutex<HashSet<String>>,
    last_read: Mutex<HashMap<String, LastRead>>,
    /// uids of MachineDeployments whose config was deleted while it had content.
    lost_content: Mutex<HashSet<String>>,
}

impl Memory {
    /// Notes the reason why a MachineDeployment has no OperatingSystemConfig; returns whether it is a new
    /// one.
    pub fn reject(&self, uid: &str, reason: Reason) -> bool {
        self.rejected.lock().insert(uid.to_owned(), reason) != Some(reason)
    }

    /// Notes that a MachineDeployment is no longer rejected; returns whether it was.
    pub fn accept(&self, uid: &str) -> bool {
        self.rejected.lock().remove(uid).is_some()
    }

    /// uids of the MachineDeployments that are rejected for this reason.
    pub fn rejected_for(&self, reason: Reason) -> HashSet<String> {
        let rejected = self.rejected.lock();
        let found = rejected.iter().filter(|(_, known)| **known == reason);
        found.map(|(uid, _)| uid.clone()).collect()
    }

    /// Notes that a MachineDeployment's finalizer is reported; returns whether this is the first time.
    pub fn report_finalizer(&self, uid: &str) -> bool {
        self.reported_finalizers.lock().insert(uid.to_owned())
    }

    /// Forgets what was reported about the finalizer of a MachineDeployment.
    pub fn forget_finalizer(&self, uid: &str) {
        self.reported_finalizers.lock().remove(uid);
    }

    /// Notes that the config of a MachineDeployment was deleted while it had content.
    pub fn lose_content(&self, uid: &str) {
        self.lost_content.lock().insert(uid.to_owned());
    }

    /// Whether a config of this MachineDeployment was deleted while it had content.
    pub fn has_lost_content(&self, uid: &str) -> bool {
        self.lost_content.lock().contains(uid)
    }

    /// Forgets the configs of a MachineDeployment that is gone.
    pub fn forget_content(&self, uid: &str) {
        self.lost_content.lock().remove(uid);
    }

    /// When the profile with this key was last read from the API server. It is locked during the next read.
    pub fn last_read(&self, key: &str) -> LastRead {
        let mut last_read = self.last_read.lock();
        if last_read.len() >= MAX_REMEMBERED_READS {
            last_read.clear();
        }
        last_read.entry(key.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_profiles_with_a_time_of_their_last_read_is_bounded() {
        let memory = Memory::default();
        for profile in 0..3 * MAX_REMEMBERED_READS {
            memory.last_read(&profile.to_string());
        }
        assert!(memory.last_read.lock().len() <= MAX_REMEMBERED_READS);
    }
}
