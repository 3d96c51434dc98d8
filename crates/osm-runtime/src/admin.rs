//! `/livez`, `/readyz` and `/metrics`.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Metrics, Readiness};

/// Serves until the process ends, in a task of its own, and returns the address that it listens on.
///
/// `/livez` answers as long as the process can. `/readyz` has one line for each thing that readiness waits for, and `osm_ready` in `/metrics` is 1
/// when there is none. A service that stops is not ready.
///
/// # Errors
/// The address is not available.
pub async fn spawn(
    address: SocketAddr,
    readiness: &Readiness,
    metrics: &Metrics,
    shutdown: &CancellationToken,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("--listen {address}"))?;
    let address = listener.local_addr()?;
    let (readiness, metrics) = (readiness.clone(), metrics.clone());
    let shutdown = shutdown.clone();
    let waiting = move || {
        let mut waiting = readiness.waiting();
        if shutdown.is_cancelled() {
            waiting.push("shutting down".to_owned());
        }
        waiting
    };
    let waiting_now = waiting.clone();
    let ready = move || async move {
        let waiting = waiting();
        if waiting.is_empty() {
            (StatusCode::OK, "ok\n".to_owned())
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, waiting.join("\n") + "\n")
        }
    };
    let measured = move || async move {
        metrics.set_ready(waiting_now().is_empty());
        (
            [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
            metrics.encode(),
        )
    };
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(measured));
    tokio::spawn(axum::serve(listener, router).into_future());
    tracing::info!(%address, "serving /livez, /readyz and /metrics");
    Ok(address)
}

#[cfg(test)]
mod tests {

    use osm_api::rbac::Service;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_metric_of_readiness_is_what_readyz_answers() {
        let (readiness, metrics) = (Readiness::default(), Metrics::of(Service::SecretSyncer).unwrap());
        let shutdown = CancellationToken::new();
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let gate = readiness.gate("a watch");
        let address = spawn(address, &readiness, &metrics, &shutdown).await.unwrap();
        let is_ready = |answer: String, value: u8| {
            let line = format!("osm_ready{{component=\"secret-syncer\"}} {value}\n");
            assert!(answer.contains(&line), "{line} is not in {answer}");
        };
        assert!(get(address, "/readyz").await.contains("a watch: not yet"));
        is_ready(get(address, "/metrics").await, 0);
        gate.open();
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.0 200"));
        is_ready(get(address, "/metrics").await, 1);
        shutdown.cancel();
        let answer = get(address, "/readyz").await;
        assert!(
            answer.starts_with("HTTP/1.0 503") && answer.ends_with("\nshutting down\n"),
            "{answer}"
        );
        is_ready(get(address, "/metrics").await, 0);
    }
}
