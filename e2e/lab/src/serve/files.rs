//! Serves a directory over HTTP, as a mirror of release files, with faults.

use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use futures::{StreamExt, stream};
use http::header::{CONTENT_LENGTH, HOST};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncWrite};

use super::identity::Identity;
use super::{Answer, Asked, Log, Request, Server, answer, serve_http};

/// How much of half a body is sent at once.
const CHUNK: usize = 64 * 1024;

/// What goes wrong with a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An answer with this status and hardly a body.
    Status(u16),
    /// The right length is announced, but the connection is closed after about half of the body.
    Half,
    /// The whole body is sent, with one bit in its middle inverted.
    FlippedBit,
    /// The right length is announced, half of the body is sent, then nothing, until the client gives up.
    Stalled,
}

/// A running server. Dropping it ends it and its connections.
///
/// It answers `GET` and `HEAD` with whole files: directories are not listed, and ranges not served.
#[derive(Debug)]
pub struct FileServer {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    /// Whether the root has a folder for each host.
    has_hosts: bool,
    faults: Mutex<Vec<(IpAddr, String, Fault)>>,
    log: Log,
}

impl FileServer {
    /// Serves what is below `root`.
    ///
    /// # Errors
    /// When `root` is not a directory, or an address can't be listened on.
    pub fn start(listen: &[SocketAddr], root: &Path) -> Result<Self> {
        let shared = Arc::new(Shared::new(root)?);
        let serving = shared.clone();
        let server = Server::start(listen, move |stream, client| {
            serving.clone().connection(stream, client)
        })?;
        Ok(Self { server, shared })
    }

    /// Stands in for hosts: by TLS, it gives each one's files from a folder that is called as the host is.
    ///
    /// # Errors
    /// As [`Self::start`], and when the identity is not a certificate with its key.
    pub fn start_hosts(listen: SocketAddr, root: &Path, identity: &Identity) -> Result<Self> {
        let shared = Arc::new(Shared {
            has_hosts: true,
            ..Shared::new(root)?
        });
        let (serving, acceptor) = (shared.clone(), identity.acceptor()?);
        let server = Server::start(&[listen], move |stream, client| {
            let (serving, acceptor) = (serving.clone(), acceptor.clone());
            async move {
                match acceptor.accept(stream).await {
                    Ok(stream) => serving.connection(stream, client).await,
                    Err(error) => tracing::debug!(%client, %error, "TLS"),
                }
            }
        })?;
        Ok(Self { server, shared })
    }

    /// The folder that it serves. Files may be added while it runs.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// From now on, what `client` asks for goes wrong where the path contains `path_contains`.
    pub fn fault(&self, client: IpAddr, path_contains: &str, fault: Fault) {
        let mut faults = self.shared.faults.lock();
        faults.push((client, path_contains.to_owned(), fault));
    }

    /// Ends the fault that was set for this `client` and `path_contains`.
    pub fn mend(&self, client: IpAddr, path_contains: &str) {
        let mut faults = self.shared.faults.lock();
        faults.retain(|(of, part, _)| *of != client || part != path_contains);
    }

    /// Every request so far, in the order in which they were answered.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.log.lock().clone()
    }
}

impl Shared {
    fn new(root: &Path) -> Result<Self> {
        ensure!(
            root.is_dir(),
            "nothing to serve: {} is not a directory",
            root.display()
        );
        Ok(Self {
            root: root.to_owned(),
            has_hosts: false,
            faults: Mutex::default(),
            log: Log::default(),
        })
    }

    async fn connection<S>(self: Arc<Self>, stream: S, client: IpAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        serve_http(stream, client, &self.log, |request| {
            self.clone().answer(client, request)
        })
        .await;
    }

    async fn answer(self: Arc<Self>, client: IpAddr, request: Asked) -> Answer {
        let in_words = |status: StatusCode| answer(status, "text/plain", format!("{status}\n"));
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return in_words(StatusCode::METHOD_NOT_ALLOWED);
        }
        let (path, host) = (request.uri().path(), request.headers().get(HOST));
        let host = host
            .filter(|_| self.has_hosts)
            .and_then(|host| host.to_str().ok()?.split(':').next());
        let fault = {
            let faults = self.faults.lock();
            let mut own = faults.iter().filter(|(of, ..)| *of == client);
            own.find(|(_, part, _)| path.contains(part))
                .map(|(.., fault)| *fault)
        };
        if let Some(Fault::Status(status)) = fault {
            return in_words(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
        }
        let Some(content) = self.read(host.unwrap_or_default(), path).await else {
            return in_words(StatusCode::NOT_FOUND);
        };
        let half = content.len() / 2;
        match fault {
            Some(Fault::Half | Fault::Stalled) => {
                let mut broken = answer(StatusCode::OK, "application/octet-stream", content.clone());
                broken.headers_mut().insert(CONTENT_LENGTH, content.len().into());
                let chunks: Vec<Bytes> = (0..half)
                    .step_by(CHUNK)
                    .map(|from| content.slice(from..half.min(from + CHUNK)))
                    .collect();
                let first = stream::iter(chunks).map(|chunk| Ok(Frame::data(chunk)));
                let rest = stream::once(async move {
                    match fault {
                        Some(Fault::Half) => Err("only half of it is sent".into()),
                        _ => std::future::pending().await,
                    }
                });
                *broken.body_mut() = StreamBody::new(first.chain(rest)).boxed_unsync();
                broken
            }
            Some(Fault::FlippedBit) => {
                let mut content = content.to_vec();
                if let Some(byte) = content.get_mut(half) {
                    *byte ^= 1;
                }
                answer(StatusCode::OK, "application/octet-stream", content)
            }
            Some(Fault::Status(_)) | None => answer(StatusCode::OK, "application/octet-stream", content),
        }
    }

    /// The file below the root; nothing that leads out of it.
    async fn read(&self, host: &str, path: &str) -> Option<Bytes> {
        let path = percent_decode_str(path.trim_start_matches('/'))
            .decode_utf8()
            .ok()?;
        let path = Path::new(host).join(path.as_ref());
        let inside = path
            .components()
            .all(|component| matches!(component, Component::Normal(_)));
        if !inside {
            return None;
        }
        tokio::fs::read(self.root.join(path)).await.ok().map(Bytes::from)
    }
}
