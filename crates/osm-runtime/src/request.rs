//! The error of a reconcile that fails. It is the one error of osp-controller, osc-controller and
//! csr-approver. secret-syncer wraps it.

use std::time::Duration;

use osm_api::Reason;

use crate::error::{self, Failure, LONGEST_DELAY, LONGEST_DELAY_OF_PERMANENT};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what}: {}", error::brief(source))]
    Failed {
        /// The object or the operation.
        what: &'static str,
        source: Box<kube::Error>,
    },
    /// Another writer changed the object between the read and the write. The next reconcile gathers again.
    #[error("{what}: another writer changed it in the meantime; this is retried")]
    Conflict {
        /// The object or the operation.
        what: &'static str,
    },
    /// The namespace does not exist, or is terminating.
    #[error(
        "{what}: {}; this is retried when the namespace exists again",
        error::brief(source)
    )]
    NamespaceNotFound {
        /// The object or the operation.
        what: &'static str,
        source: Box<kube::Error>,
    },
    #[error("nothing is written because of the CustomResourceDefinitions: {problem}")]
    DefinitionsOutdated {
        /// Which fields they lack, and what to do.
        problem: String,
    },
    #[error("the API server drops fields of {what}; apply the CustomResourceDefinitions of this version")]
    FieldsDropped {
        /// The object.
        what: &'static str,
    },
}

pub fn failed(what: &'static str) -> impl FnOnce(kube::Error) -> Error {
    move |source| match Box::new(source) {
        source if error::conflict(&source) => Error::Conflict { what },
        source if error::namespace_missing(&source) => Error::NamespaceNotFound { what, source },
        source => Error::Failed { what, source },
    }
}

impl Error {
    /// Whether the API server or the network may be at fault, rather than the request, so that a retry may
    /// succeed.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Failed { source, .. } => !error::is_code(source, 403),
            Self::Conflict { .. } => true,
            Self::NamespaceNotFound { .. }
            | Self::DefinitionsOutdated { .. }
            | Self::FieldsDropped { .. } => false,
        }
    }
}

impl Failure for Error {
    fn reason(&self) -> Reason {
        match self {
            Self::Failed { source, .. } if error::is_code(source, 403) => Reason::Forbidden,
            Self::Failed { .. } => Reason::RequestFailed,
            Self::Conflict { .. } => Reason::Conflict,
            Self::NamespaceNotFound { .. } => Reason::NamespaceNotFound,
            Self::DefinitionsOutdated { .. } => Reason::DefinitionsOutdated,
            Self::FieldsDropped { .. } => Reason::FieldsDropped,
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }

    fn longest_delay(&self) -> Duration {
        if self.may_pass() {
            LONGEST_DELAY
        } else {
            LONGEST_DELAY_OF_PERMANENT
        }
    }
}
