//! `/livez`, `/readyz` and `/metrics`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::port::{Limits, Port};
use crate::readiness::Readiness;

/// A kubelet and some Prometheus servers need a few at the same time. Prometheus gives up after 10 s by
/// default.
const LIMITS: Limits = Limits {
    connections: 128,
    deadline: Duration::from_secs(10),
};

/// Serves until the process ends, in a task of its own, and returns the address that it listens on.
///
/// `/livez` answers as long as the process can. `/readyz` has one line for each thing that readiness waits
/// for, and `osm_ready` in `/metrics` is 1 when there is none. A service that stops is not ready.
///
/// # Errors
/// The address is not available.
pub fn spawn(
    address: SocketAddr,
    readiness: &Readiness,
    metrics: &Metrics,
    shutdown: &CancellationToken,
) -> anyhow::Result<SocketAddr> {
    spawn_within(LIMITS, address, readiness, metrics, shutdown)
}

fn spawn_within(
    limits: Limits,
    address: SocketAddr,
    readiness: &Readiness,
    metrics: &Metrics,
    shutdown: &CancellationToken,
) -> anyhow::Result<SocketAddr> {
    let port = Port::open(address, limits).with_context(|| format!("--listen {address}"))?;
    let address = port.address;
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
    let until_the_end = CancellationToken::new();
    tokio::spawn(port.serve(router, None, until_the_end));
    tracing::info!(%address, "serving /livez, /readyz and /metrics");
    Ok(address)
}

#[cfg(test)]
mod tests {

    use osm_api::rbac::Service;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;
    use crate::port::MAX_HEAD_BYTES;

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
        let address = spawn(address, &readiness, &metrics, &shutdown).unwrap();
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

    #[tokio::test]
    async fn connections_that_ask_nothing_or_read_nothing_end_and_hold_up_no_probe() {
        let (readiness, metrics) = (Readiness::default(), Metrics::of(Service::SecretSyncer).unwrap());
        let shutdown = CancellationToken::new();
        let serve = |deadline| {
            let limits = Limits {
                connections: 20,
                deadline,
            };
            let address = SocketAddr::from(([127, 0, 0, 1], 0));
            spawn_within(limits, address, &readiness, &metrics, &shutdown).unwrap()
        };
        // Here, a new connection ends the oldest. The deadline ends none.
        let address = serve(Duration::from_secs(3600));
        let mut idle = Vec::new();
        for number in 0..100 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // Half of them send a part of a request.
            if number % 2 == 0 {
                let part = b"GET /metrics HTTP/1.1\r\nHost: ";
                stream.write_all(part).await.unwrap();
            }
            idle.push(stream);
            let answer = get(address, "/livez").await;
            assert!(answer.starts_with("HTTP/1.0 200"), "{number}: {answer}");
        }
        let ended = async |streams: &mut [TcpStream]| {
            for stream in streams {
                // The end of the connection, with an answer to half a request or without.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        };
        ended(&mut idle[..80]).await;
        // Here, nothing but the deadline ends one.
        let address = serve(Duration::from_millis(200));
        ended(&mut [TcpStream::connect(address).await.unwrap()]).await;
    }

    #[tokio::test]
    async fn a_connection_ends_with_a_head_that_is_too_long_or_with_its_first_answer() {
        let (readiness, metrics) = (Readiness::default(), Metrics::of(Service::SecretSyncer).unwrap());
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let address = spawn(address, &readiness, &metrics, &CancellationToken::new()).unwrap();
        for (length, expected, ends) in [
            (MAX_HEAD_BYTES / 2, "HTTP/1.1 200 OK", "\r\n\r\n"),
            // A server that waits for the end of the head, or for the next one, does not end the connection.
            (MAX_HEAD_BYTES, "HTTP/1.1 431 ", ""),
        ] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let head = format!("GET /livez HTTP/1.1\r\nX: {}{ends}", "x".repeat(length));
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            tokio::time::timeout(LIMITS.deadline / 2, stream.read_to_string(&mut answer))
                .await
                .unwrap()
                .unwrap();
            assert!(answer.starts_with(expected), "{answer}");
            assert!(answer.contains("connection: close"), "{answer}");
        }
    }
}
