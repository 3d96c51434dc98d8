//! `cargo xtask bless`: everything committed that is derived from something else.

use std::fs;

use anyhow::{Context, Result, anyhow};

use crate::generated;

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
        let mut files = Vec::new();
        for entry in fs::read_dir(crate::root().join("profiles"))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "yaml") {
                continue;
            }
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let blessed = osm_render::bless(&text).map_err(|error| anyhow!("{}: {error}", path.display()))?;
            files.push((path, blessed));
        }
        let folder = crate::root().join("crates/osm-render/tests/golden");
        for (name, text) in osm_render::goldens().map_err(|error| anyhow!(error))? {
            files.push((folder.join(name), text));
        }
        let changed = [crate::crds::stale()?, generated::stale(files)].concat();
        generated::settle(&changed, false, "nothing to do", "")
    }
}
