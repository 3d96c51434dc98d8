//! Programs from crates.io. Each version is built once, in a directory of its own in the cache outside the tree.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::go_module::{cache_root, cached_directory};

/// `cargo`, as it is called from a shell. What it told this program about itself would make build scripts look as if their surroundings
/// had changed, and half the workspace be built again, with every change from one to the other.
#[must_use]
pub fn cargo() -> std::process::Command {
    let mut command = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// The program `name` of the crate of that name, in exactly this version and with the dependencies that its own lock file names: from the
/// cache, else built. Several processes may ask at once; one builds.
///
/// # Errors
/// When the build fails (with cargo's words), or crates.io can't be reached.
pub async fn ensure(name: &str, version: &str, progress: impl Fn(&str)) -> Result<PathBuf> {
    let target = cache_root()?.join(name).join(version);
    let install = async |directory: &std::path::Path| {
        let started = Instant::now();
        progress(&format!("{name}: building from source, a minute or two"));
        let build = directory.join("target");
        let output = Command::from(cargo())
            // Not optimised: it would take longer to build than it ever saves.
            .args([
                "install",
                "--locked",
                "--quiet",
                "--profile=dev",
                "--config=profile.dev.debug=0",
                name,
            ])
            .args(["--version", &format!("={version}")])
            .arg("--root")
            .arg(directory)
            .arg("--target-dir")
            .arg(&build)
            .current_dir(directory)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .context("cargo can't be run")?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!(
                "cargo install {name} failed ({}):\n{}",
                output.status,
                stderr.trim_end()
            );
        }
        fs::remove_dir_all(&build)?;
        progress(&format!("{name}: built in {} s", started.elapsed().as_secs()));
        Ok(())
    };
    cached_directory(&target, name, &progress, install).await?;
    Ok(target.join("bin").join(name))
}
