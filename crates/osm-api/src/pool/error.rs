//! The errors of reading a MachineDeployment.

use crate::reason::Reason;

/// Why a MachineDeployment cannot be read as a pool. No message repeats a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PoolError {
    pub(super) reason: Reason,
    /// Path of the field in the MachineDeployment.
    pub path: String,
    pub(super) message: String,
}

impl PoolError {
    /// Reason for conditions, Events and metrics.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    pub(super) fn at(reason: Reason, path: &str, problem: &str) -> Self {
        Self {
            reason,
            path: path.to_owned(),
            message: format!("{path} {problem}"),
        }
    }

    pub(super) fn annotation(key: &str, problem: &str) -> Self {
        Self {
            reason: Reason::AnnotationInvalid,
            path: format!("metadata.annotations.{key}"),
            message: format!("annotation {key}: {problem}"),
        }
    }

    /// The MachineDeployment can't be decoded.
    pub fn unreadable(problem: &str) -> Self {
        Self::at(
            Reason::ObjectUnreadable,
            "the MachineDeployment",
            &format!("can't be read: {problem}"),
        )
    }
}
