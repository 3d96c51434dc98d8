//! `cargo xtask crds`: the CustomResourceDefinitions, generated from the Rust types.

use anyhow::{Context, Result};
use osm_api::definitions;

use crate::generated::{self, File};

/// Write the CustomResourceDefinitions in crds/, which are generated from the types in crates/osm-api
#[derive(clap::Args)]
pub struct Crds {
    /// Write nothing; fail when a file is not what the types say
    #[arg(long)]
    check: bool,
}

impl Crds {
    /// Writes or checks.
    ///
    /// # Errors
    /// A file that differs (with `--check`), or can't be written.
    pub fn run(&self) -> Result<()> {
        let bad = "not what the types in crates/osm-api say (run `cargo xtask crds`)";
        generated::settle(&stale()?, self.check, "crds/ is up to date", bad)
    }
}

/// The files that are not what the types say, with what they should hold.
pub fn stale() -> Result<Vec<File>> {
    let folder = crate::root().join("crds");
    Ok(generated::stale(all()?.into_iter().map(|(name, text)| (folder.join(name), text))))
}

/// File names and texts of the definitions.
fn all() -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for crd in definitions::all() {
        let name = crd.metadata.name.as_deref().context("a definition without a name")?;
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
