//! Clients that time, count and bound every request, and that keep the pace which its API server allows.

use std::collections::HashMap;
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
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::answer::{Bounded, Bounds};
use crate::connection_role::ConnectionRole;
use crate::pace::{self, Pace};
use crate::readiness::{CREDENTIALS, Gates, ProblemGate};
use crate::server_time::ServerTime;
use crate::{Environment, Metrics};

/// A watch without any event or bookmark for this long is dead.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// A failure with the same verb, resource and code is logged again after this time.
const LOG_INTERVAL: Duration = Duration::from_secs(600);

/// How often a request is sent that the API server refuses as overloaded or unavailable.
const ATTEMPTS: u32 = 4;

/// A refused request is sent again by itself only if the pause that it began is no longer.
const LONGEST_WAIT_FOR_REPEAT: Duration = Duration::from_secs(5);

/// What the owner of a Lease writes in time even if the API server is overloaded. Otherwise the pools of a slow replica would move to
/// another one, which is as slow. There are few of these requests.
const URGENT: &str = "leases";

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
    pace: Pace,
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
        let server_time = ServerTime::new(environment);
        Self {
            metrics: metrics.clone(),
            timeout,
            role,
            pace: Pace::new(environment),
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
        // Held while the gate moves, so that of two answers at once the gate shows the later one.
        let mut credentials = credentials.lock();
        if matches!(code, 0 | 401 | 403 | 429 | 500..)
            && credentials
                .failures
                .is_to_log(verb, resource, code, Instant::now())
        {
            tracing::warn!(
                cluster = self.role.label(),
                verb,
                resource,
                code,
                "the request failed; further ones are only counted for ten minutes"
            );
        }
        credentials.note(code);
    }
}

/// When failures of requests were logged last, by verb, resource and code.
#[derive(Default)]
struct LoggedFailures(HashMap<(&'static str, String, u16), Instant>);

impl LoggedFailures {
    /// Whether to log this failure, which is then counted as logged.
    fn is_to_log(&mut self, verb: &'static str, resource: &str, code: u16, now: Instant) -> bool {
        let last = self.0.get(&(verb, resource.to_owned(), code));
        let is_to_log = last.is_none_or(|last| now.saturating_duration_since(*last) >= LOG_INTERVAL);
        if is_to_log {
            self.0.insert((verb, resource.to_owned(), code), now);
        }
        is_to_log
    }
}

/// Whether the API server accepts the service's credentials.
pub(crate) struct Credentials {
    gate: ProblemGate,
    problem: String,
    failures: LoggedFailures,
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
        Self {
            gate,
            problem,
            failures: LoggedFailures::default(),
        }
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
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<Bounded<B>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let what = classify(request.method(), request.uri());
        let (inner, observe) = (self.inner.clone(), self.observe.clone());
        Box::pin(observe.send(inner, request, what))
    }
}

impl Observe {
    /// Sends a request, and again where the API server refuses it without looking at it.
    async fn send<S, B>(
        self,
        inner: S,
        request: Request<Body>,
        what: (&'static str, String),
    ) -> Result<Response<Bounded<B>>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone,
        S::Error: Into<BoxError>,
    {
        let (mut next, mut repeats) = (request, 1..ATTEMPTS);
        loop {
            let again = repeats.next().and_then(|_| repeatable(&next));
            let answer = self.attempt(inner.clone(), next, &what).await;
            let is_refused = matches!(&answer, Ok(response) if pace::is_refusal(response.status().as_u16()));
            // After a long pause the object is gathered anew, and meanwhile no worker waits.
            let is_soon = self.pace.left() <= LONGEST_WAIT_FOR_REPEAT;
            match again.filter(|_| is_refused && is_soon) {
                Some(again) => next = again,
                None => return answer.map(|response| self.bounded(response, what)),
            }
        }
    }

    async fn attempt<S, B>(
        &self,
        inner: S,
        request: Request<Body>,
        (verb, resource): &(&'static str, String),
    ) -> Result<Response<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>>,
        S::Error: Into<BoxError>,
    {
        if resource != URGENT {
            self.pace.wait().await;
        }
        let (started, sent, name) = (Instant::now(), tokio::time::Instant::now(), self.role.name());
        let answer = match tokio::time::timeout(self.timeout, inner.oneshot(request)).await {
            Ok(answer) => answer.map_err(|error| Unanswered::Failed(name, error.into()).into()),
            Err(_) => Err(Unanswered::Late(name, self.timeout).into()),
        };
        let head = answer
            .as_ref()
            .ok()
            .map(|response| (response.status().as_u16(), response.headers()));
        if let Some((_, headers)) = head {
            self.server_time.note(headers);
        }
        self.note(
            verb,
            resource,
            head.map_or(0, |(code, _)| code),
            started.elapsed(),
        );
        if self.pace.note(sent, head) {
            self.metrics.paused(self.role.label());
        }
        answer
    }
}

/// A copy of a request, if its body is in memory.
fn repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
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
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;

    use crate::Api;
    use k8s_openapi::api::core::v1::Namespace;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::Readiness;
    use crate::queue::Queue;
    use crate::replicas::Replicas;
    use crate::request::failed;
    use crate::runner::{self, Limits};
    use crate::supervisor::Supervisor;

    #[test]
    fn a_failure_that_goes_on_is_logged_every_ten_minutes() {
        let (mut failures, start) = (LoggedFailures::default(), Instant::now());
        let mut logs = |resource, code, seconds| {
            failures.is_to_log("list", resource, code, start + Duration::from_secs(seconds))
        };
        assert!(logs("secrets", 403, 0));
        assert!(!logs("secrets", 403, 599), "the same");
        assert!(logs("secrets", 401, 599), "another code");
        assert!(logs("roles", 403, 599), "another resource");
        assert!(logs("secrets", 403, 600), "it lasts");
        assert!(!logs("secrets", 403, 601));
    }

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

    /// An API server that is away until `up`.
    #[derive(Default)]
    struct Server {
        in_flight: AtomicUsize,
        most_in_flight: AtomicUsize,
        /// Requests by second.
        requests: Mutex<BTreeMap<u64, usize>>,
        answered: AtomicUsize,
    }

    impl Server {
        async fn respond(&self, began: tokio::time::Instant, up: Duration) -> Response<Body> {
            let since = began.elapsed();
            *self.requests.lock().entry(since.as_secs()).or_default() += 1;
            let in_flight = self.in_flight.fetch_add(1, SeqCst) + 1;
            self.most_in_flight.fetch_max(in_flight, SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            self.in_flight.fetch_sub(1, SeqCst);
            let (status, text) = match since < up {
                true => (503, "{}"),
                false => (200, r#"{"metadata": {"name": "n"}}"#),
            };
            self.answered.fetch_add(usize::from(status == 200), SeqCst);
            Response::builder()
                .status(status)
                .body(text.as_bytes().to_vec().into())
                .unwrap()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_an_outage_2000_objects_are_reconciled_without_a_storm() {
        const OBJECTS: usize = 2000;
        const CONCURRENCY: usize = 16;
        const OUTAGE: Duration = Duration::from_secs(300);
        let (environment, metrics) = (Environment::default(), Metrics::new().unwrap());
        let (server, began) = (Arc::new(Server::default()), tokio::time::Instant::now());
        let responding = server.clone();
        let fake = tower::service_fn(move |_: Request<Body>| {
            let server = responding.clone();
            async move { Ok::<_, BoxError>(server.respond(began, OUTAGE).await) }
        });
        let timeout = Duration::from_secs(10);
        let observe = Observe::new(&metrics, timeout, ConnectionRole::Only, &environment, None);
        let client = Client::new(observe.layer(fake), "default");
        let queue = Arc::new(Queue::new(&environment));
        (0..OBJECTS).for_each(|object| queue.add(format!("object-{object}")));
        let (shutdown, limits) = (
            CancellationToken::new(),
            Limits {
                concurrency: CONCURRENCY,
                timeout: Duration::from_secs(60),
            },
        );
        let runner = tokio::spawn(runner::run(
            queue,
            limits,
            metrics,
            (
                Supervisor::new(&Readiness::default().gates(""), &shutdown),
                shutdown.clone(),
            ),
            (Replicas::only(), Unshared),
            move |_: String| {
                let api: Api<Namespace> = Api::all(client.clone());
                async move { api.get("n").await.map(|_| None).map_err(failed("reading")) }
            },
        ));
        tokio::time::sleep(OUTAGE + Duration::from_secs(60)).await;
        assert_eq!(server.answered.load(SeqCst), OBJECTS, "all within a minute");
        assert_eq!(server.most_in_flight.load(SeqCst), CONCURRENCY);
        let requests = server.requests.lock().clone();
        let during: Vec<usize> = (10..OUTAGE.as_secs())
            .map(|second| requests.get(&second).copied().unwrap_or(0))
            .collect();
        assert!(during.iter().max() <= Some(&(2 * CONCURRENCY)), "{during:?}");
        let all: usize = during.iter().sum();
        assert!(
            (1..=5 * during.len()).contains(&all),
            "{all} requests: {during:?}"
        );
        shutdown.cancel();
        runner.await.unwrap();
    }

    #[derive(Clone)]
    struct Unshared;

    impl runner::Shared<String> for Unshared {
        fn known(&self) -> Vec<String> {
            Vec::new()
        }

        fn released(&self, _: &String) {}
    }
}
