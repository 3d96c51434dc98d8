//! Classifies the API server's answers for a controller, and writes an error in one line.

use std::error::Error;
use std::fmt::Display;

use std::time::Duration;

use osm_api::Reason;
use osm_api::condition::clip;

/// Longest delay before a failed reconcile is repeated, where a retry alone may help.
pub const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// The same where someone has to fix something first. The fix then requeues the object: by a watch, the
/// settings, or readiness.
pub const LONGEST_DELAY_OF_PERMANENT: Duration = Duration::from_secs(600);

pub trait Failure: Display + Send {
    /// From the closed set of the controller.
    fn reason(&self) -> Reason;
    /// Another writer changed an object between the read and the write. The reconcile is repeated; this does
    /// not count as a failure.
    fn is_conflict(&self) -> bool;
    /// The delay grows up to this.
    fn longest_delay(&self) -> Duration {
        LONGEST_DELAY
    }
}

/// The longest text of an error: a server may answer with a long one, and a condition has room for no more.
const MAX_TEXT: usize = 2048;

/// The API server's message, or else the whole chain of causes. Some errors repeat their source. A decoder's
/// message may quote the answer, and so a credential: only the place is kept.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = Some(error);
    while let Some(error) = next {
        match error.downcast_ref() {
            Some(kube::Error::Api(status)) => {
                return clip(&format!("{} ({})", status.message, status.code), MAX_TEXT);
            }
            Some(kube::Error::SerdeError(error)) => {
                return format!(
                    "the API server's answer can't be decoded (line {}, column {})",
                    error.line(),
                    error.column()
                );
            }
            _ => {}
        }
        let own = error.to_string();
        if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
        next = error.source();
    }
    clip(&text, MAX_TEXT)
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

/// Whether a request failed because the namespace does not exist, or is terminating and accepts no new
/// objects.
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
