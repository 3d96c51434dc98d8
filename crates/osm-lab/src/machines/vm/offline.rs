//! Reads the disk of a machine that is switched off, without root and without mounting it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::super::journal;
use super::super::run;
use super::disk::path_with_sbin;

/// `e2fsck` has repaired something, which is what a file system needs after a power cut.
const REPAIRED: i32 = 1;

/// A copy of a disk whose file system has caught up with its journal.
pub(super) struct Copy {
    folder: tempfile::TempDir,
    disk: PathBuf,
}

impl Copy {
    /// Copies a disk that consists of one ext4 file system.
    pub(super) fn of(disk: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let copy = folder.path().join("disk.raw");
        let [from, to] = [disk, &copy].map(|path| path.display().to_string());
        run("qemu-img", &["convert", "-O", "raw", &from, &to])?;
        let output = Command::new("e2fsck")
            .args(["-p", &to])
            .env("PATH", path_with_sbin())
            .output()
            .context("e2fsck can't be run")?;
        ensure!(
            matches!(output.status.code(), Some(0 | REPAIRED)),
            "e2fsck of the machine's disk ({}): {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Self { folder, disk: copy })
    }

    /// debugfs succeeds whatever happens, and complains on its standard error.
    fn debugfs(&self, request: &str) -> Result<(Vec<u8>, String)> {
        let output = Command::new("debugfs")
            .args(["-R", request])
            .arg(&self.disk)
            .env("PATH", path_with_sbin())
            .output()
            .context("debugfs can't be run")?;
        let said = String::from_utf8_lossy(&output.stderr);
        // Its first line is its version.
        let complaints: Vec<&str> = said.lines().skip(1).collect();
        Ok((output.stdout, complaints.join("\n")))
    }

    pub(super) fn has(&self, path: &str) -> Result<bool> {
        let (_, complaints) = self.debugfs(&format!("stat \"{}\"", absolute(path)))?;
        if complaints.contains("File not found") {
            return Ok(false);
        }
        ensure!(complaints.is_empty(), "{path}: {complaints}");
        Ok(true)
    }

    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        if !self.has(path)? {
            return Ok(None);
        }
        let (content, complaints) = self.debugfs(&format!("cat \"{}\"", absolute(path)))?;
        ensure!(complaints.is_empty(), "{path}: {complaints}");
        Ok(Some(content))
    }

    pub(super) fn journal(&self) -> Result<String> {
        let to = self.folder.path().display().to_string();
        // It can't give files their owners without root, and complains of each.
        self.debugfs(&format!("rdump /var/log/journal {to}"))?;
        journal::raw(&self.folder.path().join("journal"))
    }
}

fn absolute(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_disk_are_found_and_read() {
        super::super::require_programs().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let (root, raw, disk) = (
            scratch.path().join("root"),
            scratch.path().join("raw"),
            scratch.path().join("qcow2"),
        );
        std::fs::create_dir_all(root.join("var/lib/a b")).unwrap();
        std::fs::write(root.join("var/lib/a b/file"), "content").unwrap();
        std::os::unix::fs::symlink("/nowhere", root.join("link")).unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-d"])
            .arg(&root)
            .arg(&raw)
            .arg("16M")
            .env("PATH", path_with_sbin())
            .status()
            .unwrap();
        assert!(made.success());
        let [from, to] = [&raw, &disk].map(|path| path.display().to_string());
        run("qemu-img", &["convert", "-O", "qcow2", &from, &to]).unwrap();

        let copy = Copy::of(&disk).unwrap();
        assert!(copy.has("/var/lib/a b/file").unwrap());
        assert!(copy.has("link").unwrap(), "a link that leads nowhere is there");
        assert!(!copy.has("/var/lib/nothing").unwrap());
        assert_eq!(
            copy.read("/var/lib/a b/file").unwrap().as_deref(),
            Some(b"content".as_slice())
        );
        assert_eq!(copy.read("/var/lib/nothing").unwrap(), None);
        // Nothing was mounted, and what is no file system is said to be none.
        std::fs::write(&raw, vec![0; 1 << 20]).unwrap();
        run("qemu-img", &["convert", "-O", "qcow2", &from, &to]).unwrap();
        assert!(Copy::of(&disk).is_err());
    }
}
