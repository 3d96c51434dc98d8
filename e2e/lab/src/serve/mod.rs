//! The servers that a machine under test reaches: a mirror of release files with faults, metadata, a relay
//! with faults in front of the API server, and programs of Debian: a registry, a proxy and a name server.
//!
//! The mirror and the relay distinguish machines by their address, so that a test can break one machine
//! without affecting others.

pub mod files;
pub mod identity;
pub mod metadata;
pub mod oci;
pub mod programs;
pub mod relay;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// How long to wait before accepting again where the process has no file descriptor left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Body = UnsyncBoxBody<Bytes, BoxError>;
type Answer = Response<Body>;
type Asked = hyper::Request<Incoming>;

/// A request that was answered, or is being answered. Headers, query and body are not kept.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who asked.
    pub client: IpAddr,
    /// `GET`, `HEAD` …
    pub method: String,
    /// As it was asked for, without the query.
    pub path: String,
    /// The answer's status.
    pub status: u16,
}

/// Listeners and all their connections. Dropping it ends them.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Server {
    /// Hands each connection, with its client's address, to `serve`. The first of the addresses is the
    /// server's. Only within a runtime, which must have threads besides those that a test blocks.
    fn start<F, S>(listen: &[SocketAddr], serve: S) -> Result<Self>
    where
        S: Fn(TcpStream, IpAddr) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let (mut tasks, mut addresses) = (JoinSet::new(), Vec::new());
        for address in listen {
            let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
            listener.set_nonblocking(true)?;
            addresses.push(listener.local_addr()?);
            tasks.spawn(accept(
                tokio::net::TcpListener::from_std(listener)?,
                serve.clone(),
            ));
        }
        Ok(Self {
            address: *addresses.first().context("an address to listen on")?,
            _tasks: tasks,
        })
    }
}

async fn accept<F, S>(listener: tokio::net::TcpListener, serve: S)
where
    S: Fn(TcpStream, IpAddr) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let _ = stream.set_nodelay(true);
                connections.spawn(serve(stream, client.ip().to_canonical()));
                while connections.try_join_next().is_some() {}
            }
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Every request so far.
type Log = Arc<Mutex<Vec<Request>>>;

/// Answers HTTP/1.1 requests until the client has no more of them, and keeps them in `log`.
async fn serve_http<F, S>(stream: S, client: IpAddr, log: &Log, answer: impl Fn(Asked) -> F)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Answer>,
{
    let service = service_fn(|request: Asked| {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let answer = answer(request);
        async {
            let answer = answer.await;
            log.lock().push(Request {
                client,
                method,
                path,
                status: answer.status().as_u16(),
            });
            Ok::<_, Infallible>(answer)
        }
    });
    if let Err(error) = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await
    {
        tracing::debug!(%client, %error, "connection");
    }
}

/// An answer whose body is at hand.
fn answer(status: StatusCode, content_type: &str, body: impl Into<Bytes>) -> Answer {
    let body = body.into();
    let mut answer = Response::new(Body::default());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(http::header::CONTENT_LENGTH, body.len().into());
    if let Ok(content_type) = content_type.parse() {
        headers.insert(http::header::CONTENT_TYPE, content_type);
    }
    *answer.body_mut() = Full::new(body).map_err(|never| match never {}).boxed_unsync();
    answer
}
