//! What a failed request means to a person, and the next step.

use std::error::Error;
use std::time::Duration;

use kube::client::AuthError;

/// Why something could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {what}: {}; {}", .cause.text(), .cause.next_step())]
pub struct Failure {
    /// The verb of the right, such as `list`.
    pub action: &'static str,
    /// The resource as RBAC names it, with its place.
    pub what: String,
    pub cause: Cause,
}

/// The kinds of failures that differ in what to do.
#[derive(Debug)]
pub enum Cause {
    Forbidden,
    Unauthorized,
    /// The cluster does not have this kind.
    NoSuchKind,
    /// The object was written after it was read.
    Conflict,
    Timeout(Duration),
    Credentials(String),
    Unreachable(String),
    Other(String),
}

impl Failure {
    /// Whether a right is missing.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.cause, Cause::Forbidden)
    }

    /// Whether the object was written after it was read.
    pub fn is_conflict(&self) -> bool {
        matches!(self.cause, Cause::Conflict)
    }

    /// Whether the cluster does not have the kind.
    pub fn is_not_found(&self) -> bool {
        matches!(self.cause, Cause::NoSuchKind)
    }
}

impl Cause {
    /// The cause of an error of the client. No text of a kubeconfig or of a program that it names is repeated.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                403 => Self::Forbidden,
                401 => Self::Unauthorized,
                404 => Self::NoSuchKind,
                409 => Self::Conflict,
                code => Self::Other(format!("{} ({code})", status.message)),
            },
            kube::Error::Auth(error) => Self::Credentials(credentials(error)),
            kube::Error::Service(source) => match find_auth(source.as_ref()) {
                Some(error) => Self::Credentials(credentials(error)),
                None => Self::Unreachable(chain(source.as_ref())),
            },
            kube::Error::HyperError(_) => Self::Unreachable(chain(error)),
            kube::Error::SerdeError(_) => Self::Other("the answer is not an object of Kubernetes".to_owned()),
            other => Self::Other(chain(other)),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Forbidden => "forbidden".to_owned(),
            Self::Unauthorized => "the API server does not accept the credentials".to_owned(),
            Self::NoSuchKind => "the cluster does not have this kind".to_owned(),
            Self::Conflict => "another program has changed it at the same time".to_owned(),
            Self::Timeout(limit) => format!("no answer within {} s", limit.as_secs_f32()),
            Self::Credentials(text) | Self::Unreachable(text) | Self::Other(text) => text.clone(),
        }
    }

    fn next_step(&self) -> &'static str {
        match self {
            Self::Forbidden => "ask the administrator of the cluster for this permission",
            Self::Unauthorized => "log in again, or select another user with --kubeconfig or --context",
            Self::NoSuchKind => {
                "install the CustomResourceDefinitions, or select another cluster with --context or --worker-context"
            }
            Self::Conflict => "run the command again",
            Self::Timeout(_) => "check the connection, or set --request-timeout",
            Self::Credentials(_) => "correct the user of the kubeconfig",
            Self::Unreachable(_) => "check the connection and the server in the kubeconfig",
            Self::Other(_) => "try again, or look at the log of the API server",
        }
    }
}

/// What is wrong with credentials. The output of a program that provides them is left out, because it may contain them.
fn credentials(error: &AuthError) -> String {
    match error {
        AuthError::AuthExecRun { cmd, out } => {
            format!(
                "the program {cmd}, which provides credentials, failed with {}",
                out.status
            )
        }
        AuthError::AuthExecStart(error) => {
            format!("the program that provides credentials cannot be started: {error}")
        }
        AuthError::ReadTokenFile(error, path) => {
            format!("the token file {} cannot be read: {error}", path.display())
        }
        _ => "the credentials of the kubeconfig cannot be used".to_owned(),
    }
}

fn find_auth<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e AuthError> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<AuthError>() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The causes of an error, each once.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let own = error.to_string();
        if !text.contains(&own) {
            text = format!("{text}: {own}");
        }
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn api(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("no", "no").with_code(code)))
    }

    #[test]
    fn every_failure_ends_with_the_next_step() {
        let cases = [
            (
                Cause::of(&api(403)),
                "forbidden; ask the administrator of the cluster for this permission",
            ),
            (
                Cause::of(&api(401)),
                "does not accept the credentials; log in again",
            ),
            (
                Cause::of(&api(404)),
                "does not have this kind; install the CustomResourceDefinitions",
            ),
            (
                Cause::of(&api(409)),
                "another program has changed it at the same time; run the command again",
            ),
            (Cause::of(&api(500)), "no (500); try again"),
            (
                Cause::Timeout(Duration::from_secs(3)),
                "no answer within 3 s; check the connection, or set --request-timeout",
            ),
        ];
        for (cause, expected) in cases {
            let failure = Failure {
                action: "list",
                what: "pods in namespace n".to_owned(),
                cause,
            };
            let text = failure.to_string();
            assert!(
                text.starts_with("cannot list pods in namespace n: ") && text.contains(expected),
                "{text}"
            );
        }
    }
}
