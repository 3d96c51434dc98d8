//! The frame of a service: flags → telemetry → admin server → connections → controller → shutdown.

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use kube::Client;
use osm_api::rbac::{Cluster, Installation, Service};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::client::{Credentials, Observe};
use crate::connection::Part;
use crate::kubeconfig::{self, Follower, Origin};
use crate::server_time::ServerTime;
use crate::watch::Relist;
use crate::{
    CommonArgs, Connection, Metrics, Readiness, Surroundings, admin, definitions, request, rights, settings,
    telemetry,
};

/// What a controller gets to work with.
#[derive(Clone)]
pub struct Context {
    /// Which service this is.
    pub service: Service,
    /// Flags.
    pub args: CommonArgs,
    /// What is particular to this installation.
    pub installation: Installation,
    /// The cluster of profiles, configs and settings.
    pub management: Connection,
    /// The cluster of MachineDeployments and of `cloud-init-settings`; the same one where no other is given.
    pub worker: Connection,
    /// Clock and chance.
    pub surroundings: Surroundings,
    /// Metrics.
    pub metrics: Metrics,
    /// Readiness.
    pub readiness: Readiness,
    /// For all watches.
    pub relist: Relist,
    /// Cancelled when the service is to stop.
    pub shutdown: CancellationToken,
}

impl Context {
    /// Each cluster once.
    pub fn connections(&self) -> Vec<&Connection> {
        match self.management.part() {
            Part::Only => vec![&self.management],
            Part::Of(_) => vec![&self.management, &self.worker],
        }
    }
}

/// Runs a service until SIGTERM or SIGINT. Two threads do: the work is waiting. `worker`: the kubeconfig of the worker
/// cluster, where it is another one.
pub fn main<F, Fut>(
    service: Service,
    args: CommonArgs,
    worker: Option<PathBuf>,
    installation: Installation,
    run: F,
) -> ExitCode
where
    F: FnOnce(Context, settings::Receiver) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    exit(service, serve(service, args, worker, installation, run))
}

/// Does one thing in the cluster of `--kubeconfig`, and ends.
pub fn once<F, Fut>(service: Service, args: CommonArgs, work: F) -> ExitCode
where
    F: FnOnce(Client) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    exit(service, async {
        telemetry::init(&args)?;
        let _ = rustls::crypto::ring::default_provider().install_default();
        let loaded = kubeconfig::load(&origin(&args), service, args.request_timeout()).await?;
        work(Client::try_from(loaded.config)?).await
    })
}

fn origin(args: &CommonArgs) -> Origin {
    args.kubeconfig.clone().map_or(Origin::Inferred, |path| Origin::File { flag: "--kubeconfig", path })
}

fn exit(service: Service, work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(work));
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
    worker: Option<PathBuf>,
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
    let (readiness, shutdown) = (Readiness::default(), CancellationToken::new());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tracing::info!(
        service = service.name(),
        version = env!("CARGO_PKG_VERSION"),
        namespace = args.namespace,
        "starting"
    );
    // Until all else that readiness waits for is known.
    let start = readiness.gate("start");
    admin::spawn(args.listen, &readiness, &metrics, &shutdown).await?;
    let stop = shutdown.clone();
    let work = async move {
        let surroundings = Surroundings::default();
        let connect = async |part: Part, origin: Origin| {
            let timeout = args.request_timeout();
            let credentials = Credentials::new(&readiness, part, &origin.describe());
            let time = ServerTime::new(&surroundings);
            let observe = Observe::new(&metrics, timeout, part, time, Some(credentials));
            let open = |current| Connection::open(part, service, observe.clone(), current);
            Follower::start(origin, (service, timeout), open, &readiness, &shutdown).await
        };
        let origin = origin(&args);
        let connected = match worker {
            None => connect(Part::Only, origin).await?.map(|only| (only.clone(), only)),
            Some(path) => {
                let worker = Origin::File { flag: "--worker-cluster-kubeconfig", path };
                // At the same time, so that what is wrong with either is told.
                let (management, worker) = tokio::try_join!(
                    connect(Part::Of(Cluster::Management), origin),
                    connect(Part::Of(Cluster::Worker), worker)
                )?;
                management.zip(worker)
            }
        };
        let Some((management, worker)) = connected else { return Ok(()) };
        let context = Context {
            service,
            installation,
            management,
            worker,
            surroundings,
            metrics,
            readiness,
            relist: Relist::default(),
            shutdown,
            args,
        };
        let settings = settings::spawn(&context);
        definitions::spawn(&context);
        rights::spawn(&context, &settings);
        start.open();
        run(context, settings).await
    };
    tokio::pin!(work);
    tokio::select! {
        outcome = &mut work => return outcome,
        _ = terminate.recv() => tracing::info!("SIGTERM: finishing what is at work"),
        _ = interrupt.recv() => tracing::info!("SIGINT: finishing what is at work"),
    }
    stop.cancel();
    tokio::select! {
        outcome = &mut work => outcome,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
