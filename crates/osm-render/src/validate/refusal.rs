//! The outcome of validating a profile.

use crate::error::{ProfileError, RenderError, TemplatePosition};
use osm_api::Reason;
use osm_api::profile::AcceptedProfile;

/// What belongs in `status.accepted`, or why osp-controller refuses the profile.
pub type Outcome = Result<AcceptedProfile, Refusal>;

/// Why osp-controller refuses a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Reason of the condition `Accepted`.
    pub reason: Reason,
    /// What is wrong, where, and how to correct it.
    pub message: String,
    /// Where it is, if that is one place inside the spec. The message contains it, too.
    pub position: Option<TemplatePosition>,
}

impl Refusal {
    /// Validation itself failed, by a panic or because it exceeded its time limit.
    pub fn aborted() -> Self {
        Self {
            reason: Reason::ValidationAborted,
            message: "validation of the profile panicked or exceeded its time limit; it will be retried in 5 minutes. If it keeps failing, \
                      report this bug with the profile"
                .to_owned(),
            position: None,
        }
    }

    /// Says nothing of the profile: a busy machine may have been the cause.
    pub fn is_unfinished(&self) -> bool {
        self.reason == Reason::ValidationAborted
    }
}

impl From<ProfileError> for Refusal {
    fn from(error: ProfileError) -> Self {
        Self {
            reason: error.reason(),
            message: error.to_string(),
            position: error.position(),
        }
    }
}

impl From<RenderError> for Refusal {
    fn from(error: RenderError) -> Self {
        Self {
            reason: error.reason(),
            message: error.to_string(),
            position: error.position(),
        }
    }
}
