//! `cargo xtask crds`: generates the CustomResourceDefinitions from the Rust types, in `crds/` and in the
//! chart, which can't read files outside its folder.

use anyhow::{Context, Result};
use osm_api::definitions;

use crate::generated::File;

/// The files that are generated.
pub fn files() -> Result<Vec<File>> {
    let folders = ["crds", "charts/operating-system-manager/files/crds"];
    let mut files = Vec::new();
    for crd in definitions::all() {
        let name = crd
            .metadata
            .name
            .as_deref()
            .context("a CustomResourceDefinition without a name")?;
        let body = serde_saphyr::to_string(&crd)?;
        let text = format!("# Generated from crates/osm-api by `cargo xtask crds`. Don't edit.\n{body}");
        files.extend(folders.map(|folder| {
            let path = crate::root().join(folder).join(format!("{name}.yaml"));
            (path, text.clone())
        }));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::Generate;

    #[test]
    fn the_committed_definitions_are_what_the_types_say() {
        Generate::CHECK.run("crds", files()).unwrap();
    }
}
