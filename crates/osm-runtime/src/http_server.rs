//! Serves HTTP/1.1 to anyone who can reach a port, within bounds.
//!
//! The server answers one request per connection, within a deadline. It keeps a bounded number of connections, and ends the oldest one for a
//! new one. Idle connections therefore hold up nobody, and only a flood of new connections can end a request that is being answered.

use std::collections::VecDeque;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Head of one request. hyper's default would be 50 MiB for 128 connections.
pub(crate) const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Pause after a connection could not be accepted, such as without a free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a server keeps at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    /// How long a connection may take, from its beginning until the answer was read.
    pub(crate) deadline: Duration,
}

#[derive(Clone)]
pub(crate) struct Tls {
    pub(crate) acceptor: TlsAcceptor,
    /// How long a handshake may take.
    pub(crate) deadline: Duration,
}

/// Serves until `stop`, and then until the connections that exist have ended; with TLS if there is any.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) {
    let mut open = VecDeque::<JoinHandle<()>>::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= limits.connections
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                let connection = connection(stream, tls.clone(), router.clone());
                open.push_back(tokio::spawn(async move {
                    let _ = timeout(limits.deadline, connection).await;
                }));
            }
            Err(error) => {
                tracing::debug!(%error, "a connection can't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    for connection in open {
        let _ = connection.await;
    }
}

/// What goes wrong with a connection is a matter of the client, and isn't logged: anyone could fill the log.
async fn connection(stream: TcpStream, tls: Option<Tls>, router: Router) {
    let _ = stream.set_nodelay(true);
    let Some(Tls { acceptor, deadline }) = tls else {
        return answer(stream, router).await;
    };
    if let Ok(Ok(stream)) = timeout(deadline, acceptor.accept(stream)).await {
        answer(stream, router).await;
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
}
