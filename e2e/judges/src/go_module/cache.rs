//! The cache outside the tree: its directories, and the lock that lets one process build while others wait.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

/// Where everything is cached that was built or downloaded: `${XDG_CACHE_HOME:-$HOME/.cache}/osm`.
///
/// # Errors
/// When neither variable is set and there is no home directory.
pub fn cache_root() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(directory) => PathBuf::from(directory),
        None => std::env::home_dir()
            .context("no home directory: set XDG_CACHE_HOME")?
            .join(".cache"),
    };
    Ok(base.join("osm"))
}

/// The directory `target` of the cache; if it isn't there, `make` fills a new one, which is then put in place
/// whole. Of several processes one makes it, the others wait and say so to `progress`, with `what` they wait
/// for.
///
/// # Errors
/// Those of `make`, or of the file system.
pub async fn cached_directory(
    target: &Path,
    what: &str,
    progress: impl Fn(&str),
    make: impl AsyncFnOnce(&Path) -> Result<()>,
) -> Result<()> {
    if target.is_dir() {
        return Ok(());
    }
    let parent = target.parent().context("path in the cache")?;
    let _lock = lock(parent, what, &progress).await?;
    if !target.is_dir() {
        let scratch = scratch(parent)?;
        let moved = match make(&scratch).await {
            Ok(()) => Ok(fs::rename(&scratch, target)?),
            error => fs::remove_dir_all(&scratch).map_err(Into::into).and(error),
        };
        moved?;
    }
    Ok(())
}

/// The lock of a directory of the cache, held until dropped, and let go by the kernel if we are killed.
/// `what` is for the progress.
pub(super) async fn lock(directory: &Path, what: &str, progress: &impl Fn(&str)) -> Result<File> {
    fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    let path = directory.join(".lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    if file.try_lock().is_err() {
        progress(&format!("{what}: waiting for another process that builds it"));
    }
    let locked = tokio::task::spawn_blocking(move || file.lock().map(|()| file));
    locked.await?.context("lock of the cache")
}

/// An empty directory beside what is being made; only for who holds the lock.
pub(super) fn scratch(directory: &Path) -> Result<PathBuf> {
    let scratch = directory.join(".building");
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?; // left by a build that was killed: we hold the lock
    }
    fs::create_dir(&scratch)?;
    Ok(scratch)
}

/// The first 16 characters of a hash, which are enough to tell apart what is in a cache.
#[must_use]
pub fn short(hash: Sha256) -> String {
    hash.finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
