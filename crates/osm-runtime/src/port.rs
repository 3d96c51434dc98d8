//! Opens a port, and serves HTTP/1.1 on it within bounds. A service listens nowhere else.
//!
//! Every pod that reaches a port may be hostile, and memory that it takes is missing for the work. So a
//! connection carries one request, whose head is short, and ends after a time limit whatever it waits for.
//! There is no next request, which would need bounds of its own. If there are too many connections, the
//! oldest ends: if the newest waited instead, a probe could wait, and the kubelet would restart the service.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// The longest head of a request. Any pod may send unfinished heads, which take memory; hyper's default is 25
/// times as long.
pub(crate) const MAX_HEAD_BYTES: usize = 16 * 1024;

/// How long a TLS handshake may take. An API server needs milliseconds, and a client that is silent must not
/// keep a connection.
const HANDSHAKE: Duration = Duration::from_secs(1);

/// Pause after a connection could not be accepted, for example without a free file descriptor: trying again
/// at once would only use a CPU.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a port bears at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    /// How long a connection may take, from its beginning until the answer was read.
    pub(crate) deadline: Duration,
}

/// What handshakes use, and what replaces it.
pub(crate) type Tls = watch::Receiver<Arc<ServerConfig>>;

/// A port that is open.
pub(crate) struct Port {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
    limits: Limits,
}

impl Port {
    /// # Errors
    /// The address is not available.
    pub(crate) fn open(address: SocketAddr, limits: Limits) -> std::io::Result<Self> {
        #[expect(clippy::disallowed_methods, reason = "this is what the others have to call")]
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            limits,
        })
    }

    /// Serves until `stop`, and then until the connections that exist have ended; with TLS if there is any.
    ///
    /// # Errors
    /// The runtime can't take up the port.
    pub(crate) async fn serve(
        self,
        router: Router,
        tls: Option<Tls>,
        stop: CancellationToken,
    ) -> std::io::Result<()> {
        let Limits {
            connections,
            deadline,
        } = self.limits;
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let mut open = VecDeque::<JoinHandle<()>>::new();
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            open.retain(|connection| !connection.is_finished());
            if open.len() >= connections
                && let Some(oldest) = open.pop_front()
            {
                oldest.abort();
            }
            let connection = connection(stream, tls.clone(), router.clone());
            open.push_back(tokio::spawn(async move {
                let _ = timeout(deadline, connection).await;
            }));
            // In a flood, the connections that exist would be ended before they had a turn.
            yield_now().await;
        }
        drop(listener);
        for connection in open {
            let _ = connection.await;
        }
        Ok(())
    }
}

/// What goes wrong with a connection is a matter of the client, and is not logged: every client could fill
/// the log.
async fn connection(stream: TcpStream, tls: Option<Tls>, router: Router) {
    let _ = stream.set_nodelay(true);
    let Some(tls) = tls else {
        return answer(stream, router).await;
    };
    let acceptor = TlsAcceptor::from(tls.borrow().clone());
    if let Ok(Ok(stream)) = timeout(HANDSHAKE, acceptor.accept(stream)).await {
        answer(stream, router).await;
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let _ = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .await;
}
