//! Clients that time and count every request.

use std::sync::Arc;
use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Response};
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::BoxError;
use tower_http::timeout::TimeoutBody;

use crate::connection_role::ConnectionRole;
use crate::readiness::{CREDENTIALS, ProblemGate};
use crate::server_time::ServerTime;
use crate::{Environment, Metrics, Readiness};

/// The shortest time between two starts of a watch.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// How long every answer has to be 401 until the credentials count as rejected. An API server that has just started answers so for seconds.
const REJECTED_FOR: Duration = Duration::from_secs(10);

/// Adds time limits and the user agent to a configuration.
pub(crate) fn complete(mut config: Config, service: osm_api::rbac::Service, timeout: Duration) -> Config {
    config.connect_timeout = Some(timeout);
    let agent = format!("{}/{}", service.name(), env!("CARGO_PKG_VERSION"));
    if let Ok(agent) = HeaderValue::from_str(&agent) {
        config.headers.push((USER_AGENT, agent));
    }
    config
}

/// Observes every request to a cluster.
#[derive(Clone)]
pub(crate) struct Observe {
    metrics: Metrics,
    timeout: Duration,
    role: ConnectionRole,
    server_time: ServerTime,
    /// `None`: the request does not carry the service's own credentials.
    credentials: Option<Arc<Mutex<Credentials>>>,
}

impl Observe {
    pub(crate) fn new(
        metrics: &Metrics,
        timeout: Duration,
        role: ConnectionRole,
        environment: &Environment,
        credentials: Option<Credentials>,
    ) -> Self {
        Self {
            metrics: metrics.clone(),
            timeout,
            role,
            server_time: ServerTime::new(environment),
            credentials: credentials.map(|credentials| Arc::new(Mutex::new(credentials))),
        }
    }

    /// The same for requests with other credentials.
    pub(crate) fn of_others(&self) -> Self {
        Self {
            credentials: None,
            ..self.clone()
        }
    }

    pub(crate) fn server_time(&self) -> &ServerTime {
        &self.server_time
    }

    /// Observes the requests of an existing client.
    pub(crate) fn client(&self, client: Client, config: &Config) -> Client {
        let observe = self.clone();
        let send = tower::service_fn(move |request| observe.clone().send(client.clone(), request));
        Client::new(send, &config.default_namespace)
    }

    async fn send(
        self,
        client: Client,
        request: Request<Body>,
    ) -> Result<Response<TimeoutBody<Body>>, BoxError> {
        let (verb, resource) = classify(request.method(), request.uri());
        if verb == "watch" {
            // kube starts a watch again at once, also if a server or proxy ends each one.
            tokio::time::sleep(SHORTEST_INTERVAL).await;
        }
        let (started, name) = (Instant::now(), self.role.name());
        let answer = match tokio::time::timeout(self.timeout, client.send(request)).await {
            Ok(answer) => answer.map_err(|error| Unanswered::Failed(name, error.into())),
            Err(_) => Err(Unanswered::Late(name, self.timeout)),
        };
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        self.note(verb, &resource, code, started.elapsed());
        let answer = answer?;
        self.server_time.note(answer.headers());
        // A connection that many requests share lives on while one of the answers stalls. kube itself gives up a silent watch.
        let limit = match verb {
            "watch" => Duration::MAX,
            _ => self.timeout,
        };
        Ok(answer.map(|body| TimeoutBody::new(limit, body)))
    }

    fn note(&self, verb: &'static str, resource: &str, code: u16, took: Duration) {
        self.metrics
            .requested(self.role.label(), verb, resource, code, took);
        if let Some(credentials) = &self.credentials {
            // Held while the gate moves, so that of two answers at once the gate shows the later one.
            credentials.lock().note(code);
        }
    }
}

/// Whether the API server accepts the service's credentials.
pub(crate) struct Credentials {
    gate: ProblemGate,
    problem: String,
    /// Since when every answer is 401.
    rejected_since: Option<Instant>,
}

impl Credentials {
    /// `origin`: where they come from, as messages name it.
    pub(crate) fn new(gates: &Readiness, role: ConnectionRole, origin: &str) -> Self {
        let mut gate = ProblemGate::new(gates.gate(format!("{CREDENTIALS}{}", role.place())), role.label());
        gate.resolve();
        let problem = format!(
            "the API server of {} rejects the credentials of {origin} (401), because they are expired or revoked. Replace \
             them; no restart is needed",
            role.name()
        );
        Self {
            gate,
            problem,
            rejected_since: None,
        }
    }

    fn note(&mut self, code: u16) {
        match code {
            // No answer says nothing about credentials.
            0 => {}
            401 => {
                let since = self.rejected_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= REJECTED_FOR {
                    self.gate.report(self.problem.as_str());
                }
            }
            _ => {
                self.rejected_since = None;
                if self.gate.resolve() {
                    tracing::info!("the credentials are accepted again");
                }
            }
        }
    }
}

/// A request without an answer.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("the API server of {0} did not answer within {1:?}")]
    Late(&'static str, Duration),
    #[error("the API server of {0} can't be reached: {1}")]
    Failed(&'static str, #[source] BoxError),
}

pub(crate) fn is_watch(uri: &http::Uri) -> bool {
    let mut pairs = uri.query().into_iter().flat_map(|query| query.split('&'));
    pairs.any(|pair| pair == "watch=true" || pair == "watch=1")
}

/// Verb and resource of a request, as RBAC names them: `/api/v1/namespaces/n/secrets/x` → `secrets`.
fn classify(method: &http::Method, uri: &http::Uri) -> (&'static str, String) {
    let mut segments = uri.path().split('/').filter(|segment| !segment.is_empty());
    match segments.next() {
        Some("api") => {
            segments.next();
        }
        Some("apis") => {
            segments.next();
            segments.next();
        }
        _ => return ("other", "other".to_owned()),
    }
    let mut rest: Vec<&str> = segments.collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    let resource = match (rest.first(), rest.get(2)) {
        (Some(resource), Some(subresource)) => format!("{resource}/{subresource}"),
        (Some(resource), None) => (*resource).to_owned(),
        _ => "other".to_owned(),
    };
    let verb = match method.as_str() {
        "GET" if is_watch(uri) => "watch",
        "GET" if rest.len() > 1 => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    };
    (verb, resource)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    #[test]
    fn requests_are_classified_as_rbac_does_and_without_names() {
        for (method, uri, verb, resource) in [
            ("GET", "/api/v1/namespaces/n/secrets/x", "get", "secrets"),
            ("GET", "/api/v1/namespaces/n/secrets?limit=5", "list", "secrets"),
            ("GET", "/api/v1/secrets?watch=true&x=y", "watch", "secrets"),
            ("GET", "/api/v1/namespaces/n", "get", "namespaces"),
            (
                "POST",
                "/api/v1/namespaces/n/serviceaccounts/x/token",
                "create",
                "serviceaccounts/token",
            ),
            (
                "PATCH",
                "/apis/g/v1/namespaces/n/things/x/status",
                "patch",
                "things/status",
            ),
            ("GET", "/version", "other", "other"),
        ] {
            let got = classify(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(got, (verb, resource.to_owned()), "{method} {uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn credentials_count_as_rejected_once_every_answer_says_so_for_a_while() {
        let readiness = Readiness::default();
        let mut credentials = Credentials::new(&readiness, ConnectionRole::Only, "--kubeconfig");
        for (pause, code, is_ready) in [
            (0, 401, true),
            (9, 401, true),
            (1, 200, true),
            (0, 401, true),
            (9, 0, true),
            (1, 401, false),
            (9, 0, false),
            (0, 403, true),
        ] {
            tokio::time::advance(Duration::from_secs(pause)).await;
            credentials.note(code);
            assert_eq!(readiness.waiting().is_empty(), is_ready, "{code} after {pause} s");
        }
    }

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// How long it takes until reading an answer fails whose body stalls after its beginning; `None`: it takes more than a day.
    async fn stalls(path: &'static str) -> Option<Duration> {
        let server = tower::service_fn(|_: Request<Body>| async {
            let begin = stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{")))]);
            Ok::<_, BoxError>(Response::new(StreamBody::new(begin.chain(stream::pending()))))
        });
        let (environment, metrics) = (
            Environment::default(),
            Metrics::of(osm_api::rbac::Service::OscController).unwrap(),
        );
        let observe = Observe::new(&metrics, TIMEOUT, ConnectionRole::Only, &environment, None);
        let request = Request::get(path).body(Body::empty()).unwrap();
        let client = Client::new(server, "default");
        let answer = observe.send(client, request).await.unwrap();
        let began = tokio::time::Instant::now();
        let day = Duration::from_secs(86_400);
        let read = tokio::time::timeout(day, answer.into_body().collect()).await;
        read.ok().map(|read| {
            assert!(read.is_err());
            began.elapsed()
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_stalls_fails_and_a_silent_watch_goes_on() {
        let took = stalls("/api/v1/secrets?limit=50").await.unwrap();
        assert!((TIMEOUT..2 * TIMEOUT).contains(&took), "{took:?}");
        assert_eq!(stalls("/api/v1/secrets?watch=true").await, None);
    }
}
