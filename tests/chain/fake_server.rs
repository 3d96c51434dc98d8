//! A server in the place of an API server, or of a webhook. As an API server does, it speaks HTTP/2 over TLS, and HTTP/1 with clients that
//! ask for that.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// Chunks of an answer that wait to be sent.
const WAITING: usize = 1;

/// The head of an answer, and what its body is read from.
type Answer = Response<Channel<Bytes>>;

/// A request, and the way for its answer.
pub struct Call {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub headers: HeaderMap,
    /// The body of the request.
    pub sent: Bytes,
    head: Option<oneshot::Sender<Answer>>,
    body: Option<Sender<Bytes>>,
}

impl Call {
    /// The head of an answer whose body ends when this is dropped.
    pub async fn head(&mut self, head: http::response::Builder) -> Result<()> {
        let (sender, body) = Channel::new(WAITING);
        let answer = head.header(CONTENT_TYPE, "application/json").body(body)?;
        let way = self.head.take().context("an answer has one head")?;
        self.body = Some(sender);
        way.send(answer).ok().context("the client hung up")
    }

    /// Sends a whole answer.
    pub async fn answer(&mut self, head: http::response::Builder, body: &[u8]) -> Result<()> {
        self.head(head).await?;
        self.send(body).await?;
        // The channel may lose what is not read yet when it is closed. There is room for this only after the body was read.
        self.send(&[]).await
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let body = self.body.as_mut().context("the head comes first")?;
        Ok(body.send_data(Bytes::copy_from_slice(bytes)).await?)
    }
}

pub struct FakeServer {
    address: SocketAddr,
    /// PEM.
    certificate: String,
}

impl FakeServer {
    pub async fn start<F, Fut>(respond: F) -> Result<Self>
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        Self::start_as("127.0.0.1", respond).await
    }

    /// A server whose certificate has this name.
    pub async fn start_as<F, Fut>(name: &str, respond: F) -> Result<Self>
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let identity = rcgen::generate_simple_self_signed([name.to_owned()])?;
        let key =
            PrivateKeyDer::try_from(identity.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let mut tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![identity.cert.der().clone()], key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (tls, respond) = (TlsAcceptor::from(Arc::new(tls)), Arc::new(respond));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, respond) = (tls.clone(), respond.clone());
                // A client may hang up at any time.
                tokio::spawn(async move {
                    let stream = tls.accept(stream).await?;
                    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let stream = TokioIo::new(stream);
                    let service = service_fn(|request| answer(request, respond.clone()));
                    if is_http2 {
                        let server = http2::Builder::new(TokioExecutor::new());
                        server.serve_connection(stream, service).await?;
                    } else {
                        http1::Builder::new().serve_connection(stream, service).await?;
                    }
                    anyhow::Ok(())
                });
            }
        });
        let certificate = identity.cert.pem();
        Ok(Self { address, certificate })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The certificate, encoded as in a kubeconfig.
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.certificate)
    }

    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'https://{}', certificate-authority-data: {}}}}}]\n\
             users: [{{name: c, user: {{token: t}}}}]\n",
            self.address,
            self.ca_bundle()
        )
    }
}

async fn answer<F, Fut>(request: Request<Incoming>, respond: Arc<F>) -> Result<Answer>
where
    F: Fn(Call) -> Fut,
    Fut: Future<Output = Result<()>> + Send + 'static,
{
    let (parts, body) = request.into_parts();
    let sent = body.collect().await?.to_bytes();
    let (head, answer) = oneshot::channel();
    let target = parts.uri.path_and_query().context("a target")?.to_string();
    tokio::spawn(respond(Call {
        method: parts.method.to_string(),
        target,
        headers: parts.headers,
        sent,
        head: Some(head),
        body: None,
    }));
    Ok(answer.await?)
}
