//! Serves the API server in memory on a port, to kubectl, osmctl and the services: TLS, HTTP/2, discovery, tables,
//! and Events in their older version.
//!
//! For trying and measuring only: it knows no user but the administrator and the ServiceAccounts, and keeps nothing.

mod discovery;
mod events;
mod openapi;
mod table;

#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::Body;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use self::table::Table;
use super::authorizer::User;
use super::request::{Request, Target, Verb};
use super::state::Failure;
use super::wire::{Link, Wire};
use super::{Server, kinds};

/// What a real API server accepts.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// Time for the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Pause after a connection could not be accepted, such as without a free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

type AnswerBody = StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>;

/// The certificate of a server, from the files that `Pki::create` of osm-testkit has written.
///
/// # Errors
/// Files that can't be read, or don't fit.
pub fn tls(directory: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_file(directory.join("apiserver.crt"))?;
    let key = PrivateKeyDer::from_pem_file(directory.join("apiserver.key"))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Answers requests until it is dropped. Who shows `admin_token` may do everything, others what their tokens
/// allow.
pub async fn serve(server: Server, listener: TcpListener, tls: Arc<ServerConfig>, admin_token: String) {
    let acceptor = TlsAcceptor::from(tls);
    let front = Arc::new(Front { server, admin_token });
    let mut connections = tokio::task::JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, acceptor.clone(), front.clone()));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// What goes wrong with a connection is a matter of the client.
async fn connection(stream: TcpStream, acceptor: TlsAcceptor, front: Arc<Front>) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
        return;
    };
    let service = service_fn(move |request| {
        let front = front.clone();
        async move { Ok::<_, Infallible>(front.answer(request).await) }
    });
    let speaks_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let stream = TokioIo::new(stream);
    let _ = if speaks_http2 {
        let server = http2::Builder::new(TokioExecutor::new());
        server.serve_connection(stream, service).await
    } else {
        http1::Builder::new().serve_connection(stream, service).await
    };
}

struct Front {
    server: Server,
    admin_token: String,
}

impl Front {
    async fn answer(&self, request: http::Request<Incoming>) -> Response<AnswerBody> {
        match self.try_answer(request).await {
            Ok(response) => response,
            Err(failure) => json(failure.code, &failure.status()),
        }
    }

    async fn try_answer(&self, request: http::Request<Incoming>) -> Result<Response<AnswerBody>, Failure> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path();
        if parts.method == http::Method::GET {
            if ["/livez", "/readyz", "/healthz"].contains(&path) {
                return Ok(whole(200, "text/plain", "ok".to_owned()));
            }
            let found = self
                .server
                .with(|state| discovery::document(path, state).or_else(|| openapi::document(path, state)));
            if let Some(document) = found {
                return Ok(json(200, &document));
            }
        }
        let accept = text(&parts.headers, ACCEPT).to_owned();
        let content_type = text(&parts.headers, CONTENT_TYPE).to_owned();
        let parsed = Request::parse(&parts.method, &parts.uri, &accept, &content_type, Vec::new());
        let request = parsed.ok_or_else(|| {
            let message = format!("the demo's API server does not serve {path}; a real one may (--etcd)");
            Failure::new(404, "NotFound", message)
        })?;
        let view = View::of(&self.server, &request, &accept);
        let bearer = text(&parts.headers, AUTHORIZATION).strip_prefix("Bearer ");
        let user = if bearer == Some(&self.admin_token) {
            User::Admin
        } else {
            User::Nobody
        };
        if user == User::Admin {
            parts.headers.remove(AUTHORIZATION);
        }
        if content_type.contains("protobuf") {
            let message = "the demo's API server does not read protobuf, which this command sends; use kubectl apply with a manifest";
            return Err(Failure::new(415, "UnsupportedMediaType", message));
        }
        let body = Limited::new(body, LARGEST_BODY).collect().await.map_err(|_| {
            Failure::new(
                413,
                "RequestEntityTooLarge",
                "the body is too large or was cut off",
            )
        })?;
        let forwarded = http::Request::from_parts(parts, Body::from(body.to_bytes()));
        let answered = Wire::new(self.server.clone(), user, Link::default())
            .call(forwarded)
            .await;
        let response = answered.map_err(|error| Failure::new(500, "InternalError", error.to_string()))?;
        Ok(view.apply(response).await)
    }
}

/// How an answer is shown.
struct View {
    is_watch: bool,
    has_bookmarks: bool,
    /// In version v1, and not in that of events.k8s.io.
    old_events: bool,
    table: Option<Table>,
}

impl View {
    fn of(server: &Server, request: &Request, accept: &str) -> Self {
        let kind = match &request.target {
            Target::Objects { kind, .. } => Some(kind),
            Target::Review => None,
        };
        let wants_table =
            accept.contains("as=Table") && matches!(request.verb, Verb::Get | Verb::List | Verb::Watch);
        let table = kind
            .filter(|_| wants_table)
            .map(|kind| server.with(|state| Table::of(kind, state, request.query("includeObject"))));
        Self {
            is_watch: request.verb == Verb::Watch,
            has_bookmarks: request.query("allowWatchBookmarks") == "true",
            old_events: kind.is_some_and(|kind| kind.group.is_empty() && kind.plural == "events"),
            table,
        }
    }

    async fn apply(self, response: Response<AnswerBody>) -> Response<AnswerBody> {
        let (mut parts, body) = response.into_parts();
        parts
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let is_whole = !self.is_watch || self.has_bookmarks;
        let is_as_it_is = is_whole && !self.old_events && self.table.is_none();
        if is_as_it_is || !parts.status.is_success() {
            return Response::from_parts(parts, body);
        }
        let mut frames = body.into_data_stream();
        if self.is_watch {
            // Each frame is a line.
            let lines = frames.filter_map(move |frame| {
                let line = match frame {
                    Ok(line) => self.line(&line).map(|line| Ok(Frame::data(line))),
                    Err(error) => Some(Err(error)),
                };
                std::future::ready(line)
            });
            return Response::from_parts(parts, StreamBody::new(lines.boxed()));
        }
        let mut text = Vec::new();
        while let Some(Ok(bytes)) = frames.next().await {
            text.extend_from_slice(&bytes);
        }
        match serde_json::from_slice(&text) {
            Ok(object) => json(parts.status.as_u16(), &self.object(object)),
            Err(error) => json(
                500,
                &Failure::new(500, "InternalError", error.to_string()).status(),
            ),
        }
    }

    fn line(&self, line: &[u8]) -> Option<Bytes> {
        let mut event: Value = serde_json::from_slice(line).ok()?;
        match event.get("type")?.as_str()? {
            "BOOKMARK" if !self.has_bookmarks => return None,
            "BOOKMARK" | "ERROR" => {}
            _ => {
                let object = event.get_mut("object")?;
                *object = self.object(object.take());
            }
        }
        Some(Bytes::from(format!("{event}\n")))
    }

    /// An object or a list.
    fn object(&self, mut object: Value) -> Value {
        if self.old_events {
            match object.get_mut("items").and_then(Value::as_array_mut) {
                Some(items) => items.iter_mut().for_each(events::to_v1),
                None => events::to_v1(&mut object),
            }
        }
        match &self.table {
            Some(table) => table.show(&object),
            None => object,
        }
    }
}

fn text(headers: &HeaderMap, name: HeaderName) -> &str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn json(code: u16, document: &Value) -> Response<AnswerBody> {
    whole(code, "application/json", document.to_string())
}

fn whole(code: u16, content_type: &'static str, text: String) -> Response<AnswerBody> {
    let frame = Ok(Frame::data(Bytes::from(text)));
    let mut response = Response::new(StreamBody::new(stream::iter([frame]).boxed()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The definition of a custom kind.
fn definition<'s>(kind: &kinds::Kind, state: &'s super::State) -> Option<&'s Value> {
    state.object(kinds::DEFINITIONS, "", &format!("{}.{}", kind.plural, kind.group))
}
