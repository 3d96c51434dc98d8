//! Serves a directory over plain HTTP, as a mirror of release files, with faults.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use anyhow::{Result, ensure};
use futures::stream;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::{Method, Response, StatusCode};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use tokio::fs::File;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use super::relay::Identity;
use super::{Answer, Asked, BoxError, Log, Request, Server, answer, serve_http, status_code};

/// How much is read at once.
const CHUNK: u64 = 64 * 1024;

/// What goes wrong with a download. A file of no bytes has no half and no bit: it is served as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An answer with this status and hardly a body.
    Status(u16),
    /// The right length is announced, half of the body is sent, then the connection is closed.
    Half,
    /// The whole body is sent, with one bit in its middle inverted.
    FlippedBit,
    /// The right length is announced, half of the body is sent, then nothing. The connection stays open until the client goes,
    /// or the fault does.
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
    faults: Mutex<Vec<(IpAddr, String, Fault)>>,
    /// Tells of every change to `faults`.
    changed: watch::Sender<()>,
    log: Log,
}

impl FileServer {
    /// Serves what is below `root`.
    ///
    /// # Errors
    /// When `root` is not a directory, or `listen` can't be listened on.
    pub fn start(listen: SocketAddr, root: &Path) -> Result<Self> {
        Self::start_at(&[listen], root)
    }

    /// The folder that it serves. Files may be added while it runs.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// As [`Self::start`], at several addresses.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(listen: &[SocketAddr], root: &Path) -> Result<Self> {
        let shared = Shared::new(root)?;
        let serving = shared.clone();
        let server = Server::start(listen, move |stream, client| {
            serving.clone().connection(stream, client)
        })?;
        Ok(Self { server, shared })
    }

    /// As [`Self::start`], by TLS.
    ///
    /// # Errors
    /// As [`Self::start`], and when the identity is no certificate with its key.
    pub fn start_tls(listen: SocketAddr, root: &Path, identity: &Identity) -> Result<Self> {
        let shared = Shared::new(root)?;
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

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// `http://<address>`, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url("http")
    }

    /// From now on, what `client` asks for goes wrong where the path contains `path_contains`. Where several faults apply, the one
    /// set last counts.
    pub fn fault(&self, client: IpAddr, path_contains: &str, fault: Fault) {
        let mut faults = self.shared.faults.lock();
        faults.retain(|(of, part, _)| *of != client || part != path_contains);
        faults.push((client, path_contains.to_owned(), fault));
        drop(faults);
        self.shared.changed.send_replace(());
    }

    /// Ends all faults of `client`, and its stalled downloads.
    pub fn mend(&self, client: IpAddr) {
        self.shared.faults.lock().retain(|(of, ..)| *of != client);
        self.shared.changed.send_replace(());
    }

    /// Ends the fault that was set for this `client` and `path_contains`.
    pub fn mend_path(&self, client: IpAddr, path_contains: &str) {
        self.shared
            .faults
            .lock()
            .retain(|(of, part, _)| *of != client || part != path_contains);
        self.shared.changed.send_replace(());
    }

    /// Every request so far, in the order in which they were answered.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.log.requests()
    }
}

impl Shared {
    fn new(root: &Path) -> Result<Arc<Self>> {
        ensure!(
            root.is_dir(),
            "nothing to serve: {} is not a directory",
            root.display()
        );
        Ok(Arc::new(Self {
            root: root.to_owned(),
            faults: Mutex::default(),
            changed: watch::Sender::new(()),
            log: Log::default(),
        }))
    }

    fn fault(&self, client: IpAddr, path: &str) -> Option<Fault> {
        let faults = self.faults.lock();
        let fault = faults
            .iter()
            .rev()
            .find(|(of, part, _)| *of == client && path.contains(part))?;
        Some(fault.2)
    }

    async fn connection<S>(self: Arc<Self>, stream: S, client: IpAddr)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let cut = Cut::default();
        let stream = Cuttable {
            stream,
            cut: cut.clone(),
        };
        serve_http(stream, client, &self.log, |request| {
            self.clone().answer(client, request, cut.clone())
        })
        .await;
    }

    async fn answer(self: Arc<Self>, client: IpAddr, request: Asked, cut: Cut) -> Answer {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            return in_words(StatusCode::METHOD_NOT_ALLOWED);
        }
        let path = request.uri().path();
        let fault = self.fault(client, path);
        if let Some(Fault::Status(status)) = fault {
            return in_words(status_code(status));
        }
        let Some((file, length)) = self.open(path).await else {
            return in_words(StatusCode::NOT_FOUND);
        };
        let half = length / 2;
        let (length_sent, end) = match fault {
            Some(Fault::Half) => (half, End::Cut(cut)),
            Some(Fault::Stalled) => (
                half,
                End::Stall {
                    shared: self,
                    client,
                    path: path.to_owned(),
                },
            ),
            _ => (length, End::Whole),
        };
        let download = Download {
            file,
            left: length_sent,
            until_flip: (fault == Some(Fault::FlippedBit)).then_some(half),
            end,
        };
        let chunks = stream::try_unfold(download, Download::next);
        let mut answer = Response::new(StreamBody::new(chunks).boxed_unsync());
        answer.headers_mut().insert(CONTENT_LENGTH, length.into());
        answer.headers_mut().insert(
            CONTENT_TYPE,
            http::HeaderValue::from_static("application/octet-stream"),
        );
        answer
    }

    /// The file below the root and its length; nothing that leads out of it.
    async fn open(&self, path: &str) -> Option<(File, u64)> {
        let path = percent_decode_str(path.trim_start_matches('/'))
            .decode_utf8()
            .ok()?;
        let path = Path::new(path.as_ref());
        if !path
            .components()
            .all(|component| matches!(component, Component::Normal(_)))
        {
            return None;
        }
        let file = File::open(self.root.join(path)).await.ok()?;
        let metadata = file.metadata().await.ok()?;
        metadata.is_file().then_some((file, metadata.len()))
    }
}

fn in_words(status: StatusCode) -> Answer {
    answer(status, "text/plain", format!("{status}\n"))
}

/// The part of a file that is still to be sent.
struct Download {
    file: File,
    left: u64,
    /// How many bytes come before the one that is changed.
    until_flip: Option<u64>,
    end: End,
}

/// What comes after the last byte.
enum End {
    Whole,
    Cut(Cut),
    Stall {
        shared: Arc<Shared>,
        client: IpAddr,
        path: String,
    },
}

impl Download {
    async fn next(mut self) -> Result<Option<(Frame<Bytes>, Self)>, BoxError> {
        if self.left == 0 {
            return match self.end {
                End::Whole => Ok(None),
                End::Cut(cut) => {
                    cut.when_sent();
                    std::future::pending().await
                }
                End::Stall { shared, client, path } => {
                    let mut changed = shared.changed.subscribe();
                    while shared.fault(client, &path) == Some(Fault::Stalled) {
                        changed.changed().await?;
                    }
                    Err("no longer stalled".into())
                }
            };
        }
        let mut chunk = Vec::new();
        (&mut self.file)
            .take(self.left.min(CHUNK))
            .read_to_end(&mut chunk)
            .await?;
        if chunk.is_empty() {
            return Err("the file was cut short meanwhile".into());
        }
        let length = chunk.len() as u64;
        self.until_flip = match self.until_flip {
            Some(before) if before < length => {
                if let Some(byte) = usize::try_from(before)
                    .ok()
                    .and_then(|index| chunk.get_mut(index))
                {
                    *byte ^= 1;
                }
                None
            }
            before => before.map(|before| before - length),
        };
        self.left -= length;
        Ok(Some((Frame::data(chunk.into()), self)))
    }
}

/// Ends a connection as soon as all that was written to it is on its way. (The HTTP library would, on an error in the body,
/// throw away what it has not sent yet.)
#[derive(Debug, Clone, Default)]
struct Cut(Arc<AtomicBool>);

impl Cut {
    fn when_sent(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Cuttable<S> {
    stream: S,
    cut: Cut,
}

impl<S: AsyncRead + Unpin> AsyncRead for Cuttable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cuttable<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    /// Called when nothing is left to write.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        if self.cut.0.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::serve::curl;
    use osm_testkit::{check, wait_for};

    const DEADLINE: Duration = Duration::from_secs(10);
    const US: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    /// Loopback has many addresses, so that we can be two clients.
    const NEIGHBOUR: &str = "127.0.0.2";
    /// Odd, and larger than what the kernel takes for a connection at once.
    const LENGTH: usize = 9_000_001;

    fn content() -> Vec<u8> {
        (0..LENGTH)
            .map(|index| u8::try_from(index % 251).unwrap())
            .collect()
    }

    fn mirror() -> (FileServer, TempDir) {
        let directory = TempDir::new().unwrap();
        let root = directory.path().join("root");
        fs::create_dir_all(root.join("dl.k8s.io/v1")).unwrap();
        fs::write(root.join("dl.k8s.io/v1/kubelet"), content()).unwrap();
        fs::write(root.join("dl.k8s.io/v1/1.0+build 7"), "odd name").unwrap();
        fs::write(directory.path().join("secret"), "not served").unwrap();
        (FileServer::start((US, 0).into(), &root).unwrap(), directory)
    }

    async fn last_over(server: &FileServer) -> Request {
        let over = async || {
            Ok(server
                .requests()
                .pop()
                .filter(|request| request.duration.is_some()))
        };
        wait_for("the request's end", DEADLINE, over).await.unwrap()
    }

    #[tokio::test]
    async fn files_are_served_whole_and_every_request_is_kept() {
        let (server, _directory) = mirror();
        let url = format!("{}/dl.k8s.io/v1/kubelet", server.url());
        assert!(curl::get(&[&url]) == content(), "same bytes");
        let request = last_over(&server).await;
        assert_eq!(
            (request.client, request.method.as_str(), request.status),
            (US, "GET", 200)
        );
        assert_eq!(
            (request.path.as_str(), request.bytes),
            ("/dl.k8s.io/v1/kubelet", LENGTH as u64)
        );
        assert!(request.started.elapsed().unwrap() < DEADLINE);

        let head = String::from_utf8(curl::get(&["--head", &url]))
            .unwrap()
            .to_lowercase();
        assert!(head.contains(&format!("content-length: {LENGTH}\r\n")), "{head}");
        assert_eq!(last_over(&server).await.bytes, 0);

        let odd = format!("{}/dl.k8s.io/v1/1.0+build%207?a=b", server.url());
        assert_eq!(curl::get(&[&odd]), b"odd name");
        assert_eq!(
            server.requests().last().unwrap().path,
            "/dl.k8s.io/v1/1.0+build%207"
        );
    }

    #[test]
    fn nothing_but_files_below_the_root_is_served() {
        let (server, directory) = mirror();
        assert!(directory.path().join("root/../secret").is_file());
        let absolute = format!("/{}", directory.path().join("secret").display());
        for path in [
            "/missing",
            "/",
            "/dl.k8s.io",
            "/../secret",
            "/dl.k8s.io/%2e%2e/..%2f../secret",
            &absolute,
            "/%00",
            "/%ff",
        ] {
            let output = curl::run(&["--path-as-is", &format!("{}{path}", server.url())]);
            assert_eq!(output.status.code(), Some(curl::HTTP_ERROR), "{path}");
            let request = server.requests().pop().unwrap();
            assert_eq!((request.path.as_str(), request.status), (path, 404));
        }
        let url = format!("{}/dl.k8s.io/v1/kubelet", server.url());
        assert_eq!(curl::code(&["--request", "DELETE", &url]), curl::HTTP_ERROR);
        assert_eq!(server.requests().pop().unwrap().status, 405);
        let error = FileServer::start((US, 0).into(), Path::new("/nonexistent"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nonexistent"), "{error}");
    }

    #[tokio::test]
    async fn a_fault_is_for_one_client_and_one_path_until_mended() {
        let (server, _directory) = mirror();
        let kubelet = format!("{}/dl.k8s.io/v1/kubelet", server.url());
        let other = format!("{}/dl.k8s.io/v1/1.0+build%207", server.url());
        server.fault(US, "kubelet", Fault::Status(503));
        for _ in 0..2 {
            let output = curl::run(&["--write-out", "%{http_code}", &kubelet]);
            assert_eq!(
                (output.status.code(), output.stdout.as_slice()),
                (Some(curl::HTTP_ERROR), &b"503"[..])
            );
        }
        assert_eq!(curl::get(&[&other]), b"odd name");
        assert!(
            curl::get(&["--interface", NEIGHBOUR, &kubelet]) == content(),
            "the neighbour is well"
        );
        assert_eq!(last_over(&server).await.client.to_string(), NEIGHBOUR);

        server.fault(US, "", Fault::Status(404));
        assert_eq!(
            curl::run(&["--write-out", "%{http_code}", &kubelet]).stdout,
            b"404",
            "the one set last counts"
        );
        assert_eq!(curl::code(&[&other]), curl::HTTP_ERROR);
        server.mend(US);
        assert_eq!(curl::get(&[&other]), b"odd name");
        assert!(curl::get(&[&kubelet]) == content(), "same bytes");
    }

    #[tokio::test]
    async fn half_a_body_is_exactly_half() {
        let (server, _directory) = mirror();
        server.fault(US, "", Fault::Half);
        for (path, half) in [("kubelet", &content()[..LENGTH / 2]), ("1.0+build%207", b"odd ")] {
            let output = curl::run(&[&format!("{}/dl.k8s.io/v1/{path}", server.url())]);
            assert_eq!(output.status.code(), Some(18), "curl: partial file");
            assert!(output.stdout == half, "{path}: {} bytes", output.stdout.len());
            let request = last_over(&server).await;
            assert_eq!((request.status, request.bytes), (200, half.len() as u64));
        }
    }

    #[test]
    fn a_flipped_bit_is_one_bit() {
        let (server, _directory) = mirror();
        server.fault(US, "", Fault::FlippedBit);
        for (path, right) in [("kubelet", content()), ("1.0+build%207", b"odd name".to_vec())] {
            let got = curl::get(&[&format!("{}/dl.k8s.io/v1/{path}", server.url())]);
            assert_eq!(got.len(), right.len());
            let differing: u32 = got
                .iter()
                .zip(&right)
                .map(|(got, right)| (got ^ right).count_ones())
                .sum();
            assert_eq!(differing, 1, "{path}");
        }
    }

    #[tokio::test]
    async fn a_stalled_download_ends_when_it_is_mended_or_given_up() {
        let (server, directory) = mirror();
        server.fault(US, "kubelet", Fault::Stalled);
        let url = format!("{}/dl.k8s.io/v1/kubelet", server.url());
        let target = directory.path().join("got");
        let stalled = async || {
            let child = curl::start(&["--no-buffer", "--output", target.to_str().unwrap(), &url]);
            let half = async || check(fs::metadata(&target)?.len() == LENGTH as u64 / 2);
            wait_for("half of the file", DEADLINE, half).await.unwrap();
            let request = server.requests().pop().unwrap();
            assert_eq!(
                (request.bytes, request.duration),
                (LENGTH as u64 / 2, None),
                "it is not over"
            );
            fs::remove_file(&target).unwrap();
            child
        };

        let mut waiting = stalled().await;
        server.fault(US, "something else", Fault::Half);
        assert!(
            waiting.try_wait().unwrap().is_none(),
            "another fault changes nothing"
        );
        server.mend(US);
        assert_eq!(waiting.wait().unwrap().code(), Some(18), "curl: partial file");
        assert!(last_over(&server).await.duration.is_some());

        server.fault(US, "kubelet", Fault::Stalled);
        let mut impatient = stalled().await;
        impatient.kill().unwrap();
        impatient.wait().unwrap();
        assert_eq!(last_over(&server).await.bytes, LENGTH as u64 / 2);

        let mut cut_off = stalled().await;
        let address = server.address();
        drop(server);
        assert_eq!(cut_off.wait().unwrap().code(), Some(18), "curl: partial file");
        assert_eq!(curl::code(&[&url]), curl::NOT_CONNECTED);
        drop(FileServer::start(address, directory.path()).unwrap());
    }
}
