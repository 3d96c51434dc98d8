//! Why there is no plan.

use osm_api::Reason;
use osm_api::condition::Verdict;

use crate::plan::findings::Finding;

#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(
        "published objects are altered repeatedly ({}); look for what changes Secrets, Roles or ServiceAccounts in cloud-init-settings, such as a mutating webhook", .0.message
    )]
    RepeatedlyModified(Finding),
    /// New content is held back, and nothing is published.
    #[error("{}", .0.message)]
    Held(Verdict),
}

impl PlanError {
    /// Reason for conditions, Events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::RepeatedlyModified(_) => Reason::RepeatedlyModified,
            Self::Held(verdict) => verdict.reason,
        }
    }
}
