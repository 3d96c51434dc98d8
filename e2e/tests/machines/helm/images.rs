//! The images under test: those that `cargo xtask image` builds.

use std::path::Path;

use anyhow::{Context, Result};
use osm_api::rbac::Service;
use osm_lab::cluster::Cluster;

/// Gives them to a cluster's node.
///
/// # Errors
/// An archive that is missing, or that containerd does not take.
pub async fn import(folder: &Path, cluster: &Cluster) -> Result<()> {
    for service in Service::ALL {
        let path = folder.join(format!("{}.tar", service.name()));
        let archive = std::fs::read(&path).with_context(|| path.display().to_string())?;
        cluster
            .import(&archive)
            .await
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}
