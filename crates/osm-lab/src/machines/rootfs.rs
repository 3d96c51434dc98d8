//! Root file systems of machines that are containers. They are made from Debian packages once, and cached outside the tree.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::image::Release;
use super::run;
use osm_judges::go_module::{cache_root, short};

const RECIPE: &str = include_str!("rootfs.sh");

/// A root file system, shared by all machines that boot from it and changed by none.
#[derive(Debug, Clone)]
pub(super) struct RootFs {
    root: PathBuf,
}

impl RootFs {
    /// The image of a release: from the cache, else made. Needs root and Debian's archive, and takes a minute.
    ///
    /// # Errors
    /// When it can't be made.
    pub(super) fn ensure(release: Release, progress: impl Fn(&str)) -> Result<Self> {
        // The modules in it are those of this kernel.
        let kernel = run("uname", &["-r"])?;
        let key = short(Sha256::new_with_prefix(format!("{kernel}{RECIPE}")));
        let cache = cache_root()?.join("images");
        let root = cache.join(format!("{}-{key}", release.suite()));
        if !root.is_dir() {
            fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
            let lock = File::create(cache.join(".lock"))?;
            lock.lock()?;
            if !root.is_dir() {
                make(release, &cache, &root, &progress)?;
            }
        }
        Ok(Self { root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }
}

/// We hold the lock: what another process has left half done may go.
fn make(release: Release, cache: &Path, root: &Path, progress: &impl Fn(&str)) -> Result<()> {
    let started = Instant::now();
    progress(&format!(
        "image of {release}: from Debian's packages, about a minute"
    ));
    let building = cache.join(".building");
    if building.exists() {
        fs::remove_dir_all(&building)?;
    }
    // Its mounts are its own: none is left in a folder that is removed some day, even if it is killed.
    let (script, target) = (
        concat!(env!("CARGO_MANIFEST_DIR"), "/src/machines/rootfs.sh"),
        building.display().to_string(),
    );
    run(
        "unshare",
        &[
            "--mount",
            "--fork",
            "--kill-child",
            "sh",
            script,
            release.suite(),
            &target,
        ],
    )
    .with_context(|| format!("image of {release}"))?;
    fs::rename(&building, root)?;
    progress(&format!(
        "image of {release}: made in {} s",
        started.elapsed().as_secs()
    ));
    Ok(())
}
