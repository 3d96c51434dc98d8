//! A relay in front of the API server. It injects faults into the connections of single machines.

mod answers;
mod identity;

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{copy, copy_bidirectional, sink};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub use self::identity::{Identities, Identity};
use super::Server;

/// How long the rest of a held answer may take once it is let go. A watch would never come to its end.
const DELIVERED_WITHIN: Duration = Duration::from_secs(10);

/// What happens to a client's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Bytes are copied both ways; the client speaks TLS with the API server itself.
    #[default]
    Pass,
    /// Closed at once, by a reset.
    Refuse,
    /// Accepted, and never answered.
    Silent,
    /// TLS with a certificate that the cluster's CA did not sign. Whoever takes it gets 200 and garbage for whatever it asks.
    Impostor,
    /// TLS as the API server, which answers every request with this status and an object of kind `Status`.
    Status(u16),
    /// TLS as the API server; in an answer that is a Secret (or another object) with `cloud-config` or `cloud-config.gz` in its `data`, one
    /// bit in the middle of that document is inverted. All else is forwarded as it is.
    FlippedBit,
    /// TLS as the API server; requests are forwarded, but their answers kept back until the mode changes. Then they are delivered as they
    /// were, each before its connection is closed.
    Held,
}

/// A connection that was accepted.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Whose it is.
    pub client: IpAddr,
    /// What happened to it.
    pub mode: Mode,
    /// When it was accepted.
    pub started: SystemTime,
}

/// A request on a connection whose TLS ended here. Headers, query and body are not kept: there are credentials in them.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who asked.
    pub client: IpAddr,
    /// What happened to it.
    pub mode: Mode,
    /// When its head had arrived.
    pub started: SystemTime,
    /// `GET`, `POST` …
    pub method: String,
    /// As it was asked for, without the query.
    pub path: String,
    /// The answer's status; none while there is no answer, or it is held.
    pub status: Option<u16>,
}

/// A running relay. Dropping it ends it and its connections.
///
/// Where TLS ends here, requests are forwarded with their tokens; a client certificate can't be, so that who identifies by one is anonymous to
/// the API server. Nor are upgrades of a connection (`exec`, `port-forward`).
#[derive(Debug)]
pub struct Relay {
    server: Server,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    connector: TlsConnector,
    as_server: TlsAcceptor,
    as_impostor: TlsAcceptor,
    modes: Mutex<HashMap<IpAddr, watch::Sender<Mode>>>,
    connections: Mutex<Vec<Connection>>,
    requests: Mutex<Vec<Request>>,
}

impl Relay {
    /// Relays to `upstream`, whose certificate must be valid for its IP address where the relay opens requests.
    ///
    /// # Errors
    /// When an identity is no certificate with its key, or `listen` can't be listened on.
    pub fn start(listen: SocketAddr, upstream: SocketAddr, identities: &Identities) -> Result<Self> {
        Self::start_at(&[listen], upstream, identities)
    }

    /// As [`Self::start`], at several addresses.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(listen: &[SocketAddr], upstream: SocketAddr, identities: &Identities) -> Result<Self> {
        let shared = Arc::new(Shared {
            upstream,
            connector: identity::connector(&identities.ca)?,
            as_server: identities.server.acceptor()?,
            as_impostor: identities.impostor.acceptor()?,
            modes: Mutex::default(),
            connections: Mutex::default(),
            requests: Mutex::default(),
        });
        let serving = shared.clone();
        let server = Server::start(listen, move |stream, client| {
            serving.clone().connection(stream, client)
        })?;
        Ok(Self { server, shared })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// `https://<address>`, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url("https")
    }

    /// What happens to `client`'s connections from now on. Those that it has are cut, where this is a change.
    pub fn set(&self, client: IpAddr, mode: Mode) {
        let mut modes = self.shared.modes.lock();
        modes
            .entry(client)
            .or_default()
            .send_if_modified(|current| std::mem::replace(current, mode) != mode);
    }

    /// Every connection so far.
    #[must_use]
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.connections.lock().clone()
    }

    /// Every request so far on connections whose TLS ended here.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().clone()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("upstream", &self.upstream)
            .field("modes", &self.modes)
            .finish_non_exhaustive()
    }
}

impl Shared {
    async fn connection(self: Arc<Self>, stream: TcpStream, client: IpAddr) {
        let mut modes = self.modes.lock().entry(client).or_default().subscribe();
        let mode = *modes.borrow_and_update();
        self.connections.lock().push(Connection {
            client,
            mode,
            started: SystemTime::now(),
        });
        let outcome = match mode {
            Mode::Pass => until_changed(&mut modes, self.pass(stream)).await,
            Mode::Refuse => stream.set_zero_linger().map_err(Into::into),
            Mode::Silent => until_changed(&mut modes, silence(stream)).await,
            Mode::Impostor => {
                self.terminate(&self.as_impostor, stream, client, modes, mode)
                    .await
            }
            Mode::Status(_) | Mode::FlippedBit | Mode::Held => {
                self.terminate(&self.as_server, stream, client, modes, mode).await
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(%client, ?mode, error = format!("{error:#}"), "connection");
        }
    }

    async fn pass(&self, mut stream: TcpStream) -> Result<()> {
        match TcpStream::connect(self.upstream).await {
            Ok(mut upstream) => {
                copy_bidirectional(&mut stream, &mut upstream).await?;
                Ok(())
            }
            Err(error) => {
                stream.set_zero_linger()?;
                Err(error).with_context(|| self.upstream.to_string())
            }
        }
    }

    /// Speaks TLS and HTTP until the client goes or the mode changes.
    async fn terminate(
        &self,
        acceptor: &TlsAcceptor,
        stream: TcpStream,
        client: IpAddr,
        modes: watch::Receiver<Mode>,
        mode: Mode,
    ) -> Result<()> {
        let mut changes = modes.clone();
        let stream = tokio::select! {
            accepted = acceptor.accept(stream) => accepted.context("TLS")?,
            _ = changes.changed() => return Ok(()),
        };
        let service = service_fn(|request| {
            let answer = self.answer(client, mode, modes.clone(), request);
            async { Ok::<_, Infallible>(answer.await) }
        });
        let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            biased;
            _ = changes.changed() => {}
            ended = connection.as_mut() => return Ok(ended?),
        }
        if mode == Mode::Held {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(DELIVERED_WITHIN, connection).await??;
        }
        Ok(())
    }
}

async fn until_changed(
    modes: &mut watch::Receiver<Mode>,
    work: impl Future<Output = Result<()>>,
) -> Result<()> {
    tokio::select! {
        biased;
        _ = modes.changed() => Ok(()),
        done = work => done,
    }
}

/// Takes whatever the client sends, until it goes.
async fn silence(mut stream: TcpStream) -> Result<()> {
    copy(&mut stream, &mut sink()).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
