//! `cargo xtask bless`: everything committed that is derived from something else.

use std::fs;

use anyhow::{Context, Result, anyhow};

/// Rewrite what is derived: the content hashes in the versions of profiles/, crds/, and the documents that the built-in
/// profiles give, crates/osm-render/tests/golden
#[derive(clap::Args)]
pub struct Bless {}

impl Bless {
    /// Rewrites, and names each file that changed.
    ///
    /// # Errors
    /// A profile that can't be read, or a file that can't be written.
    #[allow(clippy::unused_self)]
    pub fn run(&self) -> Result<()> {
        let mut changed = crate::crds::stale()?;
        for entry in fs::read_dir(crate::root().join("profiles"))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let blessed = osm_render::bless(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
            if blessed != text {
                changed.push((path, blessed));
            }
        }
        let folder = crate::root().join("crates/osm-render/tests/golden");
        for (name, text) in osm_render::goldens().map_err(|error| anyhow!(error))? {
            let path = folder.join(name);
            if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
                changed.push((path, text));
            }
        }
        for (path, text) in &changed {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            fs::write(path, text).with_context(|| path.display().to_string())?;
            println!("written: {}", path.display());
        }
        if changed.is_empty() {
            println!("nothing to do");
        }
        Ok(())
    }
}
