//! Clients that time, count and bound every request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Response};
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use tower::{BoxError, Layer, Service};

use crate::Metrics;
use crate::answer::{Bounded, Bounds};
use crate::connection_role::ConnectionRole;
use crate::readiness::{CREDENTIALS, Gates, ProblemGate};
use crate::server_time::ServerTime;

/// A watch without any event or bookmark for this long is dead.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Adds time limits and the user agent to a configuration.
pub(crate) fn complete(mut config: Config, service: osm_api::rbac::Service, timeout: Duration) -> Config {
    config.connect_timeout = Some(timeout);
    config.read_timeout = Some(READ_TIMEOUT);
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
        server_time: ServerTime,
        credentials: Option<Credentials>,
    ) -> Self {
        Self {
            metrics: metrics.clone(),
            timeout,
            role,
            server_time,
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
        let send = tower::service_fn(move |request| {
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(
            tower::ServiceBuilder::new().layer(self.clone()).service(send),
            &config.default_namespace,
        )
    }

    fn bounded<B>(&self, response: Response<B>, what: (&'static str, String)) -> Response<Bounded<B>> {
        let cluster = (self.role.label(), self.role.name());
        let bounds = Bounds::new(&self.metrics, cluster, what, response.status().is_success());
        response.map(|body| Bounded::new(body, bounds))
    }

    fn note(&self, verb: &'static str, resource: &str, code: u16, took: Duration) {
        self.metrics
            .requested(self.role.label(), verb, resource, code, took);
        let Some(credentials) = &self.credentials else {
            return;
        };
        if matches!(code, 0 | 401 | 403 | 429 | 500..) {
            tracing::warn!(
                cluster = self.role.label(),
                verb,
                resource,
                code,
                "the request failed"
            );
        }
        // Held while the gate moves, so that of two answers at once the gate shows the later one.
        credentials.lock().note(code);
    }
}

/// Whether the API server accepts the service's credentials.
pub(crate) struct Credentials {
    gate: ProblemGate,
    problem: String,
}

impl Credentials {
    /// `origin`: where they come from, as messages name it.
    pub(crate) fn new(gates: &Gates, role: ConnectionRole, origin: &str) -> Self {
        let mut gate = ProblemGate::new(gates.gate(format!("{CREDENTIALS}{}", role.place())), role.label());
        gate.resolve();
        let problem = format!(
            "the API server of {} rejects the credentials of {origin} (401), because they are expired or revoked. Replace \
             them; no restart is needed",
            role.name()
        );
        Self { gate, problem }
    }

    fn note(&mut self, code: u16) {
        match code {
            // No answer says nothing about credentials.
            0 => {}
            401 => self.gate.report(self.problem.as_str()),
            _ => {
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

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed {
            inner,
            observe: self.clone(),
        }
    }
}

#[derive(Clone)]
pub(crate) struct Observed<S> {
    inner: S,
    observe: Observe,
}

impl<S, B> Service<Request<Body>> for Observed<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<Bounded<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (verb, resource) = classify(request.method(), request.uri());
        let (future, observe) = (self.inner.call(request), self.observe.clone());
        Box::pin(async move {
            let (started, name) = (Instant::now(), observe.role.name());
            let answer = match tokio::time::timeout(observe.timeout, future).await {
                Ok(answer) => answer.map_err(|error| Unanswered::Failed(name, error.into()).into()),
                Err(_) => Err(Unanswered::Late(name, observe.timeout).into()),
            };
            if let Ok(response) = &answer {
                observe.server_time.note(response.headers());
            }
            let code = answer.as_ref().map_or(0, |response| response.status().as_u16());
            observe.note(verb, &resource, code, started.elapsed());
            answer.map(|response| observe.bounded(response, (verb, resource)))
        })
    }
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
    let watch = uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| pair == "watch=true" || pair == "watch=1")
    });
    let verb = match method.as_str() {
        "GET" if watch => "watch",
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
}
