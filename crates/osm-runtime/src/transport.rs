//! How requests reach an API server. One TLS connection carries all of them, watches included, if the server speaks HTTP/2.
//!
//! kube's own connector speaks only HTTP/1.1, which needs a connection for each watch and for each request in flight. Everything else
//! here is as in kube: its TLS configuration, its authentication and, within limits, its way to repeat requests that an overloaded API server
//! refuses.

use std::time::Duration;

use anyhow::Context as _;
use http::{Request, Response, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ConfigExt as _};
use kube::config::AuthInfo;
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use tower::retry::{Policy, RetryLayer};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder};

use crate::{client, proxy};

/// A connection that is silent for this long is asked whether it still lives. Without an answer within the same time, it is given up, and
/// the next request opens another one. Otherwise all requests would wait for the one connection.
const PING: Duration = Duration::from_secs(10);

/// The same below HTTP: after this time the system asks the other end.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// How often a refused request is repeated, and the pauses before. Together they are shorter than the default time limit of a request.
const REPEATS: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Bytes that the API server may send of one answer, and of all answers of a connection, before they are read.
const WINDOW_OF_ANSWER: u32 = 512 * 1024;
const WINDOW_OF_CONNECTION: u32 = 8 * 1024 * 1024;

/// Clients of one API server.
#[derive(Clone)]
pub struct Clients {
    /// With the credentials of its configuration.
    pub own: Client,
    /// Without any, for requests that carry a token of their own.
    pub anonymous: Client,
}

/// # Errors
/// Certificates, keys or a server name that can't be read; a proxy of a kind that can't be used.
pub fn connect(config: &Config) -> anyhow::Result<Clients> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    // Header and body of a request are two segments. Otherwise the second one waits 40 ms for the server's delayed acknowledgement.
    tcp.set_nodelay(true);
    // A watch over HTTP/1.1 has no other sign that its connection has broken off.
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(PING));
    tcp.set_keepalive_retries(Some(3));
    let tcp = proxy::through(config, tcp).context(SETUP)?;
    let mut anonymous = config.clone();
    anonymous.auth_info = AuthInfo::default();
    let http = http(config, tcp.clone())?;
    // A certificate vouches for each request of its connection.
    let http_of_anonymous = match may_have_certificate(&config.auth_info) {
        true => self::http(&anonymous, tcp)?,
        false => http.clone(),
    };
    Ok(Clients {
        own: client(config, http)?,
        anonymous: client(&anonymous, http_of_anonymous)?,
    })
}

/// Makes the connections that TLS is spoken on.
pub(crate) type Tcp = BoxCloneSyncService<Uri, TokioIo<TcpStream>, BoxError>;

const SETUP: &str = "the connection to the API server can't be set up";

fn may_have_certificate(credentials: &AuthInfo) -> bool {
    let AuthInfo {
        client_certificate,
        client_certificate_data,
        exec,
        ..
    } = credentials;
    client_certificate.is_some() || client_certificate_data.is_some() || exec.is_some()
}

type Http = legacy::Client<TimeoutConnector<HttpsConnector<Tcp>>, Body>;

fn http(config: &Config, tcp: Tcp) -> anyhow::Result<Http> {
    let mut connector = TimeoutConnector::new(https(config, tcp).context(SETUP)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    Ok(legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .http2_keep_alive_while_idle(true)
        .http2_initial_stream_window_size(WINDOW_OF_ANSWER)
        .http2_initial_connection_window_size(WINDOW_OF_CONNECTION)
        .build(connector))
}

fn client(config: &Config, http: Http) -> anyhow::Result<Client> {
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .layer(RetryLayer::new(Repeat::new()?))
        .option_layer(config.auth_layer().context(SETUP)?)
        .layer(config.extra_headers_layer().context(SETUP)?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, &config.default_namespace))
}

/// Repeats requests as kube does, unless the caller needs the answer.
#[derive(Clone)]
struct Repeat(RetryPolicy);

impl Repeat {
    fn new() -> anyhow::Result<Self> {
        let policy = RetryPolicy::new(FIRST_PAUSE, LONGEST_PAUSE, REPEATS, true);
        policy.map(Self).context(SETUP)
    }
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for Repeat {
    type Future = Sleep;

    /// An API server may ask for a pause that is longer than the time limit of the request. The caller would only learn that there was no
    /// answer.
    fn retry(
        &mut self,
        request: &mut Request<Body>,
        answer: &mut Result<Response<B>, BoxError>,
    ) -> Option<Sleep> {
        let pause = self.0.retry(request, answer)?;
        (pause.deadline() <= Instant::now() + LONGEST_PAUSE).then_some(pause)
    }

    /// A watch is not repeated: its caller pauses, and lists again after any error, because the API server may have restored its store.
    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let policy: &mut dyn Policy<_, Response<B>, BoxError, Future = Sleep> = &mut self.0;
        match client::is_watch(request.uri()) {
            true => None,
            false => policy.clone_request(request),
        }
    }
}

fn https(config: &Config, tcp: Tcp) -> anyhow::Result<HttpsConnector<Tcp>> {
    let mut builder = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
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

    use hyper::body::Incoming;
    use hyper::server::conn::http2;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use rustls::pki_types::PrivateKeyDer;
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio::sync::Barrier;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    #[test]
    fn only_tokens_leave_a_connection_to_be_shared() {
        for (credentials, expected) in [
            (json!({}), false),
            (json!({"token": "t"}), false),
            (json!({"tokenFile": "/t"}), false),
            (json!({"client-certificate": "/c", "client-key": "/k"}), true),
            (
                json!({"client-certificate-data": "c", "client-key-data": "k"}),
                true,
            ),
            (json!({"exec": {"command": "login"}}), true),
        ] {
            let read: AuthInfo = serde_json::from_value(credentials.clone()).unwrap();
            assert_eq!(may_have_certificate(&read), expected, "{credentials}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_repeated_after_short_pauses_and_a_watch_never() {
        for (path, code, pause, expected) in [
            ("/api/v1/secrets?watch=true", 429, None, false),
            ("/api/v1/secrets", 200, None, false),
            ("/api/v1/secrets", 429, None, true),
            ("/api/v1/secrets", 429, Some("2"), true),
            ("/api/v1/secrets", 429, Some("3"), false),
        ] {
            let mut answer = http::Response::builder().status(code);
            if let Some(pause) = pause {
                answer = answer.header("Retry-After", pause);
            }
            let answer = answer.body(Body::empty()).unwrap();
            let request = Request::get(path).body(Body::empty()).unwrap();
            let (mut repeat, mut answer) = (Repeat::new().unwrap(), Ok(answer));
            let repeat: &mut dyn Policy<_, _, _, Future = Sleep> = &mut repeat;
            let again = repeat
                .clone_request(&request)
                .and_then(|mut request| repeat.retry(&mut request, &mut answer));
            assert_eq!(again.is_some(), expected, "{path} {code} {pause:?}");
        }
    }

    /// A watch is a request that stays open. The server answers none of these before all are there. It refuses its first request.
    #[tokio::test]
    async fn all_watches_share_one_connection_and_a_refused_request_is_repeated() {
        const WATCHES: usize = 30;
        _ = rustls::crypto::ring::default_provider().install_default();
        let identity = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(identity.signing_key.serialize_der()).unwrap();
        let mut tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![identity.cert.der().clone()], key)
            .unwrap();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let (acceptor, connections) = (TlsAcceptor::from(Arc::new(tls)), Arc::new(AtomicUsize::new(0)));
        let (opened, all) = (connections.clone(), Arc::new(Barrier::new(WATCHES)));
        let requests = Arc::new(AtomicUsize::new(0));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                opened.fetch_add(1, Ordering::SeqCst);
                let (acceptor, all, requests) = (acceptor.clone(), all.clone(), requests.clone());
                let answer = move |request: http::Request<Incoming>| {
                    let (all, is_first) = (all.clone(), requests.fetch_add(1, Ordering::SeqCst) == 0);
                    async move {
                        let mut answer = http::Response::new(String::new());
                        if is_first {
                            *answer.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
                        }
                        if request.uri().path() == "/watch" {
                            all.wait().await;
                        }
                        Ok::<_, Infallible>(answer)
                    }
                };
                tokio::spawn(async move {
                    let stream = TokioIo::new(acceptor.accept(stream).await.unwrap());
                    let server = http2::Builder::new(TokioExecutor::new());
                    server.serve_connection(stream, service_fn(answer)).await
                });
            }
        });

        let mut config = Config::new(url.parse().unwrap());
        config.root_cert = Some(vec![identity.cert.der().to_vec()]);
        let client = connect(&config).unwrap().own;
        let get = async |path: &str| {
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            client.request_text(request).await.unwrap()
        };
        get("/first").await;
        futures::future::join_all((0..WATCHES).map(|_| get("/watch"))).await;
        assert_eq!(connections.load(Ordering::SeqCst), 1);
    }
}
