//! The commit that something was built or measured at.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// The commit of the repository, with `-dirty` if files differ from it.
///
/// # Errors
/// When git can't be run, or knows no commit.
pub async fn read() -> Result<String> {
    let git = Command::new("git")
        .args(["describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"])
        .current_dir(crate::root())
        .stdin(Stdio::null())
        .output()
        .await;
    let output = git.context("git can't be run")?;
    ensure!(output.status.success(), "git knows no commit");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
