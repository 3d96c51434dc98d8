//! The services, each on threads with its name, which its log lines have as well.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use csr_approver::CsrApprover;
use osc_controller::OscController;
use osm_api::rbac::{Installation, Service};
use osm_runtime::args::LogFormat;
use osm_runtime::readiness::Gate;
use osm_runtime::{AdmissionArgs, CommonArgs, Environment, Process, admin, service, telemetry};
use osm_testkit::wait_for;
use parking_lot::Mutex;
use secret_syncer::SecretSyncer;
use tokio::sync::{Mutex as AsyncMutex, mpsc};
use tracing_subscriber::Layer as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

const LOG: &str = "info,osm_runtime::watch=debug";

/// Threads of each service, as in its own process.
const THREADS: usize = 2;

pub struct Services {
    log: PathBuf,
    running: Vec<(Service, Arc<Process>)>,
    ends: mpsc::UnboundedSender<Error>,
    ended: AsyncMutex<mpsc::UnboundedReceiver<Error>>,
    addresses: Arc<Mutex<Vec<(Service, SocketAddr)>>>,
}

impl Services {
    /// None yet. They will log to a file in this directory.
    ///
    /// # Errors
    /// The file can't be created.
    pub fn new(directory: &Path) -> Result<Self> {
        let log = directory.join("services.log");
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::sync::Mutex::new(file))
            .with_ansi(false)
            .with_target(false)
            .with_thread_names(true)
            .with_filter(telemetry::targets(LOG)?);
        tracing_subscriber::registry().with(lines).try_init()?;
        let (ends, ended) = mpsc::unbounded_channel();
        Ok(Self {
            log,
            running: Vec::new(),
            ends,
            ended: AsyncMutex::new(ended),
            addresses: Arc::default(),
        })
    }

    /// Starts a service, which works until the demo ends.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn start(&mut self, service: Service, kubeconfig: &Path, installation: &Installation) -> Result<()> {
        let args = arguments(kubeconfig, installation);
        let process = Process::new(service, args, Environment::default())?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name(service.name())
            .enable_all()
            .build()?;
        self.running.push((service, process.clone()));
        let start = process.readiness.gate("start");
        let (ends, addresses, installation) =
            (self.ends.clone(), self.addresses.clone(), installation.clone());
        let work = move || {
            let outcome = runtime.block_on(async {
                let listen = process.args.listen;
                let address = admin::spawn(listen, &process.readiness, &process.metrics, &process.shutdown)?;
                addresses.lock().push((service, address));
                run(process, start, installation).await
            });
            let name = service.name();
            let error = match outcome {
                Ok(()) => anyhow!("{name} has ended"),
                Err(error) => error.context(format!("{name} has ended")),
            };
            // Nobody waits any more when the demo ends.
            let _ = ends.send(error);
        };
        std::thread::Builder::new()
            .name(service.name().to_owned())
            .spawn(work)?;
        Ok(())
    }

    /// Why a service has ended, once one has.
    pub async fn ended(&self) -> Error {
        let ended = self.ended.lock().await.recv().await;
        ended.unwrap_or_else(|| anyhow!("the services have ended"))
    }

    /// Waits until all services are ready.
    ///
    /// # Errors
    /// After the deadline; says what is waited for.
    pub async fn ready(&self, deadline: Duration) -> Result<()> {
        for (service, process) in &self.running {
            wait_for(&format!("{} to be ready", service.name()), deadline, async || {
                let waiting = process.readiness.waiting();
                ensure!(waiting.is_empty(), "{}", waiting.join("; "));
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Where each service serves its metrics.
    pub fn addresses(&self) -> Vec<(Service, SocketAddr)> {
        self.addresses.lock().clone()
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines that they have logged.
    pub fn log_tail(&self, lines: usize) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all.get(all.len().saturating_sub(lines)..)
            .unwrap_or_default()
            .join("\n")
    }
}

/// Any free port, and otherwise the defaults.
fn arguments(kubeconfig: &Path, installation: &Installation) -> CommonArgs {
    CommonArgs {
        namespace: installation.namespace.clone(),
        kubeconfig: Some(kubeconfig.to_owned()),
        settings_config_map: installation.settings.clone(),
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        log_format: LogFormat::Text,
        log_filter: LOG.to_owned(),
        pod_name: Some("demo".to_owned()),
        ..CommonArgs::default()
    }
}

async fn run(process: Arc<Process>, start: Gate, installation: Installation) -> Result<()> {
    match process.service {
        Service::OspController => {
            let run = |cluster| osp_controller::run(cluster, AdmissionArgs::default());
            service::work(process, start, installation, run).await
        }
        Service::OscController => {
            service::work(process, start, installation, service::serve_only::<OscController>).await
        }
        Service::SecretSyncer => {
            service::work(process, start, installation, service::serve_only::<SecretSyncer>).await
        }
        Service::CsrApprover => {
            service::work(process, start, installation, service::serve_only::<CsrApprover>).await
        }
    }
}
