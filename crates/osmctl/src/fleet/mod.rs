//! `osmctl fleet`: adds clusters to a fleet, shows them, and follows the user clusters of a KKP seed.
//!
//! ```text
//! objects     what the services need in a user cluster; pure
//! add         one cluster → its objects, kubeconfigs and WorkerCluster
//! kkp         what KKP says about a user cluster → whether it can be served; pure
//! sync_kkp    the same as `add`, for each user cluster of KKP that has a label
//! status      one line per cluster
//! ```

mod add;
mod kkp;
mod objects;
mod status;
mod sync_kkp;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use kube::ResourceExt;
use osm_api::names::WORKER_CLUSTER;
use osm_api::worker_cluster::WorkerCluster;

use crate::cluster;

/// Manage the clusters of a fleet
///
/// `add` prepares a user cluster and registers it. `status` shows all clusters. `sync-kkp` registers the user
/// clusters of a seed of the Kubermatic Kubernetes Platform.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # Add a cluster, or bring it up to date
  osmctl fleet add --context seed -n cluster-a --worker-context user-a

  # All clusters
  osmctl fleet status --context seed")]
pub struct Fleet {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Add(add::Add),
    Status(status::Status),
    SyncKkp(sync_kkp::SyncKkp),
}

impl Fleet {
    /// Runs the subcommand.
    pub fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Add(add) => cluster::run(Box::pin(add.run())),
            Command::Status(status) => cluster::run(status.run()),
            Command::SyncKkp(sync) => cluster::run(Box::pin(sync.run())),
        }
    }
}

/// What applying a WorkerCluster has done, in the words of kubectl.
fn outcome(before: Option<&WorkerCluster>, after: &impl ResourceExt) -> String {
    let done = match before {
        None => "created",
        Some(before) if before.metadata.generation == after.meta().generation => "unchanged",
        Some(_) => "configured",
    };
    format!(
        "WorkerCluster {}/{WORKER_CLUSTER} {done}\n",
        after.namespace().unwrap_or_default()
    )
}
