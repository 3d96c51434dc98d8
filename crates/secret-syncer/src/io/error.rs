//! Why a reconcile failed: an error for each step.

use std::sync::Arc;
use std::time::Duration;

use osm_api::Reason;
use osm_runtime::RequestError;
use osm_runtime::error::{Failure, LONGEST_DELAY, LONGEST_DELAY_OF_PERMANENT};
use osm_runtime::foreign_cluster::CLUSTER_CHANGED;

use crate::model::documents::DocumentError;
use crate::plan::error::PlanError;
use crate::plan::messages;
use crate::plan::retention::MAX_DOCUMENTS_WITH_REVISIONS;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Gather(#[from] GatherError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The status can't be written.
    #[error(transparent)]
    Report(RequestError),
}

#[derive(Debug, thiserror::Error)]
pub enum GatherError {
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The reconcile of the HMAC key failed.
    #[error(transparent)]
    HmacKey(Arc<ApplyError>),
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Request(#[from] RequestError),
    /// `right`: such as `create certificatesigningrequests`.
    #[error("a node's token may not {right}; apply the roles and bindings of this version")]
    RightMissing { right: String },
    #[error("{0}")]
    ClusterChanged(String),
    #[error("{}", messages::too_many_documents(MAX_DOCUMENTS_WITH_REVISIONS, None))]
    TooManyDocuments,
    #[error("{}", messages::foreign_secret_message(name))]
    ForeignSecret { name: String },
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl ApplyError {
    fn request(&self) -> Option<&RequestError> {
        match self {
            Self::Request(error) => Some(error),
            _ => None,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Request(error) => error.reason(),
            Self::RightMissing { .. } => Reason::NodePermissionMissing,
            Self::ClusterChanged(_) => CLUSTER_CHANGED,
            Self::TooManyDocuments => Reason::TooManyDocuments,
            Self::ForeignSecret { .. } => Reason::ForeignSecret,
            Self::Document(error) => error.reason(),
        }
    }
}

impl Error {
    /// Whatever was seen may be another cluster's.
    pub fn cluster_changed(&self) -> Option<&str> {
        match self {
            Self::Apply(ApplyError::ClusterChanged(problem)) => Some(problem),
            _ => None,
        }
    }

    /// Whether it may pass without any change to what was asked.
    pub fn may_pass(&self) -> bool {
        self.request().is_some_and(RequestError::may_pass)
    }

    fn request(&self) -> Option<&RequestError> {
        match self {
            Self::Gather(GatherError::Request(error)) | Self::Report(error) => Some(error),
            Self::Gather(GatherError::HmacKey(error)) => error.request(),
            Self::Apply(error) => error.request(),
            Self::Plan(_) => None,
        }
    }
}

impl Failure for Error {
    fn reason(&self) -> Reason {
        match self {
            Self::Gather(GatherError::Request(error)) | Self::Report(error) => error.reason(),
            Self::Gather(GatherError::HmacKey(error)) => error.reason(),
            Self::Plan(error) => error.reason(),
            Self::Apply(error) => error.reason(),
        }
    }

    fn is_conflict(&self) -> bool {
        self.request().is_some_and(Failure::is_conflict)
    }

    fn longest_delay(&self) -> Duration {
        match self {
            // Nothing shows that a webhook is gone, or that a cluster is the right one again.
            Self::Plan(PlanError::RepeatedlyModified { .. }) | Self::Apply(ApplyError::ClusterChanged(_)) => {
                LONGEST_DELAY
            }
            _ if self.may_pass() => LONGEST_DELAY,
            _ => LONGEST_DELAY_OF_PERMANENT,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        self.request().and_then(Failure::retry_after)
    }
}
