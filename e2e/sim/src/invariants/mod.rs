//! What must hold at every instant in the life of an installation, checked from outside.
//!
//! An [`Observer`] receives the history of objects, change by change, and reports the promises that were
//! broken. It knows only the contract: names, keys, labels and annotations (`osm_api::names`), the status of
//! the custom resources, and the claims in a token. It knows nothing of the services. `docs/rotation.md`
//! lists the invariants.
//!
//! The observer does no I/O. A server in memory feeds it at each write:
//!
//! - [`Observer::observe`] takes each change of MachineDeployments, OperatingSystemConfigs, and Secrets,
//!   ServiceAccounts, Roles and RoleBindings of `cloud-init-settings`, **in the order of their
//!   resourceVersions**, whatever their kinds. It ignores other kinds.
//! - Only the API server knows whether it accepts a token. [`Observer::ask`] asks about the credentials that
//!   it must accept now.
//! - A test that damages an object announces that *before*, with [`Observer::interferes`]. The next change of
//!   the object, and refusals of the tokens of its pool, then do not count against the services until the
//!   bootstrap Secret of the pool is good again.
//! - Call [`Observer::settled`] and [`Observer::quiet_since`] when faults have ended and the services had
//!   time to repair everything.

mod credential_probe;
mod observer;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

pub use self::credential_probe::{CredentialProbe, Purpose};
pub use self::observer::Observer;

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum What {
    Added,
    Modified,
    Deleted,
}

/// A change of an object, as a watch shows it.
#[derive(Clone, Debug)]
pub struct Change {
    /// When it was made, or seen: by the clock that tokens expire by.
    pub at: Timestamp,
    /// What happened.
    pub what: What,
    /// The object with `apiVersion` and `kind`; of a deleted one, its last state.
    pub object: Value,
}

/// A promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// (a) Once published, a bootstrap Secret is never absent (but for the replacement of an immutable one),
    /// and never names a provisioning document that a node can't fetch, or a kubelet can't join, with the
    /// tokens inside it.
    Reachable,
    /// (b) For one MachineDeployment uid the revision never goes back unless the MachineDeployment's own did.
    Forward,
    /// (c) The SHA-256 in a bootstrap document is that of the provisioning document it names.
    Digest,
    /// (d) When faults stop, everything converges with no one's help.
    Converges,
    /// (e) Nothing is deleted that a valid token may still fetch, unless its pool is retired; everything made
    /// for a retired pool is gone, credentials first.
    Kept,
    /// (f) Writes cease when nothing changes.
    Quiet,
    /// (g) Without a retired pool nothing published disappears.
    NotLost,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reachable => "(a) reachable",
            Self::Forward => "(b) never back",
            Self::Digest => "(c) digest",
            Self::Converges => "(d) converges",
            Self::Kept => "(e) kept, and undone in order",
            Self::Quiet => "(f) quiet",
            Self::NotLost => "(g) not lost",
        })
    }
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// When.
    pub at: Timestamp,
    /// Which object, and how. No token, no document.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.at, self.invariant, self.what)
    }
}
