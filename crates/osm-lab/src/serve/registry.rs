//! A read-only image registry over plain HTTP: the pull part of the OCI distribution specification.
//!
//! For containerd it is a mirror of every registry whose `hosts.toml` names it. Pulls for all of them arrive at the same paths, with the name
//! of the registry in the query as `ns`. The repository alone therefore identifies an image.

use std::fmt;
use std::future::ready;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue};
use hyper::{Method, StatusCode};
use serde_json::json;
use tokio::net::TcpStream;

use super::oci::{Blob, Image};
use super::{Answer, Asked, Log, Request, Server, answer, serve_http};

/// A running registry. Dropping it ends it and its connections.
#[derive(Debug)]
pub struct Registry {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    images: Vec<Image>,
    login: Option<Login>,
    log: Log,
}

/// User name (without a colon) and password of a registry or proxy.
#[derive(Clone)]
pub struct Login {
    /// The name.
    pub username: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

impl Login {
    /// Whether a request has it as HTTP's basic authentication in this header.
    pub(super) fn is_given_by(&self, request: &Asked, header: &HeaderName) -> bool {
        let given = request
            .headers()
            .get(header)
            .and_then(|value| value.to_str().ok());
        let login = BASE64_STANDARD.encode(format!("{}:{}", self.username, self.password));
        // The scheme's name is of either case.
        given
            .and_then(|given| given.split_once(' '))
            .is_some_and(|(scheme, credentials)| {
                scheme.eq_ignore_ascii_case("basic") && credentials.trim_start() == login
            })
    }
}

impl Registry {
    /// Serves the images.
    ///
    /// # Errors
    /// When `listen` can't be listened on.
    pub fn start(listen: SocketAddr, images: impl IntoIterator<Item = Image>) -> Result<Self> {
        Self::start_at(&[listen], images, None)
    }

    /// Serves the images at several addresses. With a login, only to who gives it as HTTP's basic authentication.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_at(
        listen: &[SocketAddr],
        images: impl IntoIterator<Item = Image>,
        login: Option<Login>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            images: images.into_iter().collect(),
            login,
            log: Log::default(),
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

    /// `http://<address>`, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url("http")
    }

    /// Every request so far, in the order in which they were answered.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.log.requests()
    }
}

impl Shared {
    async fn connection(self: Arc<Self>, stream: TcpStream, client: IpAddr) {
        serve_http(stream, client, &self.log, |request| {
            let found = match &self.login {
                Some(login) if !login.is_given_by(&request, &AUTHORIZATION) => Err(Refusal::Unauthorized),
                _ => self.find(request.method(), request.uri().path()),
            };
            ready(found.unwrap_or_else(|refusal| refusal.answer()))
        })
        .await;
    }

    fn find(&self, method: &Method, path: &str) -> Result<Answer, Refusal> {
        if ![Method::GET, Method::HEAD].contains(method) {
            return Err(Refusal::Unsupported);
        }
        let path = path.strip_prefix("/v2").ok_or(Refusal::NoSuchPage)?;
        if path.is_empty() || path == "/" {
            return Ok(answer(StatusCode::OK, "application/json", "{}"));
        }
        // A repository's name has slashes, but what follows it has none.
        let (rest, reference) = path.rsplit_once('/').ok_or(Refusal::NoSuchPage)?;
        let (name, kind) = rest.rsplit_once('/').ok_or(Refusal::NoSuchPage)?;
        let name = name.strip_prefix('/').ok_or(Refusal::NoSuchPage)?;
        let mut images = self
            .images
            .iter()
            .filter(|image| image.repository() == name)
            .peekable();
        if images.peek().is_none() {
            return Err(Refusal::NameUnknown);
        }
        match kind {
            "manifests" => images
                .find_map(|image| image.manifest(reference))
                .ok_or(Refusal::ManifestUnknown),
            "blobs" => images
                .find_map(|image| image.blob(reference))
                .ok_or(Refusal::BlobUnknown),
            _ => Err(Refusal::NoSuchPage),
        }
        .map(whole)
    }
}

fn whole(blob: &Blob) -> Answer {
    let mut answer = answer(StatusCode::OK, blob.media_type, blob.bytes.clone());
    if let Ok(digest) = blob.digest.parse() {
        answer.headers_mut().insert("docker-content-digest", digest);
    }
    answer
}

enum Refusal {
    Unauthorized,
    /// No registry has it.
    NoSuchPage,
    Unsupported,
    NameUnknown,
    ManifestUnknown,
    BlobUnknown,
}

impl Refusal {
    fn answer(&self) -> Answer {
        let (status, code, message) = match self {
            Self::Unauthorized => (
                StatusCode::UNAUTHORIZED,
                "UNAUTHORIZED",
                "user name and password are required",
            ),
            Self::NoSuchPage => (
                StatusCode::NOT_FOUND,
                "UNSUPPORTED",
                "this is not part of a registry",
            ),
            Self::Unsupported => (
                StatusCode::METHOD_NOT_ALLOWED,
                "UNSUPPORTED",
                "this registry is read-only",
            ),
            Self::NameUnknown => (
                StatusCode::NOT_FOUND,
                "NAME_UNKNOWN",
                "repository name not known to registry",
            ),
            Self::ManifestUnknown => (
                StatusCode::NOT_FOUND,
                "MANIFEST_UNKNOWN",
                "manifest unknown to registry",
            ),
            Self::BlobUnknown => (StatusCode::NOT_FOUND, "BLOB_UNKNOWN", "blob unknown to registry"),
        };
        let body = json!({ "errors": [{ "code": code, "message": message }] });
        let mut answer = answer(status, "application/json", body.to_string());
        if matches!(self, Self::Unauthorized) {
            let challenge = HeaderValue::from_static("Basic realm=\"registry\"");
            answer.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::net::Ipv4Addr;
    use std::path::Path;

    use flate2::read::GzDecoder;
    use serde_json::Value;
    use sha2::{Digest, Sha256};
    use tempfile::TempDir;

    use super::*;
    use crate::serve::curl;

    const US: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const BINARY: &[u8] = b"\x7fELF, as far as anybody here can tell";

    fn image(directory: &Path, tag: &str, arguments: &[&str]) -> Image {
        let binary = directory.join("node-test");
        fs::write(&binary, BINARY).unwrap();
        Image::from_binary("osm/node-test", tag, &binary, arguments).unwrap()
    }

    /// Status, headers (lower case) and body.
    fn get(url: &str, arguments: &[&str]) -> (u16, String, Vec<u8>) {
        let directory = TempDir::new().unwrap();
        let (head, body) = (directory.path().join("head"), directory.path().join("body"));
        let mut all = vec![
            "--no-fail",
            "--dump-header",
            head.to_str().unwrap(),
            "--output",
            body.to_str().unwrap(),
        ];
        all.extend(["--write-out", "%{http_code}", url]);
        all.extend(arguments);
        let status = String::from_utf8(curl::get(&all)).unwrap().parse().unwrap();
        let head = fs::read_to_string(head).unwrap().to_lowercase();
        (status, head, fs::read(body).unwrap_or_default())
    }

    fn digest(bytes: &[u8]) -> String {
        format!("sha256:{:x}", Sha256::digest(bytes))
    }

    #[test]
    fn an_image_can_be_pulled_by_tag_and_by_digest() {
        let directory = TempDir::new().unwrap();
        let images = [
            image(directory.path(), "1", &["serve"]),
            image(directory.path(), "2", &["resolv"]),
        ];
        let (first, second) = (images[0].digest().to_owned(), images[1].digest().to_owned());
        assert_ne!(first, second);
        let registry = Registry::start((US, 0).into(), images).unwrap();
        let base = format!("{}/v2", registry.url());
        assert_eq!(get(&base, &[]).0, 200);
        assert_eq!(get(&format!("{base}/"), &[]).0, 200);

        let by_tag = format!("{base}/osm/node-test/manifests/1?ns=registry.example.com");
        let (status, head, _) = get(&by_tag, &["--head"]);
        assert_eq!(status, 200);
        let (status, same_head, manifest) = get(&by_tag, &[]);
        assert_eq!((status, digest(&manifest)), (200, first.clone()));
        for head in [head, same_head] {
            assert!(
                head.contains(&format!("docker-content-digest: {first}\r\n")),
                "{head}"
            );
            assert!(
                head.contains("content-type: application/vnd.oci.image.manifest.v1+json\r\n"),
                "{head}"
            );
            assert!(
                head.contains(&format!("content-length: {}\r\n", manifest.len())),
                "{head}"
            );
        }
        assert_eq!(
            get(&format!("{base}/osm/node-test/manifests/{first}"), &[]).2,
            manifest
        );
        let other = get(&format!("{base}/osm/node-test/manifests/{second}"), &[]).2;
        assert_eq!(digest(&other), second);

        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        let blob = |descriptor: &Value| {
            let wanted = descriptor["digest"].as_str().unwrap();
            let (status, head, bytes) = get(&format!("{base}/osm/node-test/blobs/{wanted}"), &[]);
            assert_eq!((status, digest(&bytes).as_str()), (200, wanted));
            assert_eq!(descriptor["size"], bytes.len());
            assert!(
                head.contains(&format!("docker-content-digest: {wanted}\r\n")),
                "{head}"
            );
            assert!(
                head.contains(&format!(
                    "content-type: {}\r\n",
                    descriptor["mediaType"].as_str().unwrap()
                )),
                "{head}"
            );
            bytes
        };
        assert_eq!(manifest["layers"].as_array().unwrap().len(), 1);
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        let mut layer = Vec::new();
        GzDecoder::new(blob(&manifest["layers"][0]).as_slice())
            .read_to_end(&mut layer)
            .unwrap();

        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        assert_eq!(config["os"], "linux");
        let architecture = if cfg!(target_arch = "aarch64") {
            "arm64"
        } else {
            "amd64"
        };
        assert_eq!(config["architecture"], architecture);
        assert_eq!(config["config"]["Entrypoint"], json!(["/bin/node-test"]));
        assert_eq!(config["config"]["Cmd"], json!(["serve"]));
        assert!(config["config"]["Env"][0].as_str().unwrap().ends_with(":/bin"));

        let mut archive = tar::Archive::new(layer.as_slice());
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let header = entry.header();
            assert_eq!(
                (
                    header.uid().unwrap(),
                    header.gid().unwrap(),
                    header.mtime().unwrap()
                ),
                (0, 0, 0)
            );
            (
                entry.path().unwrap().display().to_string(),
                header.mode().unwrap(),
                content,
            )
        });
        let expected = [
            ("bin/".to_owned(), 0o755, Vec::new()),
            ("bin/node-test".to_owned(), 0o755, BINARY.to_vec()),
        ];
        assert_eq!(entries.collect::<Vec<_>>(), expected);

        let request = registry
            .requests()
            .into_iter()
            .find(|request| request.method == "HEAD")
            .unwrap();
        assert_eq!(
            (request.path.as_str(), request.status),
            ("/v2/osm/node-test/manifests/1", 200),
            "no query"
        );
    }

    #[test]
    fn with_a_login_only_who_gives_it_gets_anything() {
        let directory = TempDir::new().unwrap();
        let password = r#"it's "so" \ secret"#.to_owned();
        let login = Login {
            username: "node".to_owned(),
            password: password.clone(),
        };
        let images = [image(directory.path(), "1", &[])];
        let registry = Registry::start_at(&[(US, 0).into()], images, Some(login)).unwrap();
        let manifest = format!("{}/v2/osm/node-test/manifests/1", registry.url());
        let (status, head, _) = get(&manifest, &[]);
        assert_eq!(status, 401);
        assert!(
            head.contains("www-authenticate: basic realm=\"registry\"\r\n"),
            "{head}"
        );
        assert_eq!(get(&manifest, &["--user", "node:another"]).0, 401);
        assert_eq!(get(&manifest, &["--user", &format!("node:{password}")]).0, 200);
        assert!(!format!("{registry:?}").contains("secret"));
    }

    #[test]
    fn the_same_binary_makes_the_same_image() {
        let (here, there) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        let (one, two) = (
            image(here.path(), "1", &["serve"]),
            image(there.path(), "1", &["serve"]),
        );
        assert_eq!(one.digest(), two.digest());
        let error = Image::from_binary("a", "b", Path::new("/nonexistent/binary"), &[]).unwrap_err();
        assert!(format!("{error:#}").contains("/nonexistent/binary"), "{error:#}");
    }

    #[test]
    fn what_is_not_there_is_an_error_in_the_registry_s_terms() {
        let directory = TempDir::new().unwrap();
        let image = image(directory.path(), "1", &[]);
        let manifest = image.digest().to_owned();
        let registry = Registry::start((US, 0).into(), [image]).unwrap();
        for (path, code) in [
            ("/v2/osm/node-test/manifests/2", "MANIFEST_UNKNOWN"),
            (
                &format!("/v2/osm/node-test/manifests/{}", digest(b"")),
                "MANIFEST_UNKNOWN",
            ),
            (&format!("/v2/osm/node-test/blobs/{manifest}"), "BLOB_UNKNOWN"),
            ("/v2/node-test/manifests/1", "NAME_UNKNOWN"),
            ("/v2/manifests/1", "UNSUPPORTED"),
            ("/v2/osm/node-test/tags/list", "UNSUPPORTED"),
            ("/v1/search", "UNSUPPORTED"),
        ] {
            let (status, head, body) = get(&format!("{}{path}", registry.url()), &[]);
            let body: Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(
                (status, &body["errors"][0]["code"]),
                (404, &json!(code)),
                "{path}"
            );
            assert!(head.contains("content-type: application/json\r\n"), "{head}");
        }
        let push = format!("{}/v2/osm/node-test/manifests/1", registry.url());
        assert_eq!(get(&push, &["--request", "PUT", "--data", "{}"]).0, 405);
    }
}
