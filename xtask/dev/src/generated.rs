//! Committed files that are generated: writing and checking them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// A file and the text that it should have.
pub type File = (PathBuf, String);

/// Whether a generator writes its files or only compares them.
#[derive(clap::Args)]
pub struct Generate {
    /// Write nothing; fail if a file is out of date
    #[arg(long)]
    check: bool,
}

impl Generate {
    /// As with `--check`.
    #[cfg(test)]
    pub const CHECK: Self = Self { check: true };

    /// Writes or checks the files of `cargo xtask <command>`.
    ///
    /// # Errors
    /// Files that can't be generated or written, or differ (with `--check`).
    pub fn run(&self, command: &str, files: Result<Vec<File>>) -> Result<()> {
        let stale = stale(files?);
        if self.check && !stale.is_empty() {
            let names: Vec<_> = stale.iter().map(|(path, _)| path.display().to_string()).collect();
            bail!("out of date (run `cargo xtask {command}`): {}", names.join(", "));
        }
        write(&stale)
    }
}

/// The files whose text differs or that do not exist.
pub fn stale(files: Vec<File>) -> Vec<File> {
    let differs = |(path, text): &File| fs::read_to_string(path).ok().as_deref() != Some(text);
    files.into_iter().filter(differs).collect()
}

/// Writes the stale files and prints their names.
///
/// # Errors
/// A file that can't be written.
pub fn write(stale: &[File]) -> Result<()> {
    if stale.is_empty() {
        println!("up to date");
    }
    for (path, text) in stale {
        fs::write(path, text).with_context(|| path.display().to_string())?;
        println!("written: {}", path.display());
    }
    Ok(())
}
