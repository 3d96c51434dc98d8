//! A proxy between a service and the API server. It delays, drops and refuses requests as networks and
//! overloaded servers do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use osm_testkit::ControlPlane;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = BoxBody<Bytes, BoxError>;

/// What happens to a request.
#[derive(Clone, Copy)]
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
    pub(super) address: SocketAddr,
    /// The certificate that it identifies itself with, PEM.
    pub(super) certificate: String,
    /// Ended by being dropped.
    _task: JoinSet<()>,
}

struct Shared {
    port: u16,
    tls: TlsConnector,
    seed: u64,
    share: Arc<AtomicU32>,
    requests: AtomicU64,
}

impl FaultyProxy {
    /// Starts one on a free loopback port. Something happens to `share` of a thousand requests.
    pub(super) async fn start(plane: &ControlPlane, seed: u64, share: &Arc<AtomicU32>) -> Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(plane.ca_pem().as_bytes())?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let identity = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key = PrivateKeyDer::Pkcs8(identity.signing_key.serialize_der().into());
        let acceptor = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![identity.cert.der().clone()], key)?;
        let acceptor = TlsAcceptor::from(Arc::new(acceptor));
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let shared = Arc::new(Shared {
            port: plane.port(),
            tls: TlsConnector::from(Arc::new(tls)),
            seed,
            share: share.clone(),
            requests: AtomicU64::new(0),
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (shared, acceptor) = (shared.clone(), acceptor.clone());
                while connections.try_join_next().is_some() {}
                connections.spawn(async move {
                    let handle = service_fn(|request| handle(shared.clone(), request));
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    // One that breaks off is what this is for.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), handle)
                        .await;
                });
            }
        });
        Ok(Self {
            address,
            certificate: identity.cert.pem(),
            _task: task,
        })
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
        Some(match random.random_range(0..100) {
            0..15 => Fault::Refused,
            15..40 => Fault::Lost,
            40..55 => Fault::Delayed(Duration::from_millis(random.random_range(10..3000))),
            55..75 => Fault::Status([403, 429, 500, 503, 504][random.random_range(0..5)]),
            75..85 if request.method() != Method::GET => Fault::Status(409),
            _ if is_watch => Fault::Cut(random.random_range(0..6)),
            _ => Fault::Lost,
        })
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
        // Without a Status in the body, as load balancers answer.
        Some(Fault::Status(code)) => {
            let nothing = Full::default().map_err(|never| match never {});
            return Ok(Response::builder().status(code).body(nothing.boxed())?);
        }
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
