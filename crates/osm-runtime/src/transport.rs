//! Connects to an API server. One TLS connection carries all of them, watches included, if the server speaks
//! HTTP/2.
//!
//! kube's own connector speaks only HTTP/1.1, which needs a connection for each watch and for each request in
//! flight. Its TLS configuration and its authentication are used as they are. The caller repeats a request
//! that an overloaded API server refuses.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _, RustlsTlsError};
use kube::config::AuthInfo;
use kube::{Client, Config};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder};

use crate::proxy::{self, Tcp};

/// A connection that was asked whether it still lives, and does not answer within this time, is given up, and the
/// next request opens another one. Otherwise all requests would wait for the one connection.
const PING: Duration = Duration::from_secs(10);

/// The same below HTTP: after this time the system asks the other end, which finds connections that broke off
/// without a sign.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How many connections the process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Alone,
    /// One of a thousand.
    OfFleet,
}

impl Share {
    /// A connection that is silent for this long is asked whether it still lives. Asking thousands of them every
    /// ten seconds would be a third of what idle services do.
    fn silence(self) -> Duration {
        match self {
            Self::Alone => PING,
            Self::OfFleet => 3 * PING,
        }
    }

    /// Bytes that the API server may send of one answer before they are read. They take memory until then.
    fn window_of_answer(self) -> u32 {
        match self {
            Self::Alone => 512 * 1024,
            Self::OfFleet => 64 * 1024,
        }
    }

    /// The same for all answers of a connection: enough for sixteen, so that those that are read slowly hold up
    /// no other. A watch with too many events is read so.
    fn window_of_connection(self) -> u32 {
        16 * self.window_of_answer()
    }
}

/// Sends requests to an API server. A [`kube::Client`] also has a task and a queue.
pub type Transport = BoxCloneSyncService<Request<Body>, Response<AnswerBody>, BoxError>;

/// What comes of an answer.
pub type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// The same answer with a body of this type.
pub(crate) fn boxed<B>(answer: Response<B>) -> Response<AnswerBody>
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    answer.map(|body| body.map_err(Into::into).boxed_unsync())
}

/// Those to one API server.
#[derive(Clone)]
pub struct Transports {
    /// With the credentials of its configuration.
    pub own: Transport,
    /// Without any, for requests that carry a token of their own.
    pub anonymous: Transport,
}

impl Transports {
    /// By existing clients with and without credentials, such as those of a simulated API server.
    pub fn by(clients: [Client; 2]) -> Self {
        let [own, anonymous] = clients.map(|client| {
            BoxCloneSyncService::new(tower::service_fn(move |request| {
                let client = client.clone();
                async move { Ok(boxed(client.send(request).await?)) }
            }))
        });
        Self { own, anonymous }
    }
}

/// # Errors
/// Certificates, keys or a server name that can't be read; a proxy of a kind that can't be used.
pub fn connect(config: &Config, share: Share) -> anyhow::Result<Transports> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // Header and body of a request are two segments. Otherwise the second one waits 40 ms for the server's
    // delayed acknowledgement.
    tcp.set_nodelay(true);
    // A watch over HTTP/1.1 has no other sign that its connection has broken off.
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(PING));
    tcp.set_keepalive_retries(Some(3));
    let tcp = proxy::through(config, tcp).context(SETUP)?;
    let mut anonymous = config.clone();
    anonymous.auth_info = AuthInfo::default();
    Ok(Transports {
        own: transport(config, tcp.clone(), share)?,
        // On a connection of its own: a client certificate vouches for each request of its connection.
        anonymous: transport(&anonymous, tcp, share)?,
    })
}

const SETUP: &str = "the connection to the API server can't be set up";

fn transport(config: &Config, tcp: Tcp, share: Share) -> anyhow::Result<Transport> {
    let http: legacy::Client<_, Body> = legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(share.silence())
        .http2_keep_alive_timeout(PING)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(share.window_of_answer())
        .http2_initial_connection_window_size(share.window_of_connection())
        .build(https(config, tcp, share).context(SETUP)?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer().context(SETUP)?)
        .layer(config.extra_headers_layer().context(SETUP)?)
        .map_response(boxed)
        .map_err(BoxError::from)
        .service(http);
    Ok(BoxCloneSyncService::new(service))
}

fn https(config: &Config, tcp: Tcp, share: Share) -> anyhow::Result<HttpsConnector<Tcp>> {
    let mut tls = config.rustls_client_config().map_err(|error| match error {
        // Its source quotes the first line that is wrong, which may be the key.
        kube::Error::RustlsTls(RustlsTlsError::InvalidIdentityPem(_)) => {
            anyhow::anyhow!("client-certificate-data and client-key-data are not PEM")
        }
        error => anyhow::Error::new(error),
    })?;
    if share == Share::OfFleet {
        // It has room for 256 sessions, and a connection lasts.
        tls.resumption = Resumption::disabled();
    }
    let mut builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone()).context("tls-server-name")?;
        builder = builder.with_server_name_resolver(FixedServerNameResolver::new(name));
    }
    Ok(builder.enable_all_versions().wrap_connector(tcp))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use hyper::body::Incoming;
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::net::TcpListener;
    use tokio::sync::Barrier;
    use tokio_rustls::TlsAcceptor;

    use super::*;
    use crate::followed::MAX_FOLLOWED;

    /// A server that answers so. Returns how to connect to it, and how often that happened.
    async fn serve<F, B>(
        answer: impl Fn(http::Request<Incoming>) -> F + Clone + Send + 'static,
    ) -> (Config, Arc<AtomicUsize>)
    where
        F: Future<Output = Result<http::Response<B>, Infallible>> + Send + 'static,
        B: http_body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        /// As a kube-apiserver.
        const STREAMS: u32 = 100;
        _ = rustls::crypto::ring::default_provider().install_default();
        let identity = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(identity.signing_key.serialize_der()).unwrap();
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![identity.cert.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        #[expect(clippy::disallowed_methods, reason = "a server of the test")]
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (acceptor, connections) = (TlsAcceptor::from(Arc::new(tls)), Arc::new(AtomicUsize::new(0)));
        let opened = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                opened.fetch_add(1, Ordering::SeqCst);
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::spawn(async move {
                    let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
                    let mut server = http2::Builder::new(TokioExecutor::new());
                    server.max_concurrent_streams(STREAMS).max_send_buf_size(BUFFER);
                    server.serve_connection(stream, service_fn(answer)).await
                });
            }
        });
        let mut config = Config::new(url.parse().unwrap());
        config.root_cert = Some(vec![identity.cert.der().to_vec()]);
        (config, connections)
    }

    /// Bytes of an answer that the server of the test keeps, because the client doesn't take them yet.
    const BUFFER: usize = 16 << 10;

    fn client(config: &Config, share: Share) -> Client {
        Client::new(connect(config, share).unwrap().own, "default")
    }

    async fn get(client: &Client, path: &str) -> String {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap()
    }

    /// A watch is a request that stays open. The server answers none of these before all are there.
    #[tokio::test]
    async fn all_watches_share_one_connection_and_leave_room_for_other_requests() {
        /// More than secret-syncer has.
        const WATCHES: usize = MAX_FOLLOWED + 20;
        let all = Arc::new(Barrier::new(WATCHES + 1));
        let answer = move |request: http::Request<Incoming>| {
            let all = all.clone();
            async move {
                if request.uri().path() != "/first" {
                    all.wait().await;
                }
                Ok(http::Response::new(String::new()))
            }
        };
        let (config, connections) = serve(answer).await;
        let client = client(&config, Share::Alone);
        get(&client, "/first").await;
        let watches = futures::future::join_all((0..WATCHES).map(|_| get(&client, "/watch")));
        // The server answers none before it has all of them.
        let all = futures::future::join(watches, get(&client, "/other"));
        tokio::time::timeout(Duration::from_secs(30), all)
            .await
            .expect("room for all of them");
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn of_answers_that_are_not_read_little_is_sent_and_others_come() {
        const UNREAD: usize = 12;
        const WINDOW: usize = 64 << 10;
        let part = Bytes::from_static(&[b'a'; 4 << 10]);
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = sent.clone();
        let answer = move |request: http::Request<Incoming>| {
            let (counted, part) = (counted.clone(), part.clone());
            let is_endless = request.uri().path() == "/endless";
            let parts = stream::repeat(part).take(if is_endless { usize::MAX } else { 1 });
            let parts = parts.map(move |part| {
                counted.fetch_add(if is_endless { part.len() } else { 0 }, Ordering::SeqCst);
                Ok(Frame::data(part))
            });
            async move { Ok(http::Response::new(StreamBody::new(parts))) }
        };
        let (config, _) = serve(answer).await;
        let client = client(&config, Share::OfFleet);
        let mut unread = Vec::new();
        for _ in 0..UNREAD {
            let request = http::Request::get("/endless").body(Body::empty()).unwrap();
            unread.push(client.send(request).await.unwrap());
        }
        let others = async {
            // Each has come when all may be full, and when they had time to become larger.
            while sent.load(Ordering::SeqCst) < UNREAD * WINDOW {
                get(&client, "/other").await;
            }
            for _ in 0..100 {
                get(&client, "/other").await;
            }
        };
        let others = tokio::time::timeout(Duration::from_secs(30), others).await;
        others.expect("those that are not read hold up no other");
        let sent = sent.load(Ordering::SeqCst);
        assert!(sent <= UNREAD * (WINDOW + 2 * BUFFER), "{sent}");
    }
}
