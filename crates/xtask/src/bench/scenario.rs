//! The changes that are measured.

use clap::ValueEnum;
use osm_bare_client::writes::Change;
use serde::Serialize;

/// What happens to all pools at once. The order is the one in which a run performs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// The MachineDeployments are created, with their revision
    Created,
    /// Template and revision change
    Rotated,
    /// Only the revision changes
    Revision,
    /// Their profile gets another version and content
    Profile,
    /// The settings of the installation change; not for other implementations
    Settings,
    /// The processes are killed and started again while nothing changes; not for the bare clients
    Restarted,
    /// Nothing happens for `--idle` seconds
    Idle,
    /// The MachineDeployments are deleted
    Deleted,
}

impl Scenario {
    /// How a table names it.
    pub fn title(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Rotated => "rotated",
            Self::Revision => "revision only",
            Self::Profile => "profile changed",
            Self::Settings => "settings changed",
            Self::Restarted => "restarted",
            Self::Idle => "idle",
            Self::Deleted => "deleted",
        }
    }

    /// The change that a bare client answers to.
    pub fn change(self) -> Option<Change> {
        match self {
            Self::Created => Some(Change::Created),
            Self::Rotated => Some(Change::Rotated),
            Self::Revision => Some(Change::Revision),
            Self::Profile => Some(Change::Profile),
            Self::Settings => Some(Change::Settings),
            Self::Deleted => Some(Change::Deleted),
            Self::Restarted | Self::Idle => None,
        }
    }
}
