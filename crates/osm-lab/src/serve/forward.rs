//! A port that forwards to another one. It replaces the service addresses that kube-proxy would provide on a node.

use std::net::SocketAddr;

use anyhow::Result;
use tokio::net::TcpStream;

use super::Server;

/// A running forwarder. Dropping it ends it and its connections.
#[derive(Debug)]
pub struct Forward {
    server: Server,
}

impl Forward {
    /// Hands what arrives at `listen` to `to`, and back, byte by byte.
    ///
    /// # Errors
    /// When `listen` can't be listened on.
    pub fn start(listen: SocketAddr, to: SocketAddr) -> Result<Self> {
        let server = Server::start(&[listen], move |mut near, client| async move {
            // A connection that breaks, or was never made, ends; who had it sees that.
            let copied = async {
                let mut far = TcpStream::connect(to).await?;
                far.set_nodelay(true)?;
                tokio::io::copy_bidirectional(&mut near, &mut far).await
            };
            if let Err(error) = copied.await {
                tracing::debug!(%client, %to, %error, "connection");
            }
        })?;
        Ok(Self { server })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Shutdown, TcpListener};

    use super::*;

    #[test]
    fn both_ways_until_both_have_ended() {
        let target = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let forward = Forward::start((Ipv4Addr::LOCALHOST, 0).into(), target.local_addr().unwrap()).unwrap();
        let mut near = std::net::TcpStream::connect(forward.address()).unwrap();
        near.write_all(b"ask").unwrap();
        near.shutdown(Shutdown::Write).unwrap();
        let (mut far, _) = target.accept().unwrap();
        let mut text = String::new();
        far.read_to_string(&mut text).unwrap();
        far.write_all(b"answer").unwrap();
        drop(far);
        near.read_to_string(&mut text).unwrap();
        assert_eq!(text, "askanswer");
        drop(forward);
    }
}
