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

/// A revision as people read it, with twelve digits.
pub fn short(revision: &str) -> String {
    let (commit, dirty) = revision
        .strip_suffix("-dirty")
        .map_or((revision, ""), |commit| (commit, "-dirty"));
    format!("{}{dirty}", commit.get(..12).unwrap_or(commit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_revision_still_says_that_files_differ() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(short(commit), "0123456789ab");
        assert_eq!(short(&format!("{commit}-dirty")), "0123456789ab-dirty");
        assert_eq!(short("v1"), "v1");
    }
}
