//! `cargo xtask crds`: generates the CustomResourceDefinitions from the Rust types.

use anyhow::{Context, Result};
use osm_api::definitions;

use crate::generated::{self, File};

/// Generate the CustomResourceDefinitions in crds/ from the types in crates/osm-api
#[derive(clap::Args)]
pub struct Crds {
    /// Write nothing; fail if a file is out of date
    #[arg(long)]
    check: bool,
}

impl Crds {
    /// Writes or checks the files.
    ///
    /// # Errors
    /// A file that differs (with `--check`), or can't be written.
    pub fn run(&self) -> Result<()> {
        let bad = "out of date (run `cargo xtask crds`)";
        generated::settle(&stale()?, self.check, "crds/ is up to date", bad)
    }
}

/// The files that are out of date, with their new text.
pub fn stale() -> Result<Vec<File>> {
    let folder = crate::root().join("crds");
    Ok(generated::stale(
        all()?.into_iter().map(|(name, text)| (folder.join(name), text)),
    ))
}

/// File names and texts of the definitions.
fn all() -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for crd in definitions::all() {
        let name = crd
            .metadata
            .name
            .as_deref()
            .context("a CustomResourceDefinition without a name")?;
        let body = serde_saphyr::to_string(&crd)?;
        let text = format!("# Generated from crates/osm-api by `cargo xtask crds`. Don't edit.\n{body}");
        files.push((format!("{name}.yaml"), text));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_definitions_are_what_the_types_say() {
        let stale: Vec<_> = stale().unwrap().into_iter().map(|(path, _)| path).collect();
        assert!(stale.is_empty(), "run `cargo xtask crds`: {stale:?}");
    }
}
