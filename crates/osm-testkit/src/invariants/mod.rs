//! What must hold at every instant of an installation's life, watched from outside.
//!
//! An [`Observer`] is fed the history of objects, change by change, and asked at any time which of its promises were broken. It knows
//! the contract alone: names, keys, labels and annotations (`osm_api::names`), the custom resources' status, and how a token tells what
//! it is bound to. It knows nothing of the services. The invariants are those of `docs/rotation.md`.
//!
//! It talks to nobody, so that an in-memory server can feed it in the instant of each write, and a test on a real API server from
//! watches:
//!
//! - [`Observer::observe`] takes each change of MachineDeployments, OperatingSystemConfigs, and Secrets, ServiceAccounts, Roles and
//!   RoleBindings of `cloud-init-settings`, **in the order of their resourceVersions**, whatever their kinds. Other kinds are ignored.
//!   Several watches of a real server are each in order but not with one another: put them through an [`InOrder`].
//! - Whether a token opens what it should is a question for the API server. [`Observer::doors`] lists what must be open now;
//!   [`Observer::answer`] takes what the server said. On a real server, whose authorizers learn of changes by watches of their own,
//!   "no" is worth an answer only after it was said for some seconds. A door that is not listed any more when its answer comes is
//!   ignored.
//! - Whoever damages objects on purpose says so *before*, with [`Observer::interferes`]: the object's next change is not held against
//!   the services, nor that its pool's doors are closed, until the pool's bootstrap Secret is good again.
//! - [`Observer::settled`] and [`Observer::quiet_since`] are asked when faults have ended and there was time to mend everything.

mod door;
mod in_order;
mod observer;
#[cfg(test)]
mod tests;

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

pub use self::door::{Door, Purpose};
pub use self::in_order::InOrder;
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
    /// (a) Once published, a bootstrap Secret is never absent (but for the replacement of an immutable one), and never names a
    /// provisioning document that a node can't fetch, or a kubelet can't join, with the tokens inside it.
    Reachable,
    /// (b) For one MachineDeployment uid the revision never goes back unless the MachineDeployment's own did.
    Forward,
    /// (c) The SHA-256 in a bootstrap document is that of the provisioning document it names.
    Digest,
    /// (d) When faults stop, everything converges with no one's help.
    Converges,
    /// (e) Nothing is deleted that a valid token may still fetch, unless its pool is retired; everything made for a retired pool is
    /// gone, credentials first.
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
