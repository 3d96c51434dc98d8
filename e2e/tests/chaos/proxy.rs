//! A proxy between a service and the API server. It delays, drops and refuses requests as networks and overloaded servers do.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::StreamExt;
use http::header::CONTENT_TYPE;
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use osm_testkit::ControlPlane;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = BoxBody<Bytes, BoxError>;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The connection is closed before anything is done.
    Refused,
    /// It is done, and the connection closed before the answer.
    Lost,
    /// It is done later.
    Delayed(Duration),
    /// It is answered with this status instead.
    Status(u16),
    /// The answer ends, not properly, after so many pieces.
    Cut(usize),
}

/// A running proxy. Dropping it ends it and its connections.
pub(super) struct FaultyProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    port: u16,
    tls: TlsConnector,
    seed: u64,
    /// Requests out of a thousand to which something happens.
    share: AtomicU32,
    requests: AtomicU64,
    faults: Mutex<BTreeMap<&'static str, u64>>,
}

impl FaultyProxy {
    /// Starts one on a free loopback port, without TLS; nothing happens to requests yet.
    pub(super) async fn start(plane: &ControlPlane, seed: u64) -> Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(plane.ca_pem().as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let shared = Arc::new(Shared {
            port: plane.port(),
            tls: TlsConnector::from(Arc::new(tls)),
            seed,
            share: AtomicU32::new(0),
            requests: AtomicU64::new(0),
            faults: Mutex::default(),
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let serve = shared.clone();
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = serve.clone();
                while connections.try_join_next().is_some() {}
                connections.spawn(async move {
                    let handle = service_fn(|request| handle(shared.clone(), request));
                    // One that breaks off is what this is for.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), handle)
                        .await;
                });
            }
        });
        Ok(Self {
            address,
            shared,
            task,
        })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Something happens to so many requests out of a thousand from now on.
    pub(super) fn set_share(&self, share: u32) {
        self.shared.share.store(share, Ordering::Relaxed);
    }

    /// What has happened so far, and how often.
    pub(super) fn faults(&self) -> BTreeMap<&'static str, u64> {
        self.shared.faults.lock().clone()
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// What happens to the next request: the same for the same seed and number.
    fn fault(&self, request: &Request<Incoming>) -> Option<Fault> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let mut random =
            StdRng::seed_from_u64(self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        if random.random_range(0..1000) >= self.share.load(Ordering::Relaxed) {
            return None;
        }
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        let fault = match random.random_range(0..100) {
            0..15 => Fault::Refused,
            15..40 => Fault::Lost,
            40..55 => Fault::Delayed(Duration::from_millis(random.random_range(10..3000))),
            55..75 => Fault::Status([403, 429, 500, 503, 504][random.random_range(0..5)]),
            75..85 if request.method() != Method::GET => Fault::Status(409),
            _ if is_watch => Fault::Cut(random.random_range(0..6)),
            _ => Fault::Lost,
        };
        let name = match fault {
            Fault::Refused => "refused",
            Fault::Lost => "answer lost",
            Fault::Delayed(_) => "delayed",
            Fault::Status(_) => "status",
            Fault::Cut(_) => "cut",
        };
        *self.faults.lock().entry(name).or_default() += 1;
        Some(fault)
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Incoming>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let stream = self
            .tls
            .connect(ServerName::try_from("127.0.0.1")?, stream)
            .await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        sender
            .send_request(request)
            .await
            .context("the API server does not answer")
    }
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
    let fault = shared.fault(&request);
    match fault {
        Some(Fault::Refused) => return Err("refused".into()),
        Some(Fault::Status(code)) => return Ok(status(code)?),
        Some(Fault::Delayed(delay)) => tokio::time::sleep(delay).await,
        _ => {}
    }
    let response = shared.forward(request).await?;
    match fault {
        Some(Fault::Lost) => Err("lost".into()),
        Some(Fault::Cut(pieces)) => {
            let end = futures::stream::once(async { Err(BoxError::from("cut")) });
            Ok(response.map(|body| {
                let whole = BodyStream::new(body).map(|piece| piece.map_err(BoxError::from));
                BodyExt::boxed(StreamBody::new(whole.take(pieces).chain(end)))
            }))
        }
        _ => Ok(response.map(|body| body.map_err(BoxError::from).boxed())),
    }
}

/// A Status, as the API server answers with it. No service looks at its reason.
fn status(code: u16) -> Result<Response<Body>> {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected by the test", "code": code});
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {});
    let response = Response::builder()
        .status(code)
        .header(CONTENT_TYPE, "application/json");
    Ok(response.body(body.boxed())?)
}
