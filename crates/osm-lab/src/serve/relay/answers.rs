//! The answers of a relay that terminates TLS itself.

use std::net::IpAddr;
use std::time::SystemTime;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, stream};
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING, UPGRADE};
use http_body_util::{BodyExt, BodyStream, StreamBody};
use hyper::StatusCode;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use osm_api::{gzip, names};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::{Mode, Request, Shared};
use crate::serve::{Answer, Asked, answer, status_code, whole};

const GARBAGE: &str = "%%% this is not what you asked for %%%\n";

impl Shared {
    pub(super) async fn answer(
        &self,
        client: IpAddr,
        mode: Mode,
        modes: watch::Receiver<Mode>,
        request: Asked,
    ) -> Answer {
        let index = self.note(client, mode, &request);
        let answer = match mode {
            Mode::Impostor => Ok(answer(StatusCode::OK, "application/json", GARBAGE)),
            Mode::Status(number) => Ok(status(status_code(number), "so the relay was told")),
            Mode::FlippedBit => self.with_flipped_bit(request).await,
            Mode::Held => self.held(request, modes).await,
            Mode::Pass | Mode::Refuse | Mode::Silent => self.forward(request).await,
        };
        let answer = answer.unwrap_or_else(|error| {
            tracing::warn!(%client, ?mode, error = format!("{error:#}"), "nothing to relay");
            status(StatusCode::BAD_GATEWAY, &format!("{error:#}"))
        });
        if let Some(request) = self.requests.lock().get_mut(index) {
            request.status = Some(answer.status().as_u16());
        }
        answer
    }

    fn note(&self, client: IpAddr, mode: Mode, request: &Asked) -> usize {
        let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
        let mut requests = self.requests.lock();
        requests.push(Request {
            client,
            mode,
            started: SystemTime::now(),
            method,
            path,
            status: None,
        });
        requests.len() - 1
    }

    /// Asks the API server, on a connection for this one request.
    async fn forward(&self, mut request: Asked) -> Result<Answer> {
        let stream = TcpStream::connect(self.upstream)
            .await
            .with_context(|| self.upstream.to_string())?;
        let name = ServerName::from(self.upstream.ip());
        let stream = self
            .connector
            .connect(name, stream)
            .await
            .context("TLS with the API server")?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends when the answer has been read, or nobody wants it any more.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the API server");
            }
        });
        without_connection_headers(request.headers_mut());
        let mut answer = sender
            .send_request(request)
            .await
            .context("the API server's answer")?;
        without_connection_headers(answer.headers_mut());
        Ok(answer.map(|body| body.map_err(Into::into).boxed_unsync()))
    }

    async fn with_flipped_bit(&self, mut request: Asked) -> Result<Answer> {
        // What is compressed can't be read here.
        request.headers_mut().remove(ACCEPT_ENCODING);
        // A watch is never complete.
        let watch = request
            .uri()
            .query()
            .is_some_and(|query| query.split('&').any(|pair| pair.starts_with("watch")));
        let answer = self.forward(request).await?;
        let content_type = answer
            .headers()
            .get(CONTENT_TYPE)
            .map_or(&[][..], http::HeaderValue::as_bytes);
        if watch || answer.status() != StatusCode::OK || !content_type.starts_with(b"application/json") {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let body = body
            .collect()
            .await
            .map_err(anyhow::Error::from_boxed)?
            .to_bytes();
        let body = flip(&body).map_or(body, Bytes::from);
        Ok(Answer::from_parts(head, whole(body)))
    }

    /// Takes the answer in, and gives it when the mode changes.
    async fn held(&self, request: Asked, mut modes: watch::Receiver<Mode>) -> Result<Answer> {
        let (head, mut body) = self.forward(request).await?.into_parts();
        let mut held = Vec::new();
        let taking_in = async {
            while let Some(frame) = body.frame().await {
                held.push(frame);
            }
            std::future::pending().await
        };
        tokio::select! {
            () = taking_in => {}
            _ = modes.changed() => {}
        }
        let body = stream::iter(held).chain(BodyStream::new(body));
        Ok(Answer::from_parts(head, StreamBody::new(body).boxed_unsync()))
    }
}

/// They speak of one connection, and there are two of them.
fn without_connection_headers(headers: &mut HeaderMap) {
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(name);
    }
}

/// Most bytes of a document.
const MAX_DOCUMENT: usize = 4 << 20;

/// The same text but for one bit in the middle of the document, if there is one. A compressed document is compressed again.
fn flip(body: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(body).ok()?;
    let object: Value = serde_json::from_str(text).ok()?;
    let data = object.get("data")?;
    let of = |key| Some((key, data.get(key)?.as_str()?));
    let (key, encoded) = of(names::CLOUD_CONFIG_GZIP_KEY).or_else(|| of(names::CLOUD_CONFIG_KEY))?;
    let bytes = STANDARD.decode(encoded).ok()?;
    let is_compressed = key == names::CLOUD_CONFIG_GZIP_KEY;
    let mut document = match is_compressed {
        true => gzip::unpack(&bytes, MAX_DOCUMENT).ok()?.into_bytes(),
        false => bytes,
    };
    let middle = document.len() / 2;
    *document.get_mut(middle)? ^= 1;
    let altered = match is_compressed {
        true => gzip::USUAL.base64(std::str::from_utf8(&document).ok()?),
        false => STANDARD.encode(document),
    };
    Some(text.replace(encoded, &altered).into_bytes())
}

/// What an API server says when it refuses.
fn status(status: StatusCode, message: &str) -> Answer {
    let reason = match status {
        StatusCode::INTERNAL_SERVER_ERROR => "InternalError".to_owned(),
        StatusCode::GATEWAY_TIMEOUT => "Timeout".to_owned(),
        other => other.canonical_reason().unwrap_or_default().replace(' ', ""),
    };
    let object = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status.as_u16(),
    });
    answer(status, "application/json", object.to_string())
}
