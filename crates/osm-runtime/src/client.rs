//! Clients that time and count every request, and repeat those that an overloaded API server asks to send later.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use http::header::{HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Request, Response};
use kube::client::Body;
use kube::{Client, Config};
use parking_lot::Mutex;
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_http::timeout::TimeoutBody;

use crate::connection_role::ConnectionRole;
use crate::readiness::{CREDENTIALS, ProblemGate};
use crate::server_time::ServerTime;
use crate::{Environment, Metrics, Readiness};

/// How often a request is sent that the API server asks to send again.
const ATTEMPTS: u32 = 4;

/// The shortest time between two starts of a watch.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

/// The longest pause before a request is sent again. If the API server asks for a longer one, the reconcile fails, so that no worker waits.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

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
    environment: Environment,
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
            environment: environment.clone(),
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
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: Send + 'static,
{
    type Response = Response<TimeoutBody<B>>;
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
    /// Sends a request, and again where an API server that has refused it asks for that, as client-go does. `Retry-After` says when, or a
    /// quarter later, so that not all go at once.
    async fn send<S, B>(
        self,
        inner: S,
        request: Request<Body>,
        what: (&'static str, String),
    ) -> Result<Response<TimeoutBody<B>>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone,
        S::Error: Into<BoxError>,
    {
        let (mut next, mut repeats) = (request, 1..ATTEMPTS);
        loop {
            let again = repeats.next().and_then(|_| repeatable(&next));
            let answer = self.attempt(inner.clone(), next, &what).await;
            let pause = answer.as_ref().ok().and_then(asked_pause);
            let Some((again, pause)) = again.zip(pause.filter(|pause| *pause <= LONGEST_PAUSE)) else {
                return answer;
            };
            tokio::time::sleep(pause.mul_f64(1.0 + self.environment.fraction() / 4.0)).await;
            next = again;
        }
    }

    async fn attempt<S, B>(
        &self,
        inner: S,
        request: Request<Body>,
        (verb, resource): &(&'static str, String),
    ) -> Result<Response<TimeoutBody<B>>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>>,
        S::Error: Into<BoxError>,
    {
        if *verb == "watch" {
            // kube starts a watch again at once, also if a server or proxy ends each one.
            tokio::time::sleep(SHORTEST_INTERVAL).await;
        }
        let (started, name) = (Instant::now(), self.role.name());
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
        // A connection that many requests share lives on while one of the answers stalls. kube itself gives up a silent watch.
        let limit = match *verb {
            "watch" => Duration::MAX,
            _ => self.timeout,
        };
        answer.map(|response| response.map(|body| TimeoutBody::new(limit, body)))
    }
}

/// How long an API server that has not looked at a request asks to wait. Kubernetes sends seconds, never a date.
fn asked_pause<B>(response: &Response<B>) -> Option<Duration> {
    let is_refusal = matches!(response.status().as_u16(), 429 | 503);
    let asked = response.headers().get(RETRY_AFTER).filter(|_| is_refusal)?;
    asked.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
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
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;

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

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// Sends a request to an API server that refuses twice with this. Returns the code of the answer, and how long it took.
    async fn answered_after(code: u16, retry_after: Option<&'static str>) -> (u16, f64) {
        let refusals = Arc::new(AtomicUsize::new(2));
        let server = tower::service_fn(move |_: Request<Body>| {
            let refuses = refusals
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok();
            let mut response = Response::new(Body::empty());
            if refuses {
                *response.status_mut() = code.try_into().unwrap();
                let headers = retry_after.map(|asked| (RETRY_AFTER, HeaderValue::from_static(asked)));
                response.headers_mut().extend(headers);
            }
            async { Ok::<_, BoxError>(response) }
        });
        let (environment, metrics) = (
            Environment::default(),
            Metrics::of(osm_api::rbac::Service::OscController).unwrap(),
        );
        let observe = Observe::new(&metrics, TIMEOUT, ConnectionRole::Only, &environment, None);
        let began = tokio::time::Instant::now();
        let answer = observe
            .layer(server)
            .oneshot(Request::new(Body::empty()))
            .await
            .unwrap();
        (answer.status().as_u16(), began.elapsed().as_secs_f64())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_sent_again_when_the_api_server_asks_for_that_and_the_pause_is_short() {
        for (code, asked) in [(429, "2"), (503, "1")] {
            let (status, took) = answered_after(code, Some(asked)).await;
            let least = 2.0 * asked.parse::<f64>().unwrap();
            assert_eq!(status, 200, "{code}");
            assert!((least..least * 1.25 + 0.01).contains(&took), "{code}: {took}");
        }
        for (code, asked) in [
            (429, None),
            (503, Some("3600")),
            (500, Some("1")),
            (409, Some("1")),
        ] {
            assert_eq!(answered_after(code, asked).await, (code, 0.0));
        }
    }

    /// How long it takes until reading an answer fails whose body stalls after its beginning; `None`: it takes more than a day.
    async fn stalls(path: &'static str) -> Option<Duration> {
        let server = tower::service_fn(|_: Request<Body>| async {
            let begin = stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{")))]);
            Ok::<_, BoxError>(Response::new(StreamBody::new(begin.chain(stream::pending()))))
        });
        let (environment, metrics) = (Environment::default(), Metrics::new().unwrap());
        let observe = Observe::new(&metrics, TIMEOUT, ConnectionRole::Only, &environment, None);
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = observe.layer(server).oneshot(request).await.unwrap();
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
