//! The commit that something was built or measured at.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// The environment variable `REVISION`, else the commit of the repository, with `-dirty` if files differ from it.
///
/// # Errors
/// When git can't be run, or knows no commit.
pub async fn read() -> Result<String> {
    if let Some(given) = std::env::var("REVISION").ok().filter(|given| !given.is_empty()) {
        return Ok(given);
    }
    let git = Command::new("git")
        .args(["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"])
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .output()
        .await;
    let output = git.context("git can't be run: set REVISION")?;
    ensure!(output.status.success(), "git knows no commit: set REVISION");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
