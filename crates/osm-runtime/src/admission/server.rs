//! The HTTPS server. It bounds connections, bytes in memory, time and what is judged at once.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures::FutureExt as _;
use http::{Method, Request as HttpRequest, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::body::{Memory, Read, Unread};
use super::certificate::Certificate;
use super::metrics::Answered;
use super::{AdmissionArgs, AdmissionMetrics, Judge, Verdict, review};
use crate::{Drain, Metrics};

/// The path of the webhook.
pub const ADMISSION_PATH: &str = "/validate";

/// Connections at the same time. Further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;

/// Objects that are judged at the same time. Further ones wait within their deadline. Most of those that are judged wait for a watch, or for
/// another thread.
const MAX_JUDGED: usize = 512;

/// Head of one request. An API server sends a few hundred bytes. What hyper allows by default would be 400 MiB for all connections.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// How long a handshake, and the body of a request with the wait for memory, may take each.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long requests that have arrived may be answered after the service was stopped.
const GRACE: Duration = Duration::from_secs(2);

/// Pause after a connection could not be accepted, such as without a free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What all connections share.
struct Shared<J> {
    judge: J,
    what: &'static str,
    metrics: AdmissionMetrics,
    drain: Drain,
    memory: Memory,
    judged: Arc<Semaphore>,
}

/// A webhook that is served.
#[derive(Debug)]
pub struct Webhook {
    pub address: SocketAddr,
    /// Closed when its thread ends.
    running: oneshot::Receiver<()>,
}

impl Webhook {
    /// Returns after the shutdown, once the reviews that had arrived are answered.
    pub async fn ended(self) {
        let _ = self.running.await;
    }
}

/// Serves the webhook in a thread of its own until shutdown; `None`: the flags ask for no webhook, and `judge` is not called. `what` names the
/// objects in warnings, such as `the profile`.
///
/// While the service drains, each answer ends its connection, so that the client connects to another pod.
///
/// # Errors
/// The address is not available.
pub fn spawn<J: Judge>(
    args: &AdmissionArgs,
    judge: impl FnOnce() -> J,
    what: &'static str,
    metrics: &Metrics,
    (drain, shutdown): (&Drain, &CancellationToken),
) -> anyhow::Result<Option<Webhook>> {
    let (Some(address), Some(folder)) = (args.admission_listen, &args.admission_certificate) else {
        return Ok(None);
    };
    let metrics = AdmissionMetrics::new(metrics)?;
    let certificate = Certificate::new(folder, metrics.clone());
    let tls = TlsAcceptor::from(Arc::new(certificate.server_config()?));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let listener = {
        let _runtime = runtime.enter();
        listen(address).with_context(|| format!("--admission-listen {address}"))?
    };
    let address = listener.local_addr()?;
    let shared = Arc::new(Shared {
        judge: judge(),
        what,
        metrics,
        drain: drain.clone(),
        memory: Memory::default(),
        judged: Arc::new(Semaphore::new(MAX_JUDGED)),
    });
    let stop = shutdown.clone();
    let serve = async move {
        tokio::spawn(certificate.follow());
        accept(listener, tls, shared, stop).await;
    };
    let (ends, running) = oneshot::channel();
    std::thread::Builder::new()
        .name("admission".to_owned())
        .spawn(move || {
            let _ends: oneshot::Sender<()> = ends;
            runtime.block_on(serve);
        })?;
    drain.expect_clients();
    tracing::info!(%address, "serving the admission webhook");
    Ok(Some(Webhook { address, running }))
}

/// As many connections wait to be accepted as are served. With the usual 128, the kernel drops the others, whose clients then try again
/// only after seconds.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX))
}

async fn accept<J: Judge>(
    listener: TcpListener,
    tls: TlsAcceptor,
    shared: Arc<Shared<J>>,
    stop: CancellationToken,
) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        // The semaphore is never closed.
        let next = async {
            (
                connections.clone().acquire_owned().await.ok(),
                listener.accept().await,
            )
        };
        let (slot, accepted) = match stop.run_until_cancelled(next).await {
            None => break,
            Some((slot, accepted)) => (slot, accepted),
        };
        match accepted {
            Ok((stream, _)) => {
                let (tls, shared, stop) = (tls.clone(), shared.clone(), stop.clone());
                tokio::spawn(async move {
                    let _slot = slot;
                    serve(stream, tls, shared, stop).await;
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection to the admission webhook can't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    let all = u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX);
    let _ = timeout(GRACE, connections.acquire_many(all)).await;
}

/// Serves one connection. Its problems are those of the client: a service does not log what anybody can cause.
async fn serve<J: Judge>(
    stream: TcpStream,
    tls: TlsAcceptor,
    shared: Arc<Shared<J>>,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = timeout(PATIENCE, tls.accept(stream)).await else {
        return;
    };
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move {
            let mut response = answer(&shared, request).await;
            if shared.drain.has_begun() {
                let close = http::HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .max_buf_size(MAX_HEAD_BYTES)
        .header_read_timeout(Some(PATIENCE * 6))
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

async fn answer<J: Judge>(shared: &Shared<J>, request: HttpRequest<Incoming>) -> Response<Full<Bytes>> {
    if request.uri().path() != ADMISSION_PATH {
        return text(StatusCode::NOT_FOUND, "only /validate exists");
    }
    if request.method() != Method::POST {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only POST is answered");
    }
    let began = Instant::now();
    let (answered, response) = review(shared, request.into_body()).await;
    shared.metrics.answered(answered, began.elapsed());
    response
}

/// Reads a review and judges its object.
async fn review<J: Judge>(shared: &Shared<J>, body: Incoming) -> (Answered, Response<Full<Bytes>>) {
    let Read {
        bytes,
        memory: _memory,
    } = match shared.memory.read(body, PATIENCE).await {
        Ok(read) => read,
        Err(unread) => return refuse(unread),
    };
    let review = match review::read(&bytes) {
        Ok(review) => review,
        Err(error) => {
            return (
                Answered::Unreadable,
                json(StatusCode::BAD_REQUEST, error.answer()),
            );
        }
    };
    drop(bytes);
    let verdict = match review.request {
        Some(request) => judge(shared, request).await,
        None => Verdict::allowed(),
    };
    let body = review::answer(&review.uid, &verdict);
    (Answered::by(&verdict), json(StatusCode::OK, body))
}

/// How a body that was not read is answered. An API server then admits the object.
fn refuse(unread: Unread) -> (Answered, Response<Full<Bytes>>) {
    let (answered, status, message) = match unread {
        Unread::TooLarge => (
            Answered::Unreadable,
            StatusCode::PAYLOAD_TOO_LARGE,
            "the review is larger than 4 MiB",
        ),
        Unread::Broken => (
            Answered::Unreadable,
            StatusCode::BAD_REQUEST,
            "the body can't be read",
        ),
        Unread::Late => (
            Answered::Overloaded,
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        ),
        Unread::GivenUp => (
            Answered::Overloaded,
            StatusCode::SERVICE_UNAVAILABLE,
            "too many reviews at the same time",
        ),
    };
    (answered, text(status, message))
}

/// Judges within the deadline. Whatever else happens, the object is admitted.
async fn judge<J: Judge>(shared: &Shared<J>, request: super::Request) -> Verdict {
    let work = async {
        let _slot = shared.judged.acquire().await;
        AssertUnwindSafe(shared.judge.judge(request)).catch_unwind().await
    };
    let why = match timeout(J::DEADLINE, work).await {
        Ok(Ok(verdict)) => return verdict,
        Ok(Err(_)) => {
            tracing::error!("the admission webhook panicked; report this defect with the log");
            "failed"
        }
        Err(_) => "took too long",
    };
    Verdict::unchecked(format!(
        "{} was admitted unchecked, because the check {why}; its condition reports the result",
        shared.what
    ))
}

fn text(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    respond(status, "text/plain", message.as_bytes().to_vec())
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    respond(status, "application/json", body)
}

fn respond(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let content_type = http::HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}
