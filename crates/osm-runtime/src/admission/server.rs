//! The HTTPS server. It bounds the reviews that are read at the same time, and their size. A client that
//! reaches the port can still keep it busy for longer than the API server waits, so that objects pass
//! unchecked.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::FutureExt as _;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tower::limit::GlobalConcurrencyLimitLayer;

use super::args::AdmissionArgs;
use super::certificate::Certificate;
use super::judge::{Judge, Request, Verdict};
use super::metrics::{AdmissionMetrics, UNREADABLE};
use super::review::{self, KIND, VERSION};
use crate::port::{Limits, Port};
use crate::process::Process;

/// All API servers together send some hundred reviews at the same time, and each waits for an answer for two
/// seconds.
const LIMITS: Limits = Limits {
    connections: 512,
    deadline: Duration::from_secs(5),
};

/// The largest review that is read. It holds an object before and after the change, each of which etcd limits
/// to 1.5 MiB.
pub(super) const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;

/// Reviews that are read and judged at the same time. In memory, the objects in them take a multiple of their
/// bytes.
const MAX_REVIEWS: usize = 16;

struct Shared<J> {
    judge: J,
    what: &'static str,
    metrics: AdmissionMetrics,
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

/// Serves the webhook under `/validate` in a thread of its own until shutdown; `None`: the flags ask for no
/// webhook, and `judge` is not called. `what` names the objects in warnings, such as `the profile`. The
/// process is not ready until there is a certificate.
///
/// # Errors
/// The address is not available.
pub fn spawn<J: Judge>(
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
    let certificate = Certificate::new(folder.clone(), metrics.clone(), gate)?;
    let tls = certificate.in_use.subscribe();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let port = Port::open(address, LIMITS).with_context(|| format!("--admission-listen {address}"))?;
    let address = port.address;
    let judge = judge();
    let shared = Arc::new(Shared { judge, what, metrics });
    let router = Router::new()
        .route("/validate", post(validate::<J>))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(GlobalConcurrencyLimitLayer::new(MAX_REVIEWS))
        .with_state(shared);
    let stop = process.shutdown.clone();
    let serve = async move {
        tokio::spawn(certificate.follow());
        port.serve(router, Some(tls), stop).await
    };
    let (ends, running) = oneshot::channel();
    std::thread::Builder::new()
        .name("admission".to_owned())
        .spawn(move || {
            let _ends: oneshot::Sender<()> = ends;
            runtime.block_on(serve)
        })?;
    tracing::info!(%address, "serving the admission webhook");
    Ok(Some(Webhook { address, running }))
}

async fn validate<J: Judge>(State(shared): State<Arc<Shared<J>>>, body: Bytes) -> Response {
    let began = Instant::now();
    let (result, response) = match review::read(&body) {
        Some(review) => {
            drop(body);
            let verdict = match review.request {
                Some(request) => judge(&shared, request).await,
                None => Verdict::allowed(),
            };
            let json = [(header::CONTENT_TYPE, "application/json")];
            let answer = (json, review::answer(&review.uid, &verdict)).into_response();
            (verdict.result(), answer)
        }
        None => {
            let problem =
                format!("the body is not an {KIND} of {VERSION}; only API servers call this address");
            (UNREADABLE, (StatusCode::BAD_REQUEST, problem).into_response())
        }
    };
    shared.metrics.answered(result, began.elapsed());
    response
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
