//! Why there is no plan.

use osm_api::Reason;

use crate::model::source::SourceError;
use crate::plan::cause::Cause;

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(
        "published objects are altered repeatedly ({cause:?}); look for what changes Secrets, Roles or ServiceAccounts in cloud-init-settings, such as a mutating webhook"
    )]
    AlteredAgain { cause: Cause },
    #[error(transparent)]
    Source(SourceError),
}

impl PlanError {
    /// Reason for conditions, Events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::AlteredAgain { .. } => Reason::AlteredAgain,
            Self::Source(error) => error.reason(),
        }
    }
}
