//! Saves and restores the state of a control plane.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{Component, ControlPlane};
use crate::process::ScratchDir;

/// etcd's data at one moment.
#[derive(Debug)]
pub struct Backup(ScratchDir);

impl ControlPlane {
    /// Copies etcd's data. etcd and the API server are away for the moment that it takes.
    ///
    /// # Errors
    /// When they don't come back, or the data can't be copied.
    pub async fn backup(&self) -> Result<Backup> {
        let backup = Backup(ScratchDir::new("osm-backup-")?);
        self.without_etcd(|data| copy(data, &backup.0.path().join("etcd")))
            .await?;
        Ok(backup)
    }

    /// Goes back to a backup as an operator in need does it: etcd's data are replaced by the copy and nothing
    /// else. What was written since is lost, and resourceVersions that were given out already are given out
    /// once more.
    ///
    /// # Errors
    /// As [`Self::backup`].
    pub async fn restore(&self, backup: &Backup) -> Result<()> {
        self.without_etcd(|data| {
            fs::remove_dir_all(data)?;
            copy(&backup.0.path().join("etcd"), data)
        })
        .await
    }

    /// What is done to etcd's data while nobody uses them.
    async fn without_etcd(&self, work: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.stop_apiserver().await?;
        {
            let mut etcd = self.etcd.lock().await;
            etcd.kill9()?;
            work(&self.directory.path().join("etcd"))?;
            *etcd = self.spawn(Component::Etcd, self.programs().etcd())?;
        }
        self.start_apiserver().await
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| target.display().to_string())?;
        }
    }
    Ok(())
}
