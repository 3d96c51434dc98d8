//! The errors of a reconcile, one enum for each step.

use std::time::Duration;

use osm_api::Reason;
use osm_runtime::error::{Failure, LONGEST_DELAY, LONGEST_DELAY_OF_PERMANENT, is_code};

use crate::model::documents::DocumentError;
use crate::model::gathered::Gathered;
use crate::model::memory::Fact;
use crate::plan::content::Comparison;
use crate::plan::findings::Cause;
use crate::plan::steps::PlanError;
use crate::plan::steps::Publish;
use crate::plan::{hold, messages};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Gather(osm_runtime::Error),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The status can't be written.
    #[error(transparent)]
    Report(osm_runtime::Error),
}

#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    #[error(transparent)]
    Request(#[from] osm_runtime::Error),
    /// `right`: such as `create certificatesigningrequests`.
    #[error("a node's token may not {right}; apply the roles and bindings of this version")]
    RightMissing { right: String },
    #[error(
        "the API server rejects a token that it has just issued; check whether its service account signing keys have changed"
    )]
    TokenRefused,
    #[error(
        "the API server issued a token that does not say which ServiceAccount it is of; check its flags and the signer of service account tokens"
    )]
    TokenUnreadable,
    #[error("{0}")]
    TooManyDocuments(String),
    #[error("{}", messages::foreign_secret(name))]
    ForeignSecret { name: String },
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl ApplyError {
    fn request(&self) -> Option<&osm_runtime::Error> {
        match self {
            Self::Request(error) => Some(error),
            _ => None,
        }
    }

    /// What the next plans have to know of this failure.
    pub fn fact(&self, gathered: &Gathered, publish: &Publish) -> Option<Fact> {
        // Content that differs from what is published, which may fare better.
        let is_new = publish.wanted.comparison != Comparison::Same;
        let is_of_content = match self {
            Self::TokenRefused => return Some(Fact::Refused),
            Self::Document(_) | Self::TooManyDocuments(_) => true,
            Self::ForeignSecret { .. } => is_new,
            // Validation, a policy, a quota, or a limit of size. A renewal that is due must not wait for
            // anything that strikes new content.
            Self::Request(osm_runtime::Error::Failed { source, .. }) => {
                let is_refused = [400, 403, 413, 422].iter().any(|code| is_code(source, *code));
                is_new && (is_refused || publish.causes().contains(&Cause::RenewalDue))
            }
            _ => false,
        };
        let unfit = || hold::unfit(gathered, publish, self.reason(), self.to_string());
        is_of_content.then(unfit)?.map(Fact::Unfit)
    }

    pub fn reason(&self) -> Reason {
        match self {
            Self::Request(error) => error.reason(),
            Self::RightMissing { .. } => Reason::NodePermissionMissing,
            Self::TokenRefused | Self::TokenUnreadable => Reason::TokenRejected,
            Self::TooManyDocuments(_) => Reason::TooManyDocuments,
            Self::ForeignSecret { .. } => Reason::ForeignSecret,
            Self::Document(error) => error.reason(),
        }
    }
}

impl Error {
    /// Whether it may pass without any change to what was asked.
    pub fn may_pass(&self) -> bool {
        self.request().is_some_and(osm_runtime::Error::may_pass)
    }

    fn request(&self) -> Option<&osm_runtime::Error> {
        match self {
            Self::Gather(error) | Self::Report(error) => Some(error),
            Self::Apply(error) => error.request(),
            Self::Plan(_) => None,
        }
    }
}

impl Failure for Error {
    fn reason(&self) -> Reason {
        match self {
            Self::Gather(error) | Self::Report(error) => error.reason(),
            Self::Plan(error) => error.reason(),
            Self::Apply(error) => error.reason(),
        }
    }

    fn is_conflict(&self) -> bool {
        self.request().is_some_and(Failure::is_conflict)
    }

    fn longest_delay(&self) -> Duration {
        match self {
            // Nothing shows that a webhook is gone, or that a name is free.
            Self::Plan(PlanError::RepeatedlyModified(_)) | Self::Apply(ApplyError::ForeignSecret { .. }) => {
                LONGEST_DELAY
            }
            _ if self.may_pass() => LONGEST_DELAY,
            _ => LONGEST_DELAY_OF_PERMANENT,
        }
    }
}
