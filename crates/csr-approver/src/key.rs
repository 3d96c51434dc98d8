//! The keys of the queue.

use std::fmt;

use osm_runtime::runner;

use crate::requester::Requester;

/// A unit of work in the queue. Its text decides which replica owns it, so replicas of two versions must
/// agree on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// All requests of one requester, so that a flood of requests delays only its own requester.
    Requester(Requester),
    /// Claims that are no longer needed, and machines that have not joined.
    Housekeeping,
    /// Whether a binding lets kube-controller-manager approve what csr-approver should decide about.
    NodeclientBinding,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requester(requester) => requester.fmt(f),
            Self::Housekeeping => f.write_str("(housekeeping)"),
            Self::NodeclientBinding => f.write_str("(nodeclient binding)"),
        }
    }
}

impl runner::Key for Key {}
