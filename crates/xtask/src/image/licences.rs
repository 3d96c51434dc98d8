//! The licences of what is linked into a program, as their authors want them handed on.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use super::dependencies::Part;

/// Starts of the names of files that say what one may do with a crate.
const FILES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT", "UNLICENSE"];

const C_LIBRARY: &str = "GNU C Library, statically linked: LGPL-2.1-or-later. Its source is that of the package `glibc` in Debian 12; to link the
program with another version of it, build it from its own source, which is free: https://github.com/kubermatic/operating-system-manager
";

/// Every crate with its licence, then each text once, with the crates that it is of.
///
/// # Errors
/// A crate that says nothing of its licence, or whose files can't be read.
pub fn text(parts: &[&Part]) -> Result<String> {
    let mut text = format!("What is linked into this program, besides its own code.\n\n{C_LIBRARY}\n");
    let mut texts = BTreeMap::<String, Vec<String>>::new();
    for part in parts.iter().filter(|part| part.source.is_some()) {
        let name = format!("{} {}", part.name, part.version);
        let licence = part.license.as_deref();
        writeln!(text, "{name}: {}", licence.with_context(|| format!("{name} names no licence"))?)?;
        for entry in fs::read_dir(part.directory()?).with_context(|| name.clone())? {
            let entry = entry?;
            let upper = entry.file_name().to_string_lossy().to_uppercase();
            if FILES.iter().any(|start| upper.starts_with(start)) && entry.file_type()?.is_file() {
                let found = String::from_utf8_lossy(&fs::read(entry.path())?).trim().to_owned();
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
