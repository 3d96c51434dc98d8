//! A server in the place of an API server. It speaks plain HTTP/1.1, one request for each connection.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A request, and the connection for its answer.
pub struct Call {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub stream: TcpStream,
}

impl Call {
    /// A number in the query; 0 if it is absent.
    pub fn number(&self, name: &str) -> usize {
        let start = format!("{name}=");
        let found = self
            .target
            .split(['?', '&'])
            .find_map(|pair| pair.strip_prefix(start.as_str()));
        found.and_then(|value| value.parse().ok()).unwrap_or(0)
    }

    pub fn is_watch(&self) -> bool {
        self.target.contains("watch=true")
    }

    /// The head of an answer whose body ends with the connection.
    pub async fn head(&mut self, status: &str) -> Result<()> {
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n");
        self.send(head.as_bytes()).await
    }

    pub async fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes).await?)
    }
}

pub struct FakeServer {
    address: SocketAddr,
}

impl FakeServer {
    pub async fn start<F, Fut>(respond: F) -> Result<Self>
    where
        F: Fn(Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let respond = Arc::new(respond);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let respond = respond.clone();
                // A client may hang up at any time.
                tokio::spawn(async move { respond(read(stream).await?).await });
            }
        });
        Ok(Self { address })
    }

    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n\
             clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\nusers: [{{name: c, user: {{token: t}}}}]\n",
            self.address
        )
    }
}

async fn read(stream: TcpStream) -> Result<Call> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        ensure!(stream.read_line(&mut line).await? > 0, "the client hung up");
        if let Some(bytes) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = bytes.trim().parse()?;
        }
        if line.trim().is_empty() {
            break;
        }
        head.push_str(&line);
    }
    stream.read_exact(&mut vec![0; length]).await?;
    let mut words = head.split(' ').map(str::to_owned);
    Ok(Call {
        method: words.next().context("a method")?,
        target: words.next().context("a target")?,
        stream: stream.into_inner(),
    })
}
