//! A server in the place of an admission webhook.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server that runs until the test ends.
pub struct WebhookServer {
    address: SocketAddr,
    /// PEM.
    certificate: String,
}

impl WebhookServer {
    /// A server whose certificate has this name. It allows everything while `answers` says so, and hangs up
    /// otherwise.
    pub async fn start<A>(name: &str, answers: impl Fn() -> A + Send + Sync + 'static) -> Result<Self>
    where
        A: Future<Output = bool> + Send + 'static,
    {
        let identity = rcgen::generate_simple_self_signed([name.to_owned()])?;
        let key =
            PrivateKeyDer::try_from(identity.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
        let tls = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![identity.cert.der().clone()], key)?;
        let (tls, answers) = (TlsAcceptor::from(Arc::new(tls)), Arc::new(answers));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answers) = (tls.clone(), answers.clone());
                // A client may hang up at any time.
                tokio::spawn(async move {
                    let stream = TokioIo::new(tls.accept(stream).await?);
                    let service = service_fn(|request| allow(request, answers()));
                    http1::Builder::new().serve_connection(stream, service).await?;
                    anyhow::Ok(())
                });
            }
        });
        let certificate = identity.cert.pem();
        Ok(Self { address, certificate })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The certificate, encoded as in a webhook configuration.
    pub fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.certificate)
    }
}

async fn allow(
    request: Request<Incoming>,
    answers: impl Future<Output = bool>,
) -> Result<Response<Full<Bytes>>> {
    anyhow::ensure!(answers.await, "no pod");
    let sent = request.into_body().collect().await?.to_bytes();
    let review: Value = serde_json::from_slice(&sent)?;
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true}});
    let answer = Full::new(Bytes::from(answer.to_string()));
    Ok(Response::builder()
        .header("content-type", "application/json")
        .body(answer)?)
}
