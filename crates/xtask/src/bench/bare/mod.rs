//! Bare clients: what an implementation would cost if it did nothing but send its writes.

mod go;
mod recording;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use osm_bare_client::writes::Writes;

pub use self::go::writes as of_go;
pub use self::recording::record as of_services;
use super::contender::{BARE_GO, BARE_OWN, Program};

/// The program that sends writes.
pub const CLIENT: &str = "osm-bare-client";

/// Stores these writes in `folder`, and returns the program that sends them. `client` is the path of [`CLIENT`].
///
/// # Errors
/// A file that can't be written.
pub fn program(name: &str, writes: &Writes, client: &Path, folder: &Path) -> Result<Program> {
    debug_assert!([BARE_GO, BARE_OWN].contains(&name));
    let file: PathBuf = folder.join(format!("{name}.json"));
    std::fs::write(&file, serde_json::to_vec(writes)?).with_context(|| file.display().to_string())?;
    Ok(Program {
        name: name.to_owned(),
        command: format!("exec '{}' '{}'", client.display(), file.display()),
        bare: true,
        plain_configs: name == BARE_GO,
    })
}
