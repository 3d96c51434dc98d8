//! What the API server's answers mean to a controller, and how an error reads in one line.

use std::error::Error;
use std::fmt::Display;

use osm_api::Reason;

/// Why a reconcile failed.
pub trait Failure: Display + Send {
    /// From the closed set of the controller.
    fn reason(&self) -> Reason;
    /// Another writer changed an object between the read and the write. The reconcile is repeated; this is no failure.
    fn is_conflict(&self) -> bool;
}

/// The API server's message, or else the whole chain of causes. kube's outer errors say only "failed to perform initial
/// object list", and others repeat their source.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
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

/// An error of the API client in one line.
pub fn brief(error: &kube::Error) -> String {
    chain(error)
}

/// Whether the server answered with this HTTP status code.
pub fn is_code(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}

/// Whether a create was refused because the name is taken. Both this and a failed precondition are 409.
pub fn already_exists(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}

/// Whether a write failed on its precondition: the object has changed, or is another one.
pub fn conflict(error: &kube::Error) -> bool {
    is_code(error, 409) && !already_exists(error)
}

/// Whether a request failed because the namespace does not exist, or is terminating and accepts no new objects.
pub fn namespace_missing(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else {
        return false;
    };
    status.details.as_ref().is_some_and(|details| match status.code {
        403 => details
            .causes
            .iter()
            .any(|cause| cause.reason == "NamespaceTerminating"),
        404 => details.kind == "namespaces",
        _ => false,
    })
}
