//! Committed files that follow from something else: written, or checked.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// A file, and what it is to hold.
pub type File = (PathBuf, String);

/// Those that don't hold it.
pub fn stale(files: impl IntoIterator<Item = File>) -> Vec<File> {
    let differs = |(path, text): &File| fs::read_to_string(path).ok().as_deref() != Some(text);
    files.into_iter().filter(differs).collect()
}

/// Writes what is stale, and names it; says `good` where nothing is.
///
/// # Errors
/// With `check`, which writes nothing: `bad`, and the files. A file that can't be written.
pub fn settle(stale: &[File], check: bool, good: &str, bad: &str) -> Result<()> {
    if stale.is_empty() {
        println!("{good}");
        return Ok(());
    }
    if check {
        let names: Vec<_> = stale.iter().map(|(path, _)| path.display().to_string()).collect();
        bail!("{bad}: {}", names.join(", "));
    }
    for (path, text) in stale {
        fs::create_dir_all(path.parent().unwrap_or(path))?;
        fs::write(path, text).with_context(|| path.display().to_string())?;
        println!("written: {}", path.display());
    }
    Ok(())
}
