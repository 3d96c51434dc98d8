//! The frame of a service: flags → telemetry → admin server → connections → controller → shutdown.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use osm_api::rbac::{ClusterKind, Installation, Service};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::client::{Credentials, Observe};
use crate::connection_role::ConnectionRole;
use crate::kubeconfig::{self, Follower, Origin};
use crate::readiness::Gates;
use crate::{
    Cluster, CommonArgs, Connection, Connections, Environment, Metrics, Process, Readiness, admin,
    definitions, error, rights, settings_watch, telemetry,
};

/// How long a thread for blocking work waits for more of it.
const IDLE_THREAD: Duration = Duration::from_secs(1);

/// Runs a service until SIGTERM or SIGINT. `worker`: the kubeconfig of the worker cluster, if it is another cluster. A service that needs
/// only one of the clusters connects to that one by `--kubeconfig`. With `--home-namespace`, all connect to the home cluster as well.
pub fn main<F, Fut>(
    service: Service,
    args: CommonArgs,
    worker: Option<PathBuf>,
    installation: Installation,
    run: F,
) -> ExitCode
where
    F: FnOnce(Arc<Process>, Cluster) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    exit(service, serve(service, args, worker, installation, run))
}

/// Does one thing in the cluster of `--kubeconfig`, and exits.
pub fn once<F, Fut>(service: Service, args: CommonArgs, work: F) -> ExitCode
where
    F: FnOnce(Client) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    exit(service, async {
        telemetry::init(&args)?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let loaded = kubeconfig::load(&origin(&args, service), service, args.request_timeout()).await?;
        work(Client::try_from(loaded.config)?).await
    })
}

fn origin(args: &CommonArgs, service: Service) -> Origin {
    let is_foreign = args.home_namespace.is_some() || !service.clusters().contains(&ClusterKind::Management);
    args.kubeconfig
        .clone()
        .map_or(Origin::Inferred, |path| Origin::File {
            flag: "--kubeconfig",
            path,
            is_foreign,
        })
}

fn exit(service: Service, work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_multi_thread()
        // A service mostly waits, so two threads are enough.
        .worker_threads(2)
        // A thread that has rendered keeps its stack in memory, and more work may follow only after hours.
        .thread_keep_alive(IDLE_THREAD)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(work));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {}", service.name(), error::chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

async fn serve<F, Fut>(
    service: Service,
    args: CommonArgs,
    worker: Option<PathBuf>,
    installation: Installation,
    run: F,
) -> anyhow::Result<()>
where
    F: FnOnce(Arc<Process>, Cluster) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let filter = telemetry::init(&args)?;
    // This can only fail if the provider was installed before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let process = Arc::new(Process {
        service,
        args,
        environment: Environment::default(),
        metrics: Metrics::of(service)?,
        readiness: Readiness::default(),
        shutdown: CancellationToken::new(),
    });
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tracing::info!(
        service = service.name(),
        version = env!("CARGO_PKG_VERSION"),
        namespace = process.args.namespace,
        "starting"
    );
    // It opens once the connections exist, with the gates of settings, definitions and rights. The gates of watches are added when
    // the controller runs.
    let start = process.readiness.gate("start");
    admin::spawn(
        process.args.listen,
        &process.readiness,
        &process.metrics,
        &process.shutdown,
    )
    .await?;
    let stop = process.shutdown.clone();
    let work = async move {
        let gates = process.readiness.gates("");
        let Some(connections) = connect(&process, &gates, worker).await? else {
            return Ok(());
        };
        let (cluster, settings) = Cluster::new(&process, gates, installation, connections);
        if service.reads_settings() {
            filter.follow(&cluster);
            settings_watch::spawn(&cluster, settings);
            definitions::spawn(&cluster);
        }
        rights::spawn(&cluster);
        start.open();
        run(process, cluster).await
    };
    tokio::pin!(work);
    tokio::select! {
        outcome = &mut work => return outcome,
        _ = terminate.recv() => tracing::info!("SIGTERM: finishing the reconciles that run"),
        _ = interrupt.recv() => tracing::info!("SIGINT: finishing the reconciles that run"),
    }
    stop.cancel();
    tokio::select! {
        outcome = &mut work => outcome,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// Connects to all clusters; `None`: shutdown came first.
async fn connect(
    process: &Process,
    gates: &Gates,
    worker: Option<PathBuf>,
) -> anyhow::Result<Option<Connections>> {
    let connect = async |role: ConnectionRole, origin: Origin| {
        let timeout = process.args.request_timeout();
        let credentials = Credentials::new(gates, role, &origin.describe());
        let observe = Observe::new(
            &process.metrics,
            timeout,
            role,
            &process.environment,
            Some(credentials),
        );
        let open = |current| Connection::open(role, process.service, observe.clone(), current);
        Follower::start(
            origin,
            role,
            (process.service, timeout),
            open,
            gates,
            &process.shutdown,
        )
        .await
    };
    let origin = origin(&process.args, process.service);
    // Two at the same time, so that the problems of both are reported.
    if process.args.home_namespace.is_some() {
        let (home, user) = tokio::try_join!(
            connect(ConnectionRole::Of(ClusterKind::Home), Origin::Inferred),
            connect(ConnectionRole::User, origin)
        )?;
        return Ok(home.zip(user).map(|(home, user)| Connections {
            home,
            management: user.clone(),
            worker: user,
        }));
    }
    let Some(path) = worker else {
        return Ok(connect(ConnectionRole::Only, origin)
            .await?
            .map(Connections::only));
    };
    let worker = Origin::File {
        flag: kubeconfig::WORKER_CLUSTER_FLAG,
        path,
        is_foreign: true,
    };
    let (management, worker) = tokio::try_join!(
        connect(ConnectionRole::Of(ClusterKind::Management), origin),
        connect(ConnectionRole::Of(ClusterKind::Worker), worker)
    )?;
    Ok(management.zip(worker).map(|(management, worker)| Connections {
        home: management.clone(),
        management,
        worker,
    }))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::tests::Args;

    /// Its owner may be another one than that of the pod, whose files and programs are not theirs.
    #[test]
    fn a_kubeconfig_of_another_cluster_is_foreign() {
        let is_foreign = |line: &str, service| {
            let args = Args::try_parse_from(line.split(' ')).unwrap();
            matches!(
                origin(&args.common, service),
                Origin::File { is_foreign: true, .. }
            )
        };
        let alone = "x --kubeconfig a";
        assert!(!is_foreign(alone, Service::OscController));
        assert!(is_foreign(alone, Service::CsrApprover));
        for service in Service::ALL {
            assert!(is_foreign("x --kubeconfig a --home-namespace b", service));
        }
    }
}
