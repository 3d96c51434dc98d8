//! A port that forwards to another one, byte by byte. It stands between machines and the API server, where it
//! can break the connections of single machines. It also replaces the service addresses that kube-proxy would
//! provide on a node.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use tokio::io::{copy, copy_bidirectional, sink};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Server;

/// What happens to a client's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Bytes are copied both ways.
    #[default]
    Pass,
    /// Closed at once, by a reset.
    Refuse,
    /// Accepted, and never answered.
    Silent,
}

/// A running relay. Dropping it ends it and its connections.
#[derive(Debug)]
pub struct Relay {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    modes: Mutex<HashMap<IpAddr, watch::Sender<Mode>>>,
    /// Clients of all connections that were accepted.
    connections: Mutex<Vec<IpAddr>>,
}

impl Relay {
    /// Relays what arrives at the addresses to `upstream`.
    ///
    /// # Errors
    /// When one of them can't be listened on.
    pub fn start(listen: &[SocketAddr], upstream: SocketAddr) -> Result<Self> {
        let shared = Arc::new(Shared {
            upstream,
            modes: Mutex::default(),
            connections: Mutex::default(),
        });
        let serving = shared.clone();
        let server = Server::start(listen, move |stream, client| {
            serving.clone().connection(stream, client)
        })?;
        Ok(Self { server, shared })
    }

    /// The first address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// What happens to `client`'s connections from now on. Those that it has are cut, where this is a change.
    pub fn set(&self, client: IpAddr, mode: Mode) {
        let mut modes = self.shared.modes.lock();
        modes
            .entry(client)
            .or_default()
            .send_if_modified(|current| std::mem::replace(current, mode) != mode);
    }

    /// How many connections of `client` were accepted so far.
    #[must_use]
    pub fn connections(&self, client: IpAddr) -> usize {
        let connections = self.shared.connections.lock();
        connections.iter().filter(|one| **one == client).count()
    }
}

impl Shared {
    async fn connection(self: Arc<Self>, mut stream: TcpStream, client: IpAddr) {
        let mut modes = self.modes.lock().entry(client).or_default().subscribe();
        let mode = *modes.borrow_and_update();
        self.connections.lock().push(client);
        let serve = async {
            match mode {
                Mode::Pass => match TcpStream::connect(self.upstream).await {
                    Ok(mut upstream) => copy_bidirectional(&mut stream, &mut upstream).await.map(drop),
                    Err(_) => stream.set_zero_linger(),
                },
                Mode::Refuse => stream.set_zero_linger(),
                Mode::Silent => copy(&mut stream, &mut sink()).await.map(drop),
            }
        };
        tokio::select! {
            biased;
            _ = modes.changed() => {}
            // A connection that breaks ends; who had it sees that.
            _ = serve => {}
        }
    }
}
