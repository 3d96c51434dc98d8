//! `cargo xtask demo`: runs the services in this process, on an API server in memory or on a real one, and
//! shows what they publish.
//!
//! ```text
//! manifests    the MachineDeployments to apply, with the lines that they are in
//! api_server   the API server, in memory or real
//! services     the services, each on threads of its own
//! stand_in     what machine-controller does for the services
//! pools        the progress of all pools and profiles
//! show         what is printed
//! ```

mod api_server;
mod manifests;
mod pools;
mod services;
mod show;
mod stand_in;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use osm_api::rbac::Service;
use osm_testkit::progress::Progress;
use tokio::signal::unix::{SignalKind, signal};

use self::api_server::ApiServer;
use self::manifests::Manifest;
use self::pools::Pools;
use self::services::Services;

/// Time in which services sync their watches and check their rights.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Number of log lines to print after a failure.
const LOG_LINES: usize = 40;

/// Run the services, and show what they publish for a MachineDeployment
///
/// Everything runs in one process on loopback, and nothing is kept. The API server is a simulation in memory,
/// for trying only. kubectl and osmctl can use it while the demo runs. With --etcd, the services run on a
/// real etcd and kube-apiserver. The first such run builds them from source with Go, which takes minutes,
/// unless KUBEBUILDER_ASSETS names a directory that has them.
#[derive(Parser)]
#[command(name = "demo", bin_name = "cargo xtask demo")]
struct Demo {
    /// Exit after printing; fail unless all user data is published
    #[arg(long)]
    once: bool,
    /// Run on a real etcd and kube-apiserver
    #[arg(long)]
    etcd: bool,
    /// Port of the API server in memory at 127.0.0.1 [default: any that is free]
    #[arg(
        long,
        value_name = "PORT",
        conflicts_with = "etcd",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,
    /// Manifest with MachineDeployments to apply instead of those in examples/; may be repeated
    #[arg(long, value_name = "FILE")]
    machine_deployment: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let demo = Demo::parse();
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| {
            let outcome = runtime.block_on(demo.run());
            // A thread may be rendering, and need not end.
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

impl Demo {
    /// Runs until Ctrl-C or SIGTERM, or with `--once` until everything is printed.
    async fn run(&self) -> Result<()> {
        // Registered before anything starts, so that nothing is left of a demo that is interrupted at once.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // When this returns, it drops the future of `play`, and with it all processes and files.
        tokio::select! {
            outcome = self.play(Progress::start()) => outcome,
            _ = interrupt.recv() => self.interrupted(),
            _ = terminate.recv() => self.interrupted(),
        }
    }

    fn interrupted(&self) -> Result<()> {
        if self.once {
            bail!("interrupted");
        }
        eprintln!("\nstopping everything and deleting its files");
        Ok(())
    }

    async fn play(&self, progress: Progress) -> Result<()> {
        let manifests = self.manifests()?;
        let api_server = if self.etcd {
            ApiServer::real(progress).await?
        } else {
            ApiServer::in_memory(self.port, progress).await?
        };
        let mut services = Services::new(api_server.directory())?;
        for service in Service::ALL {
            progress.step(&format!("starting {}", service.name()));
            let kubeconfig = api_server.identity(service).await?;
            services.start(service, &kubeconfig, api_server.installation())?;
        }
        let outcome = tokio::select! {
            outcome = self.show(progress, &api_server, &services, &manifests) => outcome,
            ended = services.ended() => Err(ended),
            error = stand_in::run(api_server.admin().await?) => Err(error),
        };
        if outcome.is_err() {
            eprintln!(
                "\nlast log lines of the services:\n{}",
                services.log_tail(LOG_LINES)
            );
        }
        outcome
    }

    async fn show(
        &self,
        progress: Progress,
        api_server: &ApiServer,
        services: &Services,
        manifests: &[Manifest],
    ) -> Result<()> {
        services.ready(READY_TIMEOUT).await?;
        let client = api_server.admin().await?;
        let mut pools = Pools::new(client.clone(), api_server.installation().namespace.clone());
        for manifest in manifests {
            progress.step(&format!("applying {}", manifest.what()));
            pools.expect(manifest.apply(&client).await?);
        }
        let published = pools.wait(progress).await;
        show::user_data(&pools, &client).await?;
        match published {
            Ok(()) => progress.step("everything is published"),
            Err(error) if self.once => return Err(error),
            Err(error) => progress.warn(&format!("{error:#}")),
        }
        if self.once {
            return Ok(());
        }
        show::next_steps(api_server, services)?;
        pools.follow(progress).await
    }

    fn manifests(&self) -> Result<Vec<Manifest>> {
        let examples = root().join("examples");
        let usual =
            ["aws", "openstack"].map(|cloud| examples.join(format!("machinedeployment-ubuntu-{cloud}.yaml")));
        let files = match self.machine_deployment.as_slice() {
            [] => usual.as_slice(),
            given => given,
        };
        let mut all = Vec::new();
        for file in files {
            all.extend(manifests::read(file)?);
        }
        Ok(all)
    }
}

/// The root directory of the repository.
fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .map_or(manifest.clone(), PathBuf::from)
}
