//! The frame of a service: flags → telemetry → client → admin server → controller → shutdown.

use std::future::Future;
use std::process::ExitCode;

use osm_api::rbac::{Installation, Service};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::events::Events;
use crate::{CommonArgs, Metrics, Readiness, admin, client, request, rights, settings, telemetry};

/// What a controller gets to work with.
#[derive(Clone)]
pub struct Context {
    /// Which service this is.
    pub service: Service,
    /// Flags.
    pub args: CommonArgs,
    /// What is particular to this installation.
    pub installation: Installation,
    /// Connection to the API server.
    pub client: kube::Client,
    /// How that connection is made; for further clients.
    pub config: kube::Config,
    /// Metrics.
    pub metrics: Metrics,
    /// Readiness.
    pub readiness: Readiness,
    /// Events.
    pub events: Events,
    /// Cancelled when the service is to stop.
    pub shutdown: CancellationToken,
}

/// Runs a service until SIGTERM or SIGINT. Two threads do: the work is waiting.
pub fn main<F, Fut>(service: Service, args: CommonArgs, installation: Installation, run: F) -> ExitCode
where
    F: FnOnce(Context, settings::Receiver) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(serve(service, args, installation, run)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {}", service.name(), request::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn serve<F, Fut>(
    service: Service,
    args: CommonArgs,
    installation: Installation,
    run: F,
) -> anyhow::Result<()>
where
    F: FnOnce(Context, settings::Receiver) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    telemetry::init(&args)?;
    // Only an earlier call in this process could make this fail.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let metrics = Metrics::new()?;
    let config = client::config(&args).await?;
    let client = client::connect(config.clone(), &metrics, args.request_timeout())?;
    let context = Context {
        service,
        installation,
        events: Events::new(client.clone(), service),
        client,
        config,
        metrics,
        readiness: Readiness::default(),
        shutdown: CancellationToken::new(),
        args,
    };
    tracing::info!(
        service = service.name(),
        version = env!("CARGO_PKG_VERSION"),
        namespace = context.args.namespace,
        "starting"
    );
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    admin::spawn(&context).await?;
    rights::spawn(&context);
    let settings = settings::spawn(&context);
    let shutdown = context.shutdown.clone();
    let work = run(context, settings);
    tokio::pin!(work);
    tokio::select! {
        outcome = &mut work => return outcome,
        _ = terminate.recv() => tracing::info!("SIGTERM: finishing what is at work"),
        _ = interrupt.recv() => tracing::info!("SIGINT: finishing what is at work"),
    }
    shutdown.cancel();
    tokio::select! {
        outcome = &mut work => outcome,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
