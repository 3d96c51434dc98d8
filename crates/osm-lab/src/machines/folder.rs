//! A machine's folder.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// A folder that is removed when it is dropped.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder of a new machine.
    pub(super) fn create(lab: &Path, machine: &str) -> Result<Self> {
        let path = lab.join("machines").join(machine);
        ensure!(!path.exists(), "there is a machine {machine} already");
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left goes with the folder of the lab.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_its_machines_alone_and_goes_with_it() {
        let lab = tempfile::tempdir().unwrap();
        let folder = Folder::create(lab.path(), "one").unwrap();
        fs::write(folder.join("disk"), "content").unwrap();
        assert!(Folder::create(lab.path(), "one").is_err());
        let path = folder.to_path_buf();
        drop(folder);
        assert!(!path.exists());
        Folder::create(lab.path(), "one").unwrap();
    }
}
