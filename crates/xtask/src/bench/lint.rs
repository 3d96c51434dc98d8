//! How long a person waits for `osmctl lint` of the default profiles.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// Runs that are measured, after one that is not.
const RUNS: usize = 11;

/// Measures `osmctl lint profiles/`, and returns a Markdown table.
///
/// # Errors
/// A program that can't be started, or problems in the profiles.
pub async fn table(osmctl: &Path) -> Result<String> {
    once(osmctl).await?;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        times.push(once(osmctl).await?);
    }
    times.sort_unstable();
    let of = |index: usize| times.get(index).map_or(0, Duration::as_millis);
    Ok(format!(
        "| Runs | fastest | median | slowest |\n|---|---|---|---|\n| {RUNS} | {} ms | {} ms | {} ms |\n",
        of(0),
        of(RUNS / 2),
        of(RUNS - 1)
    ))
}

async fn once(osmctl: &Path) -> Result<Duration> {
    let start = Instant::now();
    let status = Command::new(osmctl)
        .args(["lint", "profiles"])
        .current_dir(crate::root())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await
        .with_context(|| osmctl.display().to_string())?;
    let elapsed = start.elapsed();
    ensure!(status.success(), "{} lint profiles: {status}", osmctl.display());
    Ok(elapsed)
}
