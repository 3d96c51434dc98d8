//! The templates and the data of the benchmark, a profile with everything that the built-in ones have.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

/// The directory of the templates, `NAME.tmpl`, and of `data.json`.
#[must_use]
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/profile")
}

/// Names and texts of the templates, and the data.
///
/// # Errors
/// A file that can't be read.
pub fn profile() -> Result<(Vec<(String, String)>, Value)> {
    let directory = directory();
    let mut templates = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "tmpl") {
            let name = path
                .file_name()
                .context("a file name")?
                .to_string_lossy()
                .into_owned();
            templates.push((name, fs::read_to_string(&path)?));
        }
    }
    templates.sort();
    let data = fs::read_to_string(directory.join("data.json"))?;
    Ok((templates, serde_json::from_str(&data)?))
}
