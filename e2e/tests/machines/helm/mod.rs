//! `cargo xtask e2e helm`: the chart, installed into a whole cluster.

mod images;
mod lifecycle;
mod objects;
mod pods;
mod pool;
mod release;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use osm_judges::packages;
use osm_lab::cluster::{self, Cluster};
use osm_lab::machines::{self, isolation};

use self::lifecycle::Lifecycle;
use super::machine_args::{self, MachineArgs};
use osm_testkit::progress::Progress;

/// Where the images' archives are.
const IMAGES: &str = "OSM_IMAGE_DIR";

/// Install the chart into a whole cluster, and upgrade, scale and uninstall it
///
/// A control plane and a node with kubelet and containerd run on this computer, in network, mount and process namespaces of their own:
/// nothing of it reaches the host's network, and all of it is gone at the end. The first run builds the cluster's programs, the node's
/// image, Helm and our images, which takes a quarter of an hour; later ones take three minutes.
///
/// The node is a virtual machine of QEMU, as `cargo xtask e2e node --help` explains. By emulation, the whole run takes several times as long.
#[derive(clap::Args)]
pub struct Helm {
    /// Folder with the archives that `cargo xtask image` has made; without it, they are made
    #[arg(long, value_name = "FOLDER", env = IMAGES)]
    images: Option<PathBuf>,
    #[command(flatten)]
    machines: MachineArgs,
    /// Where the logs go when it fails
    #[arg(long, value_name = "FOLDER", default_value = "target/e2e/helm")]
    logs: PathBuf,
}

impl Helm {
    /// Runs it.
    ///
    /// # Errors
    /// Whatever is not as it should be.
    pub async fn run(&self) -> Result<()> {
        if isolation::directory().is_some() {
            isolation::end_with_parent();
            return Box::pin(self.play()).await;
        }
        let accelerator = tokio::task::block_in_place(|| self.machines.accelerator())?;
        isolation::require_host()?;
        let progress = Progress::start();
        progress.step(&format!("the node is one of {accelerator}"));
        progress.step("Debian packages that machines need");
        tokio::task::spawn_blocking(|| packages::ensure(machines::PACKAGES)).await??;
        progress.step("the cluster's programs, and Helm: looking for the binaries");
        cluster::prepare(|line| progress.step(line)).await?;
        osm_testkit::helm::program(|line| progress.step(line)).await?;
        let images = match &self.images {
            Some(folder) => folder.clone(),
            None => {
                crate::cargo(&["xtask", "image"]).await?;
                crate::root().join("target/images")
            }
        };
        if self.logs.exists() {
            std::fs::remove_dir_all(&self.logs).with_context(|| self.logs.display().to_string())?;
        }
        progress.step("everything is there; from here on, without a network");
        let images = images.display().to_string();
        let status = tokio::task::block_in_place(|| {
            isolation::enter(&[(IMAGES, &images), machine_args::variable(accelerator)])
        })?;
        ensure!(
            status.success(),
            "it failed, as said above; logs are in {}",
            self.logs.display()
        );
        Ok(())
    }

    /// Isolated.
    async fn play(&self) -> Result<()> {
        let progress = Progress::start();
        let directory = isolation::directory().context("machines need namespaces of their own")?;
        let logs = directory.join(machines::LOGS);
        std::fs::create_dir(&logs)?;
        let images = self.images.as_deref().context(IMAGES)?;
        progress.step("starting the cluster");
        let accelerator = tokio::task::block_in_place(|| self.machines.accelerator())?;
        let started = Cluster::start(accelerator, &logs).await;
        if started.is_err() {
            copy(&logs, &self.logs)?;
        }
        let cluster = started?;
        progress.step("the node is Ready");
        let lifecycle = Lifecycle {
            cluster: &cluster,
            images,
            progress,
        };
        let outcome = Box::pin(lifecycle.play()).await;
        if outcome.is_err() {
            eprint!("{}", lifecycle.explain().await);
            copy(&logs, &self.logs)?;
            let saved = cluster.save_node_logs(&self.logs.join("node"));
            saved
                .unwrap_or_else(|error| progress.warn(&format!("logs of the node are not saved: {error:#}")));
        }
        outcome
    }
}

/// Copies a folder's files.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| to.display().to_string())?;
    for file in std::fs::read_dir(from)? {
        let file = file?;
        std::fs::copy(file.path(), to.join(file.file_name()))?;
    }
    Ok(())
}
