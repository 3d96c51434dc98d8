//! How a request to the API server can fail, as far as a controller cares.

use crate::runner::Failure;
use crate::status;

/// A request that failed.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// It failed, and may be tried again.
    #[error("{what}: {}", status::brief(source))]
    Failed {
        /// What was being done, or to what.
        what: &'static str,
        /// The failure.
        source: Box<kube::Error>,
    },
    /// Somebody else wrote in between: gather again.
    #[error("{what}: changed by somebody else in between")]
    Conflict {
        /// What was being done, or to what.
        what: &'static str,
    },
    /// The namespace is not there, or going away.
    #[error("{what}: {}; it is made up for once the namespace is back", status::brief(source))]
    NamespaceMissing {
        /// What was being done, or to what.
        what: &'static str,
        /// What the API server says.
        source: Box<kube::Error>,
    },
}

/// For `map_err`: puts a failure into its class.
pub fn failed(what: &'static str) -> impl FnOnce(kube::Error) -> RequestError {
    move |source| {
        if status::conflict(&source) {
            RequestError::Conflict { what }
        } else if status::namespace_missing(&source) {
            RequestError::NamespaceMissing { what, source: Box::new(source) }
        } else {
            RequestError::Failed { what, source: Box::new(source) }
        }
    }
}

impl RequestError {
    /// Whether the API server, or the way to it, was at fault rather than what was asked: it may well pass.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Failed { source, .. } => !status::is_code(source, 403),
            Self::Conflict { .. } => true,
            Self::NamespaceMissing { .. } => false,
        }
    }
}

impl Failure for RequestError {
    fn reason(&self) -> &'static str {
        match self {
            Self::Failed { source, .. } if status::is_code(source, 403) => "Forbidden",
            Self::Failed { .. } => "RequestFailed",
            Self::Conflict { .. } => "Conflict",
            Self::NamespaceMissing { .. } => "NamespaceMissing",
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

/// What the server said, else the whole chain of causes: kube's outer errors say only "failed to perform initial
/// object list", and others repeat their source.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(kube::Error::Api(status)) = error.downcast_ref() {
            return format!("{} ({})", status.message, status.code);
        }
        let own = error.to_string();
        if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
        next = error.source();
    }
    text
}
