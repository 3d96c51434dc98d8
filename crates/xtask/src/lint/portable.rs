//! osmctl runs on macOS, too: it and the crates that it uses call nothing that only Linux has.
//!
//! Tests may: they run on Linux.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::Package;

const PROGRAM: &str = "osmctl";

/// Modules, crates and files of Linux, as code names them.
const OF_LINUX: [&str; 8] = [
    "os::linux",
    "libc::",
    "use nix::",
    "procfs::",
    "rustix::",
    "inotify::",
    "(\"/proc/",
    "(\"/sys/",
];

/// What macOS has, too, although [`OF_LINUX`] names it.
const PORTABLE: [&str; 2] = [
    "use rustix::process::{Signal, getpid, kill_process};",
    "use rustix::termios::",
];

/// Checks osmctl and the crates of the workspace that it uses, directly or by way of others.
///
/// # Errors
/// Names each line with something of Linux; a file that can't be read.
pub fn check(packages: &[Package]) -> Result<()> {
    let used = used(packages);
    ensure!(used.len() > 1, "{PROGRAM} uses no crate of the workspace");
    let mut found = Vec::new();
    for package in used {
        let folder = package
            .manifest_path
            .parent()
            .context("the folder of a package")?;
        let mut files = Vec::new();
        sources(&folder.join("src"), &mut files)?;
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
            found.extend(
                of_linux(&text)
                    .into_iter()
                    .map(|(number, line)| format!("{}:{number}: {line}", file.display())),
            );
        }
    }
    ensure!(found.is_empty(), "only Linux has this:\n  {}", found.join("\n  "));
    Ok(())
}

fn used(packages: &[Package]) -> Vec<&Package> {
    let named = |name: &str| packages.iter().find(|package| package.name == name);
    let mut used: Vec<&Package> = named(PROGRAM).into_iter().collect();
    let mut next = 0;
    while let Some(package) = used.get(next) {
        // Those of tests and of build scripts have a kind.
        let normal = package
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind.is_none());
        let more: Vec<&Package> = normal
            .filter_map(|dependency| named(&dependency.name))
            .filter(|package| used.iter().all(|known| known.name != package.name))
            .collect();
        used.extend(more);
        next += 1;
    }
    used
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Lines of the program, without comments and without the tests at the end of a file.
fn of_linux(text: &str) -> Vec<(usize, &str)> {
    let program = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = program.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
        .filter(|(_, line)| OF_LINUX.iter().any(|name| line.contains(name)))
        .filter(|(_, line)| !PORTABLE.iter().any(|name| line.starts_with(name)))
        .map(|(at, line)| (at + 1, line.trim()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_linux_has_is_found_outside_of_comments_and_tests() {
        let text = "use std::os::linux::fs::MetadataExt;\n// libc::open\nlet a = [\"/proc/\"];\nread(\"/proc/self/stat\");\n\
                    use std::os::unix::fs::PermissionsExt;\n#[cfg(test)]\nmod tests { use libc::open; }\n";
        let found: Vec<usize> = of_linux(text).into_iter().map(|(number, _)| number).collect();
        assert_eq!(found, [1, 4]);
    }
}
