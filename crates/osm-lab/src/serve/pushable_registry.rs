//! An image registry over TLS that accepts pushes. It implements as much of the OCI distribution specification as skopeo and Helm use.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Uri};
use http_body_util::BodyExt;
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::relay::Identity;
use super::{Answer, Asked, Log, Server, answer, serve_http};

/// Its name, which the certificate has.
const HOST: &str = "localhost";

/// Of what is no manifest.
const BLOB: &str = "application/octet-stream";

/// A running registry, empty at first, which keeps everything in memory. Dropping it ends it.
#[derive(Debug)]
pub struct PushableRegistry {
    server: Server,
    ca: String,
}

#[derive(Debug, Default)]
struct Content {
    /// Repository and digest or tag → media type and bytes.
    stored: BTreeMap<(String, String), (String, Bytes)>,
    /// What has arrived of each upload.
    uploads: Vec<Vec<u8>>,
}

impl PushableRegistry {
    /// On a free port of loopback.
    ///
    /// # Errors
    /// When none can be listened on.
    pub fn start() -> Result<Self> {
        let (ca, identities) = Identity::of_hosts(&[HOST.to_owned()])?;
        let acceptors = identities
            .iter()
            .map(Identity::acceptor)
            .collect::<Result<Vec<_>>>()?;
        let content = Arc::new(Mutex::new(Content::default()));
        let log = Log::default();
        let server = Server::start(
            &[SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
            move |stream, client| {
                let (content, acceptor, log) = (content.clone(), acceptors.first().cloned(), log.clone());
                async move {
                    let Some(acceptor) = acceptor else { return };
                    match acceptor.accept(stream).await {
                        Ok(stream) => {
                            serve_http(stream, client, &log, |request| reply(content.clone(), request)).await;
                        }
                        Err(error) => tracing::debug!(%client, %error, "TLS"),
                    }
                }
            },
        )?;
        Ok(Self { server, ca })
    }

    /// `<host>:<port>`, as images' names begin with it.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{HOST}:{}", self.server.address.port())
    }

    /// The certificate of the CA that vouches for it, PEM.
    #[must_use]
    pub fn ca(&self) -> &str {
        &self.ca
    }
}

async fn reply(content: Arc<Mutex<Content>>, request: Asked) -> Answer {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return status(StatusCode::BAD_REQUEST);
    };
    let media_type = head
        .headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or(BLOB);
    content
        .lock()
        .reply(&head.method, &head.uri, media_type, body.to_bytes())
}

impl Content {
    fn reply(&mut self, method: &Method, uri: &Uri, media_type: &str, body: Bytes) -> Answer {
        let Some(path) = uri.path().strip_prefix("/v2/") else {
            return status(StatusCode::NOT_FOUND);
        };
        if path.is_empty() {
            return answer(StatusCode::OK, "application/json", "{}");
        }
        if let Some(repository) = path.strip_suffix("/tags/list") {
            return self.tags(repository);
        }
        if let Some((repository, upload)) = path.split_once("/blobs/uploads/") {
            return self.upload(method, repository, upload, uri, body);
        }
        let Some((repository, reference)) = path
            .split_once("/blobs/")
            .or_else(|| path.split_once("/manifests/"))
        else {
            return status(StatusCode::NOT_FOUND);
        };
        match *method {
            Method::GET | Method::HEAD => self.get(repository, reference),
            Method::PUT if path.contains("/manifests/") => {
                let digest = digest(&body);
                for name in [reference, &digest] {
                    self.store(repository, name, media_type, body.clone());
                }
                with_digest(status(StatusCode::CREATED), &digest)
            }
            _ => status(StatusCode::METHOD_NOT_ALLOWED),
        }
    }

    fn store(&mut self, repository: &str, reference: &str, media_type: &str, bytes: Bytes) {
        self.stored.insert(
            (repository.to_owned(), reference.to_owned()),
            (media_type.to_owned(), bytes),
        );
    }

    fn get(&self, repository: &str, reference: &str) -> Answer {
        let found = self.stored.get(&(repository.to_owned(), reference.to_owned()));
        let Some((media_type, bytes)) = found else {
            return status(StatusCode::NOT_FOUND);
        };
        with_digest(answer(StatusCode::OK, media_type, bytes.clone()), &digest(bytes))
    }

    fn tags(&self, repository: &str) -> Answer {
        let of_this = self.stored.keys().filter(|(name, _)| name == repository);
        let tags: Vec<_> = of_this
            .map(|(_, reference)| reference)
            .filter(|name| !name.contains(':'))
            .collect();
        answer(
            StatusCode::OK,
            "application/json",
            json!({"name": repository, "tags": tags}).to_string(),
        )
    }

    /// A blob arrives: begun by POST, continued by PATCH, ended by PUT, which says what digest it must have.
    fn upload(&mut self, method: &Method, repository: &str, upload: &str, uri: &Uri, body: Bytes) -> Answer {
        if *method == Method::POST {
            self.uploads.push(body.to_vec());
            return accepted(repository, self.uploads.len() - 1);
        }
        let number = upload.parse::<usize>();
        let arrived = number
            .as_ref()
            .ok()
            .and_then(|number| self.uploads.get_mut(*number));
        let (Ok(number), Some(arrived)) = (number, arrived) else {
            return status(StatusCode::NOT_FOUND);
        };
        arrived.extend_from_slice(&body);
        if *method == Method::PATCH {
            return accepted(repository, number);
        }
        let bytes = Bytes::from(std::mem::take(arrived));
        let digest = digest(&bytes);
        let mut query = uri.query().unwrap_or_default().split('&');
        let wanted = query
            .find_map(|pair| pair.strip_prefix("digest="))
            .unwrap_or_default();
        if percent_decode_str(wanted).decode_utf8_lossy() != digest {
            return status(StatusCode::BAD_REQUEST);
        }
        self.store(repository, &digest, BLOB, bytes);
        with_digest(status(StatusCode::CREATED), &digest)
    }
}

fn status(code: StatusCode) -> Answer {
    answer(code, "application/json", "{}")
}

fn accepted(repository: &str, upload: usize) -> Answer {
    let mut answer = status(StatusCode::ACCEPTED);
    if let Ok(location) = format!("/v2/{repository}/blobs/uploads/{upload}").parse() {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

fn with_digest(mut answer: Answer, digest: &str) -> Answer {
    if let Ok(digest) = HeaderValue::from_str(digest) {
        answer.headers_mut().insert("docker-content-digest", digest);
    }
    answer
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_damaged_is_not_kept() {
        let mut content = Content::default();
        let mut ask = |method: Method, path: &str, body: &'static str| {
            let uri: Uri = path.parse().unwrap();
            content
                .reply(&method, &uri, BLOB, Bytes::from_static(body.as_bytes()))
                .status()
                .as_u16()
        };
        let (good, uploads) = (digest(b"whole").replace(':', "%3A"), "/v2/a/b/blobs/uploads");
        let blob = format!("/v2/a/b/blobs/{}", digest(b"whole"));
        assert_eq!(ask(Method::POST, &format!("{uploads}/"), ""), 202);
        assert_eq!(ask(Method::PATCH, &format!("{uploads}/0"), "wh"), 202);
        assert_eq!(ask(Method::PUT, &format!("{uploads}/0?digest={good}"), ""), 400);
        assert_eq!(ask(Method::HEAD, &blob, ""), 404);
        assert_eq!(ask(Method::PATCH, &format!("{uploads}/0"), "wh"), 202);
        assert_eq!(
            ask(Method::PUT, &format!("{uploads}/0?digest={good}"), "ole"),
            201
        );
        assert_eq!(ask(Method::HEAD, &blob, ""), 200);
        assert_eq!(ask(Method::PUT, "/v2/a/b/manifests/1", "{}"), 201);
        assert_eq!(
            ask(Method::GET, &format!("/v2/a/b/manifests/{}", digest(b"{}")), ""),
            200
        );
        assert_eq!(ask(Method::PATCH, &format!("{uploads}/7"), ""), 404);
    }
}
