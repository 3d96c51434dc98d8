//! The connection from a client to the server, with its faults.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, Service};

use super::authorizer::User;
use super::request::Request;
use super::state::{Answer, Failure};
use super::{Server, watch};

/// A request, as a [`Network`] sees it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Such as `update`.
    pub verb: &'static str,
    /// Such as `secrets` or `serviceaccounts/token`.
    pub resource: String,
    /// Name of the object; empty for lists, watches and most creations.
    pub name: String,
    /// Whether it changes anything.
    pub writes: bool,
}

/// What happens to a request.
#[derive(Clone, Debug, Default)]
pub struct Passage {
    /// How long it takes to the server.
    pub there: Duration,
    /// How long the answer takes.
    pub back: Duration,
    /// What goes wrong.
    pub fault: Option<Fault>,
}

/// What can go wrong with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection breaks before the server has it.
    ResetBefore,
    /// It is done, and the answer is lost.
    ResetAfter,
    /// It is refused with this status code: 403, 409, 422, 429, 500 or 503.
    Refused(u16),
    /// Nothing ever comes back, and it is not done.
    Silence,
    /// It is done, and nothing ever comes back.
    SilenceAfter,
    /// The process dies before the server has it.
    CrashBefore,
    /// It is done, and the process dies before it knows.
    CrashAfter,
    /// The process is stopped right before it sends it, and goes on after this time.
    StopBefore(Duration),
    /// A watch breaks off after so many events.
    Cut(u32),
    /// A watch's resourceVersion is too old.
    Gone,
}

/// Decides what happens to requests.
pub trait Network: Send + Sync {
    /// What happens to this one.
    fn passage(&self, call: &Call) -> Passage;

    /// How much later than it was made a watch shows the change with this resourceVersion.
    fn lag(&self, resource: &str, version: u64) -> Duration;
}

/// Nothing goes wrong, and nothing takes time.
#[derive(Debug)]
pub struct Calm;

impl Network for Calm {
    fn passage(&self, _: &Call) -> Passage {
        Passage::default()
    }

    fn lag(&self, _: &str, _: u64) -> Duration {
        Duration::ZERO
    }
}

/// The connections of one process. Once it is dead, nothing that it sends arrives, and nothing reaches it: to
/// the world that is a process that was killed. While it is frozen, requests are put off, even if their
/// callers stop waiting: to the world that is a process that was stopped, and sends what it had decided on
/// when it goes on.
#[derive(Clone)]
pub struct Link {
    network: Arc<dyn Network>,
    dead: CancellationToken,
    /// `None`: it is not frozen; cancelled when it no longer is.
    frozen: Arc<Mutex<Option<CancellationToken>>>,
}

impl Link {
    /// A process on this network.
    #[must_use]
    pub fn new(network: Arc<dyn Network>) -> Self {
        Self {
            network,
            dead: CancellationToken::new(),
            frozen: Arc::default(),
        }
    }

    /// Freezes the connections.
    pub fn freeze(&self) {
        self.frozen().get_or_insert_default();
    }

    /// Lets them go on.
    pub fn thaw(&self) {
        if let Some(frozen) = self.frozen().take() {
            frozen.cancel();
        }
    }

    /// Whether they are frozen.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.frozen().is_some()
    }

    fn frozen(&self) -> MutexGuard<'_, Option<CancellationToken>> {
        self.frozen.lock()
    }

    /// Returns at once where they are not frozen, else when they no longer are.
    async fn thawed(&self) {
        loop {
            let frozen = self.frozen().clone();
            match frozen {
                Some(frozen) => frozen.cancelled().await,
                None => return,
            }
        }
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.dead.cancel();
    }

    /// Whether the process is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.is_cancelled()
    }

    /// Returns when the process has died.
    pub async fn died(&self) {
        self.dead.cancelled().await;
    }

    /// Does what a living process does; never returns to a dead one.
    async fn alive<T>(&self, work: impl Future<Output = T>) -> T {
        match self.dead.run_until_cancelled(work).await {
            Some(result) => result,
            None => pending().await,
        }
    }
}

impl Default for Link {
    fn default() -> Self {
        Self::new(Arc::new(Calm))
    }
}

/// Requests of one user over one link.
#[derive(Clone)]
pub struct Wire {
    server: Server,
    user: User,
    link: Link,
}

type AnswerBody = StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>;

impl Wire {
    pub(super) fn new(server: Server, user: User, link: Link) -> Self {
        Self { server, user, link }
    }

    async fn pass(self, request: http::Request<Body>) -> Result<http::Response<AnswerBody>, BoxError> {
        let (parts, sent) = request.into_parts();
        let sent = sent.collect().await?.to_bytes().to_vec();
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value: &http::HeaderValue| value.to_str().ok())
        };
        let (accept, content_type) = (
            header(ACCEPT).unwrap_or_default(),
            header(CONTENT_TYPE).unwrap_or_default(),
        );
        let token = header(AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let what = format!("{} {}", parts.method, parts.uri);
        let Some(request) = Request::parse(&parts.method, &parts.uri, accept, content_type, sent) else {
            let failure = Failure::unsupported("not known");
            self.server.with(|state| state.note(&failure, &what));
            return Ok(answer(failure.code, &failure.status()));
        };
        let passage = self.link.network.passage(&Call {
            verb: request.verb.name(),
            resource: request.target.resource(),
            name: request.target.name().to_owned(),
            writes: request.verb.writes(),
        });
        if let Some(Fault::StopBefore(time)) = passage.fault {
            self.link.freeze();
            let link = self.link.clone();
            tokio::spawn(async move {
                tokio::time::sleep(time).await;
                link.thaw();
            });
        }
        if !self.link.is_frozen() {
            return self.deliver(request, passage, token, &what).await;
        }
        // It arrives in the end, though who sent it may have given up by then.
        let (wire, token) = (self, token.map(str::to_owned));
        let delivered = tokio::spawn(async move {
            let link = wire.link.clone();
            link.alive(wire.deliver(request, passage, token.as_deref(), &what))
                .await
        });
        delivered.await.unwrap_or_else(|broken| Err(broken.into()))
    }

    async fn deliver(
        self,
        request: Request,
        passage: Passage,
        token: Option<&str>,
        what: &str,
    ) -> Result<http::Response<AnswerBody>, BoxError> {
        tokio::time::sleep(passage.there).await;
        self.link.thawed().await;
        let (fault, resource, name) = (passage.fault, request.target.resource(), request.target.name());
        let doing = format!("{} {} {resource} {name}", self.user, request.verb.name());
        if let Some(fault) = fault {
            self.server
                .with(|state| state.remark(&format!("{doing}: {fault:?}")));
        }
        let is_away = self.server.with(|state| Instant::now() < state.away_until);
        match passage.fault {
            _ if is_away => return Err(reset()),
            Some(Fault::ResetBefore) => return Err(reset()),
            Some(Fault::Silence) => return pending().await,
            Some(Fault::CrashBefore) => {
                self.link.kill();
                return pending().await;
            }
            Some(Fault::Refused(code)) => {
                let failure = refusal(code);
                return Ok(answer(code, &failure.status()));
            }
            _ => {}
        }
        let answered = self.server.with(|state| {
            let user = match token {
                Some(token) => state.owner(token).ok_or_else(Failure::unauthorized)?,
                None => self.user.clone(),
            };
            let answered = state.handle(&user, &request);
            match &answered {
                Ok(_) => state.remark(&doing),
                Err(failure) => {
                    state.note(failure, what);
                    state.remark(&format!("{doing}: {failure}"));
                }
            }
            answered
        });
        match passage.fault {
            Some(Fault::SilenceAfter) => return pending().await,
            Some(Fault::CrashAfter) => {
                self.link.kill();
                return pending().await;
            }
            _ => tokio::time::sleep(passage.back).await,
        }
        self.link.thawed().await;
        if passage.fault == Some(Fault::ResetAfter) {
            return Err(reset());
        }
        let answered = match answered {
            Ok(Answer::Watch) => {
                match watch::start(&self.server, &self.link.network, &request, passage.fault) {
                    Ok(lines) => return Ok(streamed(200, self.until_dead(lines))),
                    Err(failure) => {
                        self.server.with(|state| state.note(&failure, what));
                        Err(failure)
                    }
                }
            }
            Ok(Answer::Object(code, object)) => Ok((code, object)),
            Err(failure) => Err(failure),
        };
        Ok(match answered {
            Ok((code, object)) => answer(code, &object),
            Err(failure) => answer(failure.code, &failure.status()),
        })
    }

    fn until_dead(
        &self,
        lines: BoxStream<'static, Result<String, io::Error>>,
    ) -> BoxStream<'static, Result<Frame<Bytes>, io::Error>> {
        let link = self.link.clone();
        let next = move |mut lines: BoxStream<'static, Result<String, io::Error>>| {
            let link = link.clone();
            async move {
                let line = link.alive(lines.next()).await?;
                link.alive(link.thawed()).await;
                Some((line.map(|line| Frame::data(Bytes::from(line))), lines))
            }
        };
        stream::unfold(lines, next).boxed()
    }
}

impl Service<http::Request<Body>> for Wire {
    type Response = http::Response<AnswerBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let wire = self.clone();
        Box::pin(async move {
            let link = wire.link.clone();
            link.alive(wire.pass(request)).await
        })
    }
}

fn refusal(code: u16) -> Failure {
    match code {
        403 => Failure::new(403, "Forbidden", "forbidden by the test"),
        409 => {
            Failure::conflict("the object has been modified; please apply your changes to the latest version")
        }
        422 => Failure::new(422, "Invalid", "refused by the test"),
        429 => Failure::new(429, "TooManyRequests", "too many requests"),
        503 => Failure::new(503, "ServiceUnavailable", "not available"),
        _ => Failure::new(500, "InternalError", "internal error"),
    }
}

fn reset() -> BoxError {
    Box::new(io::Error::from(io::ErrorKind::ConnectionReset))
}

fn answer(code: u16, object: &Value) -> http::Response<AnswerBody> {
    let bytes = Ok(Frame::data(Bytes::from(object.to_string())));
    streamed(code, stream::iter([bytes]).boxed())
}

fn streamed(
    code: u16,
    body: BoxStream<'static, Result<Frame<Bytes>, io::Error>>,
) -> http::Response<AnswerBody> {
    let mut response = http::Response::new(StreamBody::new(body));
    *response.status_mut() =
        http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response
}
