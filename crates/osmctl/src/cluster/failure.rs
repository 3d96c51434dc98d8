//! Explains a failed request to a person, with the next step.

use std::error::Error;
use std::time::Duration;

use kube::client::AuthError;
use osm_api::rbac::ClusterKind;

use super::connect::flag;

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {what}: {}; {}", .cause.text(), self.next_step())]
pub struct Failure {
    pub cluster: ClusterKind,
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

    /// Whether the cluster does not have the kind.
    pub fn is_not_found(&self) -> bool {
        matches!(self.cause, Cause::NoSuchKind)
    }

    /// Whether every other request to this cluster fails as well.
    pub fn concerns_every_request(&self) -> bool {
        use Cause::{Credentials, Timeout, Unauthorized, Unreachable};
        matches!(
            self.cause,
            Unauthorized | Timeout(_) | Credentials(_) | Unreachable(_)
        )
    }

    /// The message for a cluster that no flag has selected. `renew` says who renews its credentials.
    pub fn without_flags(&self, renew: &str) -> String {
        let Self {
            action, what, cause, ..
        } = self;
        let step = match cause {
            Cause::Unauthorized => renew.to_owned(),
            _ => self.next_step(),
        };
        format!("cannot {action} {what}: {}; {step}", cause.text())
    }

    fn next_step(&self) -> String {
        let flag = |name| flag(self.cluster, name);
        let step = match &self.cause {
            Cause::Forbidden => "ask the administrator of the cluster for this permission",
            Cause::Unauthorized => {
                let (file, context) = (flag("kubeconfig"), flag("context"));
                return format!("log in again, or select another user with {file} or {context}");
            }
            Cause::NoSuchKind => {
                "install the CustomResourceDefinitions, or select another cluster with --context or --worker-context"
            }
            Cause::Timeout(_) => "check the connection, or set --request-timeout",
            Cause::Credentials(_) => "correct the user of the kubeconfig",
            Cause::Unreachable(_) => "check the connection and the server in the kubeconfig",
            Cause::Other(_) => "try again, or look at the log of the API server",
        };
        step.to_owned()
    }
}

impl Cause {
    /// The cause of an error of the client. No text of a kubeconfig or of a program that it names is
    /// repeated.
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => match status.code {
                403 => Self::Forbidden,
                401 => Self::Unauthorized,
                404 => Self::NoSuchKind,
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
            Self::Timeout(limit) => format!("no answer within {} s", limit.as_secs_f32()),
            Self::Credentials(text) | Self::Unreachable(text) | Self::Other(text) => text.clone(),
        }
    }
}

/// What is wrong with credentials. The output of a program that provides them is left out, because it may
/// contain them.
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
        use ClusterKind::{Management, Worker};
        let timeout = Cause::Timeout(Duration::from_secs(3));
        let cases = [
            (
                Management,
                Cause::of(&api(403)),
                "forbidden; ask the administrator of the cluster",
            ),
            (
                Management,
                Cause::of(&api(404)),
                "does not have this kind; install the CustomResourceDefinitions",
            ),
            (Management, Cause::of(&api(500)), "no (500); try again"),
            (
                Management,
                timeout,
                "no answer within 3 s; check the connection, or set --request-timeout",
            ),
            (
                Worker,
                Cause::of(&api(401)),
                "select another user with --worker-kubeconfig or --worker-context",
            ),
        ];
        for (cluster, cause, expected) in cases {
            let failure = Failure {
                cluster,
                action: "list",
                what: "pods in namespace n".to_owned(),
                cause,
            };
            let text = failure.to_string();
            let start = "cannot list pods in namespace n";
            assert!(text.starts_with(start) && text.contains(expected), "{text}");
        }
    }
}
