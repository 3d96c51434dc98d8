//! Writes files into one compressed archive.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde_json::Value;
use tar::{Builder, Header};

use crate::output;

/// Folder of everything in an archive.
const FOLDER: &str = "osm-support";

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path below the folder of the archive.
    pub name: String,
    pub text: String,
}

impl File {
    pub fn text(name: &str, text: String) -> Self {
        Self {
            name: name.to_owned(),
            text,
        }
    }

    pub fn json(name: &str, value: &Value) -> Self {
        Self::text(name, output::json(value))
    }
}

/// Writes a new archive.
///
/// # Errors
/// The file exists, or can't be written.
pub fn write(path: &Path, files: &[File], now: Timestamp) -> Result<()> {
    let failed = || {
        format!(
            "cannot write {}; check the path, or name another file with -o",
            path.display()
        )
    };
    let file = fs::File::create_new(path).with_context(failed)?;
    let mut archive = Builder::new(GzEncoder::new(file, Compression::default()));
    for File { name, text } in files {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(text.len())?);
        header.set_mode(0o644);
        header.set_mtime(u64::try_from(now.as_second()).unwrap_or_default());
        archive
            .append_data(&mut header, format!("{FOLDER}/{name}"), text.as_bytes())
            .with_context(failed)?;
    }
    let written = archive.into_inner().and_then(GzEncoder::finish);
    written.and_then(|file| file.sync_all()).with_context(failed)
}
