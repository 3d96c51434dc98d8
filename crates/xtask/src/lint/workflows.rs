//! The actions that workflows use: each is named by a commit, with its version as a comment.
//!
//! A tag can be moved to other code, which would run with the rights of the workflow.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const WORKFLOWS: &str = ".github/workflows";

/// Checks the workflows of the repository.
///
/// # Errors
/// Names each use that is not pinned or lacks its version; a file that can't be read.
pub fn check(root: &Path) -> Result<()> {
    let mut problems = Vec::new();
    for entry in fs::read_dir(root.join(WORKFLOWS)).context(WORKFLOWS)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        for line in text.lines() {
            if let Err(problem) = judge(line) {
                problems.push(format!("{}: {problem}: {}", path.display(), line.trim()));
            }
        }
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n  "));
    Ok(())
}

/// Whether a line is no use of an action, or one that is pinned.
fn judge(line: &str) -> Result<(), &'static str> {
    let line = line.trim_start().trim_start_matches("- ");
    let Some(used) = line.strip_prefix("uses:").map(str::trim) else {
        return Ok(());
    };
    if used.starts_with("./") {
        return Ok(());
    }
    let (_, rest) = used.split_once('@').ok_or("an action has no version")?;
    let (reference, comment) = rest.split_once(' ').unwrap_or((rest, ""));
    let is_commit = reference.len() == 40 && reference.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_commit {
        return Err("an action must be named by a commit of 40 digits");
    }
    let version = comment.trim().strip_prefix("# v");
    match version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit())) {
        true => Ok(()),
        false => Err("the commit of an action must be followed by its version, as `# v1.2.3`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn commits_with_their_version_and_what_is_no_foreign_action_are_taken() {
        for line in [
            &*format!("      - uses: actions/checkout@{COMMIT} # v5.0.0"),
            &format!("        uses: some/action/path@{COMMIT} # v1"),
            "    uses: ./.github/workflows/ci.yaml",
            "      - run: echo uses: nothing",
        ] {
            assert_eq!(judge(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn tags_and_commits_without_a_version_are_refused() {
        for line in [
            "      - uses: some/action@v5",
            "      - uses: actions/cache@v4",
            "      - uses: some/action@main",
            "      - uses: some/action",
            &*format!("      - uses: some/action@{COMMIT}"),
            &format!("      - uses: some/action@{COMMIT} # newest"),
            &format!("      - uses: some/action@{} # v1", &COMMIT[..39]),
        ] {
            assert!(judge(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_workflows_of_the_repository_are_pinned() {
        check(&crate::root()).unwrap();
    }
}
