//! What this controller remembers between reconciles and could not read from the cluster. All of it may be lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jiff::Timestamp;
use osm_api::Reason;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::compiled::CompiledProfiles;

/// The number of profiles for which [`Memory::last_read`] remembers a time.
const MAX_REMEMBERED_READS: usize = 1024;

/// When an object was last read from the API server.
type LastRead = Arc<tokio::sync::Mutex<Option<Instant>>>;

/// A new revision that waits until osp-controller has validated the newest edit of its profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub revision: String,
    pub since: Timestamp,
}

#[derive(Default)]
pub struct Memory {
    /// uids of MachineDeployments without an OperatingSystemConfig of their own, with the reason that was reported.
    rejected: Mutex<HashMap<String, Reason>>,
    /// uids of MachineDeployments whose finalizer of the Go implementation was reported.
    reported_finalizers: Mutex<HashSet<String>>,
    pub compiled: CompiledProfiles,
    waiting: Mutex<HashMap<String, Waiting>>,
    last_read: Mutex<HashMap<String, LastRead>>,
    /// By uid of the MachineDeployment: its revision, and when the watch showed it first.
    revisions: Mutex<HashMap<String, (Option<String>, Instant)>>,
}

impl Memory {
    /// Notes the reason why a MachineDeployment has no OperatingSystemConfig; returns whether it is a new one.
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

    /// Whether a config's new revision waits.
    pub fn waiting(&self, config: &str) -> Option<Waiting> {
        self.waiting.lock().get(config).cloned()
    }

    /// Notes whether a config's new revision waits.
    pub fn set_waiting(&self, config: &str, waiting: Option<Waiting>) {
        match waiting {
            Some(waiting) => self.waiting.lock().insert(config.to_owned(), waiting),
            None => self.waiting.lock().remove(config),
        };
    }

    /// Notes that the watch shows this revision of a MachineDeployment.
    pub fn see_revision(&self, uid: &str, revision: Option<&String>) {
        let mut revisions = self.revisions.lock();
        if revisions
            .get(uid)
            .is_none_or(|(seen, _)| seen.as_ref() != revision)
        {
            revisions.insert(uid.to_owned(), (revision.cloned(), Instant::now()));
        }
    }

    /// When the watch first showed this revision of a MachineDeployment. `None`: it has not, or shows another one.
    pub fn revision_seen(&self, uid: &str, revision: Option<&String>) -> Option<Instant> {
        let revisions = self.revisions.lock();
        let (seen, since) = revisions.get(uid)?;
        (seen.as_ref() == revision).then_some(*since)
    }

    pub fn forget_revision(&self, uid: &str) {
        self.revisions.lock().remove(uid);
    }

    /// When the profile with this key was last read from the API server. It is locked during the next read.
    pub fn last_read(&self, key: &str) -> LastRead {
        let mut last_read = self.last_read.lock();
        if last_read.len() > MAX_REMEMBERED_READS {
            last_read.clear();
        }
        last_read.entry(key.to_owned()).or_default().clone()
    }
}
