//! The HTTPS server. It bounds connections, bytes in memory and time.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use futures::FutureExt as _;
use http_body::Body as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::timeout;

use super::certificate::Certificate;
use super::metrics::Answered;
use super::{AdmissionArgs, AdmissionMetrics, Judge, Request, Verdict, review};
use crate::Process;
use crate::http_server::{self, Limits, Tls};

/// A handshake of an API server takes milliseconds. All API servers together send at most some hundred requests at the same time.
const HANDSHAKE: Duration = Duration::from_secs(1);
const LIMITS: Limits = Limits {
    connections: 1024,
    deadline: Duration::from_secs(5),
};

/// How long the body of a review may take to arrive, with the wait for memory.
const BODY: Duration = Duration::from_secs(2);

/// The largest review that is read. It holds an object before and after the change.
pub(super) const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Memory of all reviews together, in KiB. The objects in them take a multiple of that.
const MEMORY: usize = 16 * 1024;

struct Shared<J> {
    judge: J,
    what: &'static str,
    metrics: AdmissionMetrics,
    memory: Semaphore,
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

/// Serves the webhook under `/validate` in a thread of its own until shutdown; `None`: the flags ask for no webhook, and `judge` is not
/// called. `what` names the objects in warnings, such as `the profile`. The process is not ready until there is a certificate.
///
/// # Errors
/// The address is not available.
pub fn spawn<J: Judge>(
    args: &AdmissionArgs,
    judge: impl FnOnce() -> J,
    what: &'static str,
    process: &Process,
) -> anyhow::Result<Option<Webhook>> {
    spawn_within(LIMITS, HANDSHAKE, args, judge, what, process)
}

pub(super) fn spawn_within<J: Judge>(
    limits: Limits,
    handshake: Duration,
    args: &AdmissionArgs,
    judge: impl FnOnce() -> J,
    what: &'static str,
    process: &Process,
) -> anyhow::Result<Option<Webhook>> {
    let (Some(address), Some(folder)) = (args.admission_listen, &args.admission_certificate) else {
        return Ok(None);
    };
    let metrics = AdmissionMetrics::new(&process.metrics)?;
    let gate = process.readiness.gate("admission certificate");
    let certificate = Certificate::new(folder.clone(), metrics.clone(), gate);
    let tls = Tls {
        acceptor: Arc::new(certificate.server_config()?).into(),
        deadline: handshake,
    };
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
        memory: Semaphore::new(MEMORY),
    });
    let router = Router::new()
        .route("/validate", post(validate::<J>))
        .with_state(shared);
    let stop = process.shutdown.clone();
    let serve = async move {
        tokio::spawn(certificate.follow());
        http_server::serve(listener, Some(tls), router, limits, stop).await;
    };
    let (ends, running) = oneshot::channel();
    std::thread::Builder::new()
        .name("admission".to_owned())
        .spawn(move || {
            let _ends: oneshot::Sender<()> = ends;
            runtime.block_on(serve);
        })?;
    process.drain.expect_clients();
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
    socket.listen(u32::try_from(LIMITS.connections).unwrap_or(u32::MAX))
}

async fn validate<J: Judge>(State(shared): State<Arc<Shared<J>>>, body: Body) -> Response {
    let began = Instant::now();
    let (answered, response) = match read(&shared.memory, body).await {
        Ok((body, _memory)) => answer(&shared, body).await,
        Err((answered, status, message)) => (answered, (status, message).into_response()),
    };
    shared.metrics.answered(answered, began.elapsed());
    response
}

/// Reads a body into its part of the memory. An API server admits the object of one that is not read.
async fn read(
    memory: &Semaphore,
    body: Body,
) -> Result<(Bytes, SemaphorePermit<'_>), (Answered, StatusCode, &'static str)> {
    let unreadable = |status, message| Err((Answered::Unreadable, status, message));
    let Some(length) = body.size_hint().exact() else {
        return unreadable(StatusCode::LENGTH_REQUIRED, "Content-Length is missing");
    };
    let kibibytes = u32::try_from(length / 1024 + 1).unwrap_or(u32::MAX);
    if length > MAX_BODY_BYTES as u64 {
        return unreadable(StatusCode::PAYLOAD_TOO_LARGE, "the review is larger than 4 MiB");
    }
    let read = async {
        // The semaphore is never closed.
        let memory = memory.acquire_many(kibibytes).await.ok()?;
        Some((to_bytes(body, MAX_BODY_BYTES).await.ok()?, memory))
    };
    match timeout(BODY, read).await {
        Ok(Some(read)) => Ok(read),
        Ok(None) => unreadable(StatusCode::BAD_REQUEST, "the body can't be read"),
        Err(_) => Err((
            Answered::Overloaded,
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )),
    }
}

/// Judges the object of a review.
async fn answer<J: Judge>(shared: &Shared<J>, body: Bytes) -> (Answered, Response) {
    let json = |status: StatusCode, body: Vec<u8>| {
        (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
    };
    let review = match review::read(&body) {
        Ok(review) => review,
        Err(error) => {
            return (
                Answered::Unreadable,
                json(StatusCode::BAD_REQUEST, error.answer()),
            );
        }
    };
    drop(body);
    let verdict = match review.request {
        Some(request) => judge(shared, request).await,
        None => Verdict::allowed(),
    };
    let body = review::answer(&review.uid, &verdict);
    (Answered::by(&verdict), json(StatusCode::OK, body))
}

/// Judges within the deadline. Whatever else happens, the object is admitted.
async fn judge<J: Judge>(shared: &Shared<J>, request: Request) -> Verdict {
    let work = AssertUnwindSafe(shared.judge.judge(request)).catch_unwind();
    let why = match timeout(J::DEADLINE, work).await {
        Ok(Ok(verdict)) => return verdict,
        Ok(Err(_)) => {
            tracing::error!("the admission webhook panicked; report this bug with the log");
            "failed"
        }
        Err(_) => "took too long",
    };
    Verdict::unchecked(format!(
        "{} was admitted unchecked, because the check {why}; its condition reports the result",
        shared.what
    ))
}
