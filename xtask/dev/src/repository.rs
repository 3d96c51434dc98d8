//! Writes the address of the repository, which `Cargo.toml` has, into the files that name it, and finds addresses that belong to others.

use std::fs;

use anyhow::{Context, Result};

use crate::generated::File;

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

/// Files that name it, besides those that `cargo xtask chart` generates anyway. In workflows, `github.repository` is the place where they run.
const FILES: [&str; 5] = [
    "charts/operating-system-manager/Chart.yaml",
    "charts/operating-system-manager/files/dashboard.json",
    "docs/book.toml",
    ".github/ISSUE_TEMPLATE/config.yml",
    "examples/profiles-ci.yaml",
];

/// The files with the address of today.
pub fn files() -> Result<Vec<File>> {
    let file = |name: &&str| {
        let path = crate::root().join(name);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok((path, current(&text)?))
    };
    FILES.iter().map(file).collect()
}

/// A text with the address of today instead of the one that the chart has named until now.
pub fn current(text: &str) -> Result<String> {
    let chart = fs::read_to_string(crate::chart::directory().join("Chart.yaml"))?;
    let before = chart.lines().find_map(|line| line.strip_prefix("home: "));
    Ok(text.replace(before.context("Chart.yaml has no home")?, REPOSITORY))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Addresses of the Go implementation, with which nothing of ours is published.
    const OTHERS: [&str; 4] = [
        "github.com/kubermatic/operating-system-manager",
        "githubusercontent.com/kubermatic/operating-system-manager",
        "ghcr.io/kubermatic",
        "quay.io/kubermatic/operating-system-manager",
    ];

    /// Whether a line may have one: a link that names the Go implementation, a manifest of it, or the name of a Go module, which is no address.
    fn is_theirs(file: &str, line: &str) -> bool {
        let link = "](https://github.com/kubermatic/operating-system-manager)";
        let link = line
            .split_once(link)
            .and_then(|(before, _)| before.rsplit_once('['));
        link.is_some_and(|(_, text)| text.contains("Go "))
            || file.starts_with("e2e/tests/fixtures/takeover/")
            || file.ends_with(".mod")
            || file.ends_with(".go")
            || file == "xtask/dev/src/repository.rs"
    }

    #[test]
    fn no_address_of_another_product_is_given_as_ours() {
        let listed = Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(crate::root())
            .output()
            .unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let (mut read, mut found) = (0, Vec::new());
        for file in listed.split_terminator('\0') {
            let Ok(text) = fs::read_to_string(crate::root().join(file)) else {
                continue; // It is not text, or deleted.
            };
            read += 1;
            for (number, line) in text.lines().enumerate() {
                if OTHERS.iter().any(|other| line.contains(other)) && !is_theirs(file, line) {
                    found.push(format!("{file}:{}: {line}", number + 1));
                }
            }
        }
        assert!(read > 500, "{read}");
        assert!(found.is_empty(), "{}", found.join("\n"));
    }

    #[test]
    fn only_links_that_name_the_go_implementation_are_theirs() {
        let to = |text: &str, path: &str| {
            let line = format!("See [{text}](https://github.com/kubermatic/operating-system-manager{path}).");
            is_theirs("README.md", &line)
        };
        assert!(to("the Go implementation", ""));
        assert!(!to("the repository", ""));
        assert!(!to("the Go implementation", "/blob/main/docs/install.md"));
    }
}
