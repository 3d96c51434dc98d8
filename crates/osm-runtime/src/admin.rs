//! `/livez`, `/readyz` and `/metrics`.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use axum::http::{StatusCode, header};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::{Metrics, Readiness};

/// Serves until shutdown, in a task of its own, and returns the address that it listens on.
///
/// `/livez` answers as long as the process can. `/readyz` has one line for each thing that readiness waits for.
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
    let (draining, stop) = (shutdown.clone(), shutdown.clone());
    let ready = move || async move {
        let mut waiting = readiness.waiting();
        if draining.is_cancelled() {
            waiting.push("shutting down".to_owned());
        }
        if waiting.is_empty() {
            (StatusCode::OK, "ok\n".to_owned())
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, waiting.join("\n") + "\n")
        }
    };
    let measured = move || async move {
        (
            [(header::CONTENT_TYPE, "text/plain; version=0.0.4")],
            metrics.encode(),
        )
    };
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(measured));
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await
        {
            tracing::error!(%error, "the admin server stopped unexpectedly");
        }
    });
    tracing::info!(%address, "serving /livez, /readyz and /metrics");
    Ok(address)
}
