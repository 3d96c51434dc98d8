//! A server in the place of the API server of a user cluster, which misbehaves.

use std::convert::Infallible;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt as _};
use http::{Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use osm_testkit::fixtures::machine_deployment;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What it does to lists and watches, or to every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No list ends.
    Endless,
    /// The first event of each watch is a line of 100 MiB.
    LongLine,
    /// A list comes at a byte a second.
    Dripping,
    /// 10,000 events a second, of one MachineDeployment.
    Events,
    /// 100,000 MachineDeployments.
    Many,
    /// Each request is answered with 500.
    Failing,
    /// The same with 401.
    Refusing,
    /// Accepts connections, and never sends anything.
    Silent,
    /// Accepts no connection.
    Gone,
}

const MANY: usize = 100_000;

impl Kind {
    /// Those that are away.
    pub const AWAY: [Self; 4] = [Self::Failing, Self::Refusing, Self::Silent, Self::Gone];
    /// Those that answer, and do harm.
    pub const HOSTILE: [Self; 5] = [
        Self::Endless,
        Self::LongLine,
        Self::Dripping,
        Self::Events,
        Self::Many,
    ];
}

/// A server that runs until the end of the runtime.
pub struct HostileServer {
    address: SocketAddr,
    /// PEM.
    certificate: String,
    /// No more events.
    is_calm: Arc<AtomicBool>,
}

impl HostileServer {
    /// Starts it on a port that is free.
    ///
    /// # Errors
    /// A port or certificate that can't be had.
    pub async fn start(kind: Kind) -> Result<Self> {
        let identity = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let key =
            PrivateKeyDer::try_from(identity.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let mut tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![identity.cert.der().clone()], key)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (tls, is_calm) = (TlsAcceptor::from(Arc::new(tls)), Arc::new(AtomicBool::new(false)));
        let calm = is_calm.clone();
        let serving = async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, calm) = (tls.clone(), calm.clone());
                tokio::spawn(async move {
                    if kind == Kind::Silent {
                        std::future::pending::<()>().await;
                    }
                    let stream = TokioIo::new(tls.accept(stream).await?);
                    let service = service_fn(move |request| answer(kind, request, calm.clone()));
                    let server = http2::Builder::new(TokioExecutor::new());
                    server.serve_connection(stream, service).await?;
                    anyhow::Ok(())
                });
            }
        };
        if kind != Kind::Gone {
            tokio::spawn(serving);
        }
        let certificate = identity.cert.pem();
        Ok(Self {
            address,
            certificate,
            is_calm,
        })
    }

    /// It sends no more events.
    pub fn calm(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn kubeconfig(&self) -> String {
        let cluster = json!({"server": format!("https://{}", self.address),
            "certificate-authority-data": STANDARD.encode(&self.certificate)});
        json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "c", "user": {"token": "t"}}]})
        .to_string()
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

fn whole(status: u16, answer: impl Display) -> Result<Response<Body>> {
    let body = Full::new(Bytes::from(answer.to_string())).boxed_unsync();
    Ok(Response::builder().status(status).body(body)?)
}

fn failure(code: u16) -> Result<Response<Body>> {
    whole(
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": "as it likes", "reason": "NotFound"}),
    )
}

fn parts(parts: impl Stream<Item = Bytes> + Send + 'static) -> Result<Response<Body>> {
    let frames = parts.map(|part| Ok::<_, Infallible>(Frame::data(part)));
    Ok(Response::new(StreamBody::new(frames).boxed_unsync()))
}

/// 64 KiB in which no line ends.
fn block() -> Bytes {
    Bytes::from(vec![b'a'; 64 << 10])
}

async fn answer(kind: Kind, request: Request<Incoming>, calm: Arc<AtomicBool>) -> Result<Response<Body>> {
    let (path, query) = (
        request.uri().path().to_owned(),
        request.uri().query().unwrap_or_default().to_owned(),
    );
    let is_of_pools = path.ends_with("/machinedeployments");
    match kind {
        Kind::Failing => return failure(500),
        Kind::Refusing => return failure(401),
        _ => {}
    }
    if path.ends_with("/selfsubjectaccessreviews") {
        let review = request.into_body().collect().await?.to_bytes();
        let mut review: Value = serde_json::from_slice(&review)?;
        json_patch::merge(&mut review, &json!({"status": {"allowed": true}}));
        return whole(201, review);
    }
    if path == "/api/v1/namespaces/kube-system" {
        let metadata = json!({"name": "kube-system", "uid": format!("{kind:?}")});
        return whole(
            200,
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata}),
        );
    }
    if query.contains("watch=true") {
        return match kind {
            Kind::LongLine => parts(stream::iter((0..1600).map(|_| block()))),
            Kind::Events if is_of_pools => parts(events(calm)),
            _ => parts(stream::pending()),
        };
    }
    // kube asks for a list with a limit.
    if request.method() != Method::GET || !query.contains("limit=") {
        return failure(404);
    }
    match kind {
        Kind::Endless => parts(stream::repeat_with(block)),
        Kind::Dripping => parts(stream::unfold((), async |()| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Bytes::from_static(b" "), ()))
        })),
        Kind::Many if is_of_pools => {
            let value = |name: &str| {
                let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
                pairs
                    .find(|(key, _)| *key == name)
                    .and_then(|(_, value)| value.parse::<usize>().ok())
            };
            let (from, page) = (value("continue").unwrap_or(0), value("limit").unwrap_or(500));
            let to = (from + page).min(MANY);
            let items: Vec<String> = (from..to).map(|number| pool(number, 1)).collect();
            let next = if to < MANY { to.to_string() } else { String::new() };
            let metadata = json!({"resourceVersion": "1", "continue": next});
            let items = items.join(",");
            whole(200, format!(r#"{{"metadata": {metadata}, "items": [{items}]}}"#))
        }
        _ => whole(
            200,
            json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}),
        ),
    }
}

/// The JSON of a MachineDeployment. It is made from one text, because the server shares the machine.
fn pool(number: usize, version: u64) -> String {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut pool = machine_deployment("NAME", "osp-tiny");
        let metadata = json!({"uid": "uid-NAME", "resourceVersion": "VERSION"});
        json_patch::merge(&mut pool, &json!({"metadata": metadata}));
        pool.to_string()
    });
    TEXT.replace("NAME", &format!("p{number:06}"))
        .replace("VERSION", &version.to_string())
}

fn events(calm: Arc<AtomicBool>) -> impl Stream<Item = Bytes> + Send {
    stream::unfold(1, move |version| {
        let calm = calm.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if calm.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let line = |version| format!("{{\"type\": \"MODIFIED\", \"object\": {}}}\n", pool(0, version));
            let lines: String = (version..version + 100).map(line).collect();
            Some((Bytes::from(lines), version + 100))
        }
    })
}
