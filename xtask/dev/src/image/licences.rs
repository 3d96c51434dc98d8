//! The licences of the crates that are linked into a program, with the texts that have to be passed on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::dependencies::Package;

/// Prefixes of the names of files with licences and notices.
const FILE_PREFIXES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "NOTICE",
    "COPYRIGHT",
    "UNLICENSE",
];

const C_LIBRARY: &str = "GNU C Library, statically linked: LGPL-2.1-or-later. Its source is the source package `glibc` of Debian 12. To link the program
with another version of the library, build the program from its source: https://github.com/kubermatic/operating-system-manager
";

/// All crates with their licences, then each text once, with the names of its crates.
///
/// # Errors
/// A crate without a licence, or with files that can't be read.
pub fn text(packages: &[&Package]) -> Result<String> {
    let mut text = format!("This program contains the following libraries.\n\n{C_LIBRARY}\n");
    let mut texts = BTreeMap::<String, Vec<String>>::new();
    for package in packages.iter().filter(|package| package.source.is_some()) {
        let name = format!("{} {}", package.name, package.version);
        let licence = package.license.as_deref();
        writeln!(
            text,
            "{name}: {}",
            licence.with_context(|| format!("{name} names no licence"))?
        )?;
        for entry in fs::read_dir(package.directory()?).with_context(|| name.clone())? {
            let entry = entry?;
            let upper = entry.file_name().to_string_lossy().to_uppercase();
            if FILE_PREFIXES.iter().any(|start| upper.starts_with(start)) && entry.file_type()?.is_file() {
                let found = String::from_utf8_lossy(&fs::read(entry.path())?)
                    .trim()
                    .to_owned();
                let crates = texts.entry(found).or_default();
                if !crates.contains(&name) {
                    crates.push(name.clone());
                }
            }
        }
    }
    for (found, crates) in texts {
        write!(text, "\n{}\n{}\n\n{found}\n", "=".repeat(80), crates.join(", "))?;
    }
    Ok(text)
}
