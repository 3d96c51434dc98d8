//! The servers that a machine under test reaches, with their faults: a mirror of release files, image registries, metadata, a proxy, and a relay in
//! front of the API server. A further registry accepts pushes, for the commands of users.
//!
//! Servers distinguish machines by their address, so that a test can break one machine without affecting others. Each server has its own
//! thread and runtime: it answers machines even while a test blocks its runtime to wait for them.

pub mod files;
pub mod forward;
pub mod internet;
pub mod metadata;
pub mod oci;
pub mod proxy;
pub mod pushable_registry;
pub mod registry;
pub mod relay;

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use futures::future::join_all;
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
use tokio::sync::oneshot;

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
    /// When the request's head had arrived.
    pub started: SystemTime,
    /// From then until the last byte was handed to the connection, or the connection broke. `None` so far.
    pub duration: Option<Duration>,
    /// The length of what was handed to the connection of the answer's body, so far.
    pub bytes: u64,
}

/// A listener and all its connections, in a thread of their own. Dropping it ends them before it returns.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Hands each connection, with its client's address, to `serve`. The first of the addresses is the server's.
    fn start<F, S>(listen: &[SocketAddr], serve: S) -> Result<Self>
    where
        S: Fn(TcpStream, IpAddr) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listeners = {
            let _context = runtime.enter();
            listen
                .iter()
                .map(|address| bind(*address))
                .collect::<Result<Vec<_>>>()?
        };
        let address = listeners
            .first()
            .context("an address to listen on")?
            .local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new().name("serve".into()).spawn(move || {
            runtime.block_on(async move {
                let accepting = listeners.into_iter().map(|listener| accept(listener, &serve));
                tokio::select! {
                    _ = join_all(accepting) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self {
            address,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// In the context of a runtime.
fn bind(address: SocketAddr) -> Result<tokio::net::TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| format!("listen on {address}"))?;
    listener.set_nonblocking(true)?;
    Ok(tokio::net::TcpListener::from_std(listener)?)
}

async fn accept<F, S>(listener: tokio::net::TcpListener, serve: &S)
where
    S: Fn(TcpStream, IpAddr) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, client)) => {
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(stream, client.ip().to_canonical()));
            }
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// Answers HTTP/1.1 requests until the client has no more of them, and keeps them in `log`.
async fn serve_http<F, S>(stream: S, client: IpAddr, log: &Log, answer: impl Fn(Asked) -> F)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: Future<Output = Answer>,
{
    let service = service_fn(|request| {
        let question = Question::new(client, &request);
        let answer = answer(request);
        async { Ok::<_, Infallible>(log.record(question, answer.await)) }
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
    *answer.body_mut() = whole(body);
    answer
}

fn whole(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// The status of that number; one that HTTP has no room for is a server's error.
fn status_code(number: u16) -> StatusCode {
    StatusCode::from_u16(number).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Every request so far.
#[derive(Debug, Default, Clone)]
struct Log(Arc<Mutex<Vec<Request>>>);

impl Log {
    fn requests(&self) -> Vec<Request> {
        self.0.lock().clone()
    }

    /// Notes the request, and goes on noting what becomes of its answer.
    fn record(&self, question: Question, answer: Answer) -> Answer {
        let Question {
            client,
            method,
            path,
            started,
            clock,
        } = question;
        let status = answer.status().as_u16();
        let entry = {
            let mut requests = self.0.lock();
            requests.push(Request {
                client,
                method,
                path,
                status,
                started,
                duration: None,
                bytes: 0,
            });
            Entry {
                log: self.clone(),
                index: requests.len() - 1,
                clock,
            }
        };
        answer.map(|body| {
            let counted = body.map_frame(move |frame| {
                let length = frame.data_ref().map_or(0, Bytes::len);
                entry.update(|request| request.bytes += length as u64);
                frame
            });
            counted.boxed_unsync()
        })
    }
}

/// What is known of a request before it is answered.
struct Question {
    client: IpAddr,
    method: String,
    path: String,
    started: SystemTime,
    clock: Instant,
}

impl Question {
    fn new(client: IpAddr, request: &Asked) -> Self {
        Self {
            client,
            method: request.method().to_string(),
            path: request.uri().path().to_owned(),
            started: SystemTime::now(),
            clock: Instant::now(),
        }
    }
}

/// A request whose answer is not over yet. It lives as long as the answer's body does.
struct Entry {
    log: Log,
    index: usize,
    clock: Instant,
}

impl Entry {
    fn update(&self, change: impl FnOnce(&mut Request)) {
        if let Some(request) = self.log.0.lock().get_mut(self.index) {
            change(request);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let duration = self.clock.elapsed();
        self.update(|request| request.duration = Some(duration));
    }
}

#[cfg(test)]
mod curl {
    use std::process::{Child, Command, Output, Stdio};
    use std::sync::Once;

    use osm_judges::packages;

    /// A download that could not be completed, in curl's words: too short, reset, or closed before anything came.
    pub(super) const CUT: [i32; 4] = [18, 35, 52, 56];
    pub(super) const HTTP_ERROR: i32 = 22;
    pub(super) const NOT_CONNECTED: i32 = 7;
    pub(super) const NOT_TRUSTED: i32 = 60;

    /// Runs curl, which fails by itself where it would hang.
    pub(super) fn start(arguments: &[&str]) -> Child {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| packages::ensure(&["curl"]).unwrap());
        Command::new("curl")
            .args(["--silent", "--fail", "--noproxy", "*", "--max-time", "30"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub(super) fn run(arguments: &[&str]) -> Output {
        start(arguments).wait_with_output().unwrap()
    }

    /// What is printed where all goes well.
    pub(super) fn get(arguments: &[&str]) -> Vec<u8> {
        let output = run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", output.status);
        output.stdout
    }

    /// How it ends.
    pub(super) fn code(arguments: &[&str]) -> i32 {
        run(arguments).status.code().unwrap()
    }
}
