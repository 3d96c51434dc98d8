//! Rust files that no `mod` names: the compiler never sees them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The files below `folder` that are not among `named`.
///
/// # Errors
/// A folder that can't be read.
pub fn find(folder: &Path, named: &BTreeSet<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut unnamed = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                // Another package may be below this one; what cargo builds is nobody's source.
                if !path.join("Cargo.toml").is_file() && !path.ends_with("target") {
                    waiting.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") && !named.contains(&path) {
                unnamed.push(path);
            }
        }
    }
    unnamed.sort();
    Ok(unnamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_packages_and_other_files_do_not_count() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "src/lib.rs",
            "src/a.rs",
            "src/b/c.rs",
            "README.md",
            "other/Cargo.toml",
            "other/lib.rs",
            "target/x.rs",
        ] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let named = BTreeSet::from([folder.path().join("src/lib.rs")]);
        let expected = ["src/a.rs", "src/b/c.rs"].map(|name| folder.path().join(name));
        assert_eq!(find(folder.path(), &named).unwrap(), expected);
    }
}
