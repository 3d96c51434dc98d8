//! Clients that time and count every request.

use std::time::Duration;

use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Response};
use kube::client::Body;
use kube::{Client, Config};
use tokio::time::Instant;
use tower::{BoxError, ServiceExt as _};

use crate::answer::Answer;
use crate::bounds::Bounds;
use crate::connection_role::ConnectionRole;
use crate::metrics::Metrics;
use crate::process::Process;
use crate::server_time::ServerTime;
use crate::transport::Transport;

/// Adds the user agent to a configuration.
pub(crate) fn complete(mut config: Config, service: osm_api::rbac::Service) -> Config {
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
    bounds: Option<Bounds>,
}

impl Observe {
    pub(crate) fn new(process: &Process, role: ConnectionRole) -> Self {
        Self {
            metrics: process.metrics.clone(),
            timeout: process.args.request_timeout,
            role,
            server_time: ServerTime::new(&process.environment),
            bounds: None,
        }
    }

    /// The same for a user cluster of a fleet.
    pub(crate) fn within(self, bounds: Bounds) -> Self {
        let bounds = Some(bounds);
        Self { bounds, ..self }
    }

    pub(crate) fn role(&self) -> ConnectionRole {
        self.role
    }

    pub(crate) fn bounds(&self) -> Option<&Bounds> {
        self.bounds.as_ref()
    }

    pub(crate) fn server_time(&self) -> &ServerTime {
        &self.server_time
    }

    /// A client whose requests are observed.
    pub(crate) fn client(&self, transport: Transport, config: &Config) -> Client {
        let observe = self.clone();
        let send = tower::service_fn(move |request| observe.clone().send(transport.clone(), request));
        Client::new(send, &config.default_namespace)
    }

    async fn send(self, transport: Transport, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        if !is_plain(request.method(), request.uri()) {
            return Err(Unanswered::NotSent.into());
        }
        let (verb, resource) = classify(request.method(), request.uri());
        let (started, place) = (Instant::now(), self.role.place());
        let answer = match tokio::time::timeout(self.timeout, transport.oneshot(request)).await {
            Ok(answer) => answer.map_err(|error| Unanswered::Failed(place, error)),
            Err(_) => Err(Unanswered::Late(place, self.timeout)),
        };
        let code = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        self.metrics
            .requested(self.role.label(), verb, &resource, code, started.elapsed());
        if let Some(bounds) = &self.bounds {
            match &answer {
                Ok(_) => bounds.answered(),
                Err(late @ Unanswered::Late(..)) => bounds.late(late),
                Err(_) => {}
            }
        }
        let answer = answer?;
        self.server_time.note(answer.headers());
        let timeout = Some(self.timeout).filter(|_| verb != "watch");
        let bounds = self
            .bounds
            .clone()
            .map(|bounds| (bounds, format!("{verb} of {resource}")));
        Ok(answer.map(|body| Answer::new(body, timeout, bounds)))
    }
}

/// A request without an answer.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error(
        "a name can't be in the path of a request: it is empty, `.` or `..`, or contains one of `/?%\\`; correct the name where it is referred to"
    )]
    NotSent,
    #[error("the API server{0} did not answer within {1:?}")]
    Late(&'static str, Duration),
    #[error("the API server{0} can't be reached: {1}")]
    Failed(&'static str, #[source] BoxError),
}

/// The segments of a path from the resource on: `/api/v1/namespaces/n/secrets/x` → `secrets`, `x`. Empty: it
/// is not the path of objects.
fn segments(uri: &http::Uri) -> Vec<&str> {
    let mut segments: Vec<&str> = uri
        .path()
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect();
    let before = match segments.first() {
        Some(&"api") => 2,
        Some(&"apis") => 3,
        _ => return Vec::new(),
    };
    segments.drain(..before.min(segments.len()));
    if segments.first() == Some(&"namespaces") && segments.len() > 2 {
        segments.drain(..2);
    }
    segments
}

/// Whether a request leads where its sender meant. kube puts a name into the path as it is, and a name that
/// comes from the spec of an object can be any text: `a/../b` would lead to another object, and `a?b` to
/// another request. Such objects are only read, and what reads one object has neither a subresource nor a
/// query. The API server has checked the names of those that are written. `#` and what follows it are cut off
/// before this, which opens nothing else: the rules for what may be read list namespaces, or namespaces and
/// names, without it.
fn is_plain(method: &http::Method, uri: &http::Uri) -> bool {
    let is_name = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"%\\".contains(&byte);
        !matches!(name, "" | "." | "..") && name.bytes().all(is_plain)
    };
    let names_are_plain = uri.path().split('/').skip(1).all(is_name);
    let segments = segments(uri).len();
    let reads_one = *method == http::Method::GET && segments > 1;
    names_are_plain && (!reads_one || (segments == 2 && uri.query().is_none()))
}

/// Verb and resource of a request, as RBAC names them: `/api/v1/namespaces/n/secrets/x` → `secrets`.
fn classify(method: &http::Method, uri: &http::Uri) -> (&'static str, String) {
    let rest = segments(uri);
    let resource = match (rest.first(), rest.get(2)) {
        (Some(resource), Some(subresource)) => format!("{resource}/{subresource}"),
        (Some(resource), None) => (*resource).to_owned(),
        _ => return ("other", "other".to_owned()),
    };
    let mut query = uri.query().unwrap_or_default().split('&');
    let verb = match method.as_str() {
        "GET" if query.any(|pair| pair == "watch=true") => "watch",
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
    use osm_api::Reason;

    use super::*;
    use crate::transport;

    fn observe() -> Observe {
        Observe::new(&crate::scope::tests::process().process, ConnectionRole::Only)
    }

    /// The transport to a server that answers so.
    fn transport<S, B>(server: S) -> Transport
    where
        S: tower::Service<Request<Body>, Response = Response<B>, Error = BoxError>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send,
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        Transport::new(server.map_response(transport::boxed))
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

    #[test]
    fn no_request_has_a_name_that_means_something_else() {
        let is_sent = |path: &str| {
            let uri = path.parse().unwrap();
            is_plain(&http::Method::GET, &uri)
        };
        for name in [
            "",
            ".",
            "..",
            "a/b",
            "odd/../existing",
            "/a",
            "a/status",
            "a?b",
            "a?watch=true",
            "a%2fb",
            "a\\b",
        ] {
            for path in [
                format!("/api/v1/namespaces/n/secrets/{name}"),
                format!("/apis/g/v1/things/{name}"),
                format!("/api/v1/namespaces/{name}/secrets?limit=50"),
                format!("/api/v1/namespaces/{name}/secrets?watch=true"),
                format!("/api/v1/namespaces/{name}/secrets/b"),
            ] {
                assert!(path.parse::<http::Uri>().is_err() || !is_sent(&path), "{path}");
            }
        }
        for name in ["a", "a.b-1", "osm:kube-system:osm", "node-csr-Ab_9", "a..b"] {
            assert!(is_sent(&format!("/api/v1/namespaces/n/secrets/{name}")), "{name}");
            assert!(is_sent(&format!("/api/v1/nodes/{name}")), "{name}");
        }
        for path in [
            "/api/v1/secrets?watch=true",
            "/apis/g/v1/namespaces/n/things?limit=5",
            "/openapi/v3/apis/g/v1",
        ] {
            assert!(is_sent(path), "{path}");
        }
    }

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// How long it takes until reading an answer fails whose body stalls after its beginning; `None`: it
    /// takes more than a day.
    async fn stalls(path: &'static str) -> Option<Duration> {
        let server = tower::service_fn(|_: Request<Body>| async {
            let begin = stream::iter([Ok::<_, BoxError>(Frame::data(Bytes::from_static(b"{")))]);
            Ok::<_, BoxError>(Response::new(StreamBody::new(begin.chain(stream::pending()))))
        });
        let request = Request::get(path).body(Body::empty()).unwrap();
        let transport = transport(server);
        let answer = observe().send(transport, request).await.unwrap();
        let began = tokio::time::Instant::now();
        let day = Duration::from_secs(86_400);
        let read = tokio::time::timeout(day, answer.into_body().collect()).await;
        read.ok().map(|read| {
            assert!(read.is_err());
            began.elapsed()
        })
    }

    /// How reading an answer ends whose parts are these, and what is said of the cluster.
    async fn ends(path: &str, part: &'static str, every: Duration) -> (Result<(), String>, Option<Reason>) {
        let server = tower::service_fn(move |_: Request<Body>| async move {
            let parts = stream::repeat(()).then(move |()| async move {
                tokio::time::sleep(every).await;
                Ok::<_, BoxError>(Frame::data(Bytes::from_static(part.as_bytes())))
            });
            Ok::<_, BoxError>(Response::new(StreamBody::new(parts.take(100_000))))
        });
        let bounds = Bounds::new(crate::settings::none(), &crate::bounds::turns());
        let request = Request::get(path).body(Body::empty()).unwrap();
        let transport = transport(server);
        let answer = observe().within(bounds.clone()).send(transport, request).await;
        let mut body = answer.unwrap().into_body();
        let mut end = Ok(());
        while let Some(frame) = body.frame().await {
            end = frame.map(drop).map_err(|problem| problem.to_string());
            if end.is_err() {
                break;
            }
        }
        (end, bounds.problem().map(|(reason, _)| reason))
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_user_cluster_sends_has_bounds() {
        const LIST: &str = "/api/v1/secrets?limit=50";
        const WATCH: &str = "/api/v1/secrets?watch=true";
        // A kilobyte, of which 100,000 come.
        let text: &'static str = "a".repeat(1024).leak();
        let line: &'static str = format!("{}\n", &text[1..]).leak();
        let second = Duration::from_secs(1);
        for (path, part, every, problem, reason) in [
            (
                LIST,
                text,
                Duration::ZERO,
                "list of secrets: the answer has more than 8 MiB",
                Some(Reason::TooLarge),
            ),
            (
                LIST,
                line,
                Duration::ZERO,
                "list of secrets: the answer has more than 8 MiB",
                Some(Reason::TooLarge),
            ),
            (
                LIST,
                "a",
                second,
                "the answer has begun, and does not end",
                Some(Reason::Slow),
            ),
            (
                WATCH,
                text,
                Duration::ZERO,
                "watch of secrets: an event has more than 4 MiB",
                Some(Reason::TooLarge),
            ),
            (WATCH, line, second, "", None),
        ] {
            let (end, said) = ends(path, part, every).await;
            assert_eq!(end.err().unwrap_or_default(), problem, "{path}");
            assert_eq!(said, reason, "{path}");
        }
    }

    /// Reads an answer of this size, at the end of which there is nothing more, or nothing comes any more. Returns
    /// how it ends, and how long that takes.
    async fn read(bounds: &Bounds, path: &str, kib: usize, stalls: bool) -> (Result<(), String>, Duration) {
        let server = tower::service_fn(move |_: Request<Body>| async move {
            let part = Ok::<_, BoxError>(Frame::data(Bytes::from(vec![b'a'; kib << 10])));
            let rest = if stalls {
                stream::pending().left_stream()
            } else {
                stream::empty().right_stream()
            };
            Ok::<_, BoxError>(Response::new(StreamBody::new(stream::iter([part]).chain(rest))))
        });
        let (request, began) = (Request::get(path).body(Body::empty()).unwrap(), Instant::now());
        let transport = transport(server);
        let answer = observe().within(bounds.clone()).send(transport, request).await;
        let end = answer.unwrap().into_body().collect().await;
        (
            end.map(drop).map_err(|problem| problem.to_string()),
            began.elapsed(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_of_all_clusters_take_turns_and_others_do_not_wait() {
        const LIST: &str = "/api/v1/secrets?limit=50";
        const WATCH: &str = "/api/v1/secrets?watch=true";
        let (turns, second) = (crate::bounds::turns(), Duration::from_secs(1));
        let cluster = || Bounds::new(crate::settings::none(), &turns);
        let hostile = [(); 4].map(|()| cluster());
        let stalled = futures::future::join_all(hostile.iter().map(|it| read(it, WATCH, 300, true)));
        let others = async {
            tokio::time::sleep(second).await;
            let small = read(&cluster(), LIST, 200, false).await;
            assert_eq!(small, (Ok(()), Duration::ZERO));
            let large = read(&cluster(), LIST, 300, false).await;
            assert!(large.0.is_ok() && large.1 > 8 * second, "{large:?}");
        };
        let (stalled, ()) = tokio::join!(stalled, others);
        let problem = "watch of secrets: an event has more than 256 KiB, and does not end in time";
        for ((end, _), bounds) in stalled.iter().zip(&hostile) {
            assert_eq!(end.as_ref().err().map(String::as_str), Some(problem));
            assert_eq!(bounds.problem().map(|(reason, _)| reason), Some(Reason::TooLarge));
        }
        // Whoever waits for a turn in vain gives up in the same time.
        let many = [(); 8].map(|()| cluster());
        let ends = futures::future::join_all(many.iter().map(|it| read(it, WATCH, 300, true))).await;
        assert!(
            ends.iter().all(|(end, time)| end.is_err() && *time < 11 * second),
            "{ends:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_stalls_fails_and_a_silent_watch_goes_on() {
        let took = stalls("/api/v1/secrets?limit=50").await.unwrap();
        assert!((TIMEOUT..2 * TIMEOUT).contains(&took), "{took:?}");
        assert_eq!(stalls("/api/v1/secrets?watch=true").await, None);
    }
}
