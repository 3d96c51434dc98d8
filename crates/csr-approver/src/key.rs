//! What is reconciled.

use std::fmt;

use osm_runtime::runner;

use crate::requester::Requester;

/// A unit of work in the queue. Its text decides which replica owns it, so replicas of two versions must agree on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// All requests of one requester, so that a flood of requests delays only its own requester.
    Requester(Requester),
    /// Claims that are no longer needed.
    Claims,
    /// Machines that have not joined.
    Unjoined,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requester(requester) => requester.fmt(f),
            Self::Claims => f.write_str("(claims)"),
            Self::Unjoined => f.write_str("(unjoined)"),
        }
    }
}

impl runner::Key for Key {}
