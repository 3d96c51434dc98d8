//! `cargo xtask crds`: the CustomResourceDefinitions, generated from the Rust types.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use kube::CustomResourceExt;
use osm_api::{OperatingSystemConfig, OperatingSystemProfile};

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
        let stale = stale()?;
        if stale.is_empty() {
            println!("crds/ is up to date");
            return Ok(());
        }
        let names: Vec<_> = stale.iter().map(|(path, _)| path.display().to_string()).collect();
        if self.check {
            bail!("not what the types in crates/osm-api say (run `cargo xtask crds`): {}", names.join(", "));
        }
        for (path, text) in &stale {
            fs::write(path, text).with_context(|| path.display().to_string())?;
            println!("written: {}", path.display());
        }
        Ok(())
    }
}

/// The files that are not what the types say, with what they should hold.
pub fn stale() -> Result<Vec<(PathBuf, String)>> {
    let folder = crate::root().join("crds");
    let mut stale = Vec::new();
    for crd in [OperatingSystemProfile::crd(), OperatingSystemConfig::crd()] {
        let name = crd.metadata.name.as_deref().context("a definition without a name")?;
        let path = folder.join(format!("{name}.yaml"));
        let body = serde_saphyr::to_string(&crd)?;
        let text = format!("# Generated from crates/osm-api by `cargo xtask crds`. Don't edit.\n{body}");
        if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            stale.push((path, text));
        }
    }
    Ok(stale)
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
