//! The frame of a service: flags → telemetry → admin server → connections → controller → shutdown.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use osm_api::rbac::{ClusterKind, Installation, Service};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::CommonArgs;
use crate::client::Observe;
use crate::cluster::Cluster;
use crate::connection::Connection;
use crate::connection_role::ConnectionRole;
use crate::controller::Controller;
use crate::environment::Environment;
use crate::fleet::{self, FleetArgs};
use crate::process::Process;
use crate::readiness::Gate;
use crate::replicas::Replicas;
use crate::scope::Scope;
use crate::{admin, definitions, error, kubeconfig, rights, settings, settings_watch, telemetry};

/// That of the C library keeps most of what was freed after a change of many pools. `.cargo/config.toml` has the
/// settings that are compiled into this one.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How long the reconciles that run may take to finish. It is less than the 30 seconds that Kubernetes leaves
/// after SIGTERM.
const FINISH_WITHIN: Duration = Duration::from_secs(25);

/// Runs a service until SIGTERM or SIGINT.
pub fn main<F, Fut>(service: Service, args: CommonArgs, installation: Installation, run: F) -> ExitCode
where
    F: FnOnce(Cluster) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let serve = async {
        telemetry::init(&args)?;
        allow_files();
        // This can only fail if the provider was installed before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let process = Process::new(service, args, Environment::default())?;
        let shutdown = process.shutdown.clone();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tracing::info!(
            service = service.name(),
            version = env!("CARGO_PKG_VERSION"),
            namespace = process.args.namespace,
            "starting"
        );
        // It opens once the connections exist, with the gates of settings, definitions and rights. The gates
        // of watches are added when the controller runs.
        let start = process.readiness.gate("start");
        let listen = process.args.listen;
        admin::spawn(listen, &process.readiness, &process.metrics, &shutdown)?;
        // In a box, because the stack would hold a copy for each function that it passes through.
        let work = Box::pin(work(process, start, installation, run));
        let signal = async {
            tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        until_stopped(work, signal, &shutdown).await
    };
    match block_on(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {}", service.name(), error::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Runs a service that serves clusters, see [`main`]: one, or with `--fleet` all of a seed.
pub fn serve<C: Controller>(
    service: Service,
    args: CommonArgs,
    fleet: FleetArgs,
    mut installation: Installation,
) -> ExitCode {
    installation.fleet = fleet.fleet;
    main(service, args, installation, async move |of: Cluster| {
        if fleet.fleet {
            Ok(fleet::run::<C>(of, &fleet).await?)
        } else {
            serve_only::<C>(of).await
        }
    })
}

/// Serves the only cluster of a process until shutdown.
///
/// # Errors
/// Metrics whose names are taken.
pub async fn serve_only<C: Controller>(cluster: Cluster) -> anyhow::Result<()> {
    C::start(&cluster)?.serve(cluster).await;
    Ok(())
}

/// Raises the limit of open files as far as the system allows. It is 1,024 where nobody has raised it, and a fleet has
/// a connection to each cluster.
fn allow_files() {
    let limits = getrlimit(Resource::Nofile);
    let current = limits.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current, ..limits }) {
        tracing::warn!(%error, "the limit of open files can't be raised");
    }
}

/// Does the work. Threads that still run then are not waited for: one that never ends must not keep the
/// process alive.
fn block_on(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        // A service mostly waits, so two threads are enough.
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// Connects, opens the gate `start`, and runs the controller. The demo runs all services in its own process.
///
/// # Errors
/// A kubeconfig that can't be used, or an error of the controller.
pub async fn work<F, Fut>(
    process: Arc<Process>,
    start: Gate,
    installation: Installation,
    run: F,
) -> anyhow::Result<()>
where
    F: FnOnce(Cluster) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let cluster = connect(&process, installation.fleet).await?;
    let scope = Scope::of(&process);
    let mut settings = settings::none();
    if process.service.reads_settings() {
        settings = settings_watch::spawn(&scope, &cluster, &installation);
        definitions::spawn(&scope, &cluster, &installation);
    }
    rights::spawn(&scope, &cluster, &installation);
    let member = Replicas::watch(&scope, &cluster, &installation);
    start.open();
    let replicas = member.replicas().clone();
    run(Cluster::new(
        scope,
        installation,
        [cluster.clone(), cluster],
        settings,
        replicas,
    ))
    .await?;
    member.leave().await;
    Ok(())
}

/// Works until a signal or until a task has failed, and until what runs then is finished or has taken too
/// long.
async fn until_stopped(
    work: impl Future<Output = anyhow::Result<()>>,
    signal: impl Future<Output = &'static str>,
    shutdown: &CancellationToken,
) -> anyhow::Result<()> {
    tokio::pin!(work);
    let first = tokio::select! {
        biased;
        outcome = &mut work => return outcome,
        signal = signal => signal,
        () = shutdown.cancelled() => "a restart is due",
    };
    let stop = async {
        tracing::info!("{first}: finishing the reconciles that run");
        shutdown.cancel();
        tokio::time::sleep(FINISH_WITHIN).await;
        tracing::warn!(limit = ?FINISH_WITHIN, "some reconciles did not finish in time");
        Ok(())
    };
    tokio::select! {
        outcome = &mut work => outcome,
        outcome = stop => outcome,
    }
}

/// Connects to the only cluster, or to the seed of a fleet, whose user clusters are connected to later.
async fn connect(process: &Process, fleet: bool) -> anyhow::Result<Connection> {
    let role = if fleet {
        ConnectionRole::Of(ClusterKind::Management)
    } else {
        ConnectionRole::Only
    };
    let (config, transports) = kubeconfig::own(&process.args, process.service).await?;
    let observe = Observe::new(process, role);
    Ok(Connection::new(process.service, observe, config, transports))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// Returns how long the service took to stop, whose work ends so long after the shutdown.
    async fn stops_after(shutdown: &CancellationToken, last: Duration) -> Duration {
        const SIGNAL: Duration = Duration::from_secs(1);
        let work = async {
            shutdown.cancelled().await;
            tokio::time::sleep(last).await;
            Ok(())
        };
        let signal = async {
            tokio::time::sleep(SIGNAL).await;
            "SIGTERM"
        };
        let began = Instant::now();
        until_stopped(work, signal, shutdown).await.unwrap();
        began.elapsed() - SIGNAL
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_finishes_what_runs_unless_that_takes_too_long() {
        const LAST: Duration = Duration::from_secs(3);
        const NEVER: Duration = Duration::from_hours(1);
        assert_eq!(stops_after(&CancellationToken::new(), LAST).await, LAST);
        // A reconcile that never ends is not waited for, and neither is one after a task has failed.
        assert_eq!(stops_after(&CancellationToken::new(), NEVER).await, FINISH_WITHIN);
        let shutdown = CancellationToken::new();
        shutdown.cancel();
        let (began, hangs) = (Instant::now(), std::future::pending());
        until_stopped(hangs, std::future::pending(), &shutdown)
            .await
            .unwrap();
        assert_eq!(began.elapsed(), FINISH_WITHIN);
    }

    #[test]
    fn a_thread_that_never_ends_does_not_keep_the_process_alive() {
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let work = async {
            tokio::task::spawn_blocking(move || ends.recv());
            Ok(())
        };
        block_on(work).unwrap();
        // It would have ended the thread only now.
        drop(end);
    }

    #[test]
    fn the_limit_of_open_files_is_raised_as_far_as_it_may() {
        let before = getrlimit(Resource::Nofile);
        let low = Rlimit {
            current: Some(512),
            ..before
        };
        setrlimit(Resource::Nofile, low).unwrap();
        allow_files();
        assert_eq!(getrlimit(Resource::Nofile).current, before.maximum);
    }
}
