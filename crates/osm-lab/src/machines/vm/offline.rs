//! Reads the disk of a machine that is switched off, without root and without mounting it.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::super::journal;
use super::super::run;
use super::disk::with_sbin;

/// `e2fsck` has repaired something, which is what a file system needs after a power cut.
const REPAIRED: i32 = 1;

/// What a disk consists of.
#[derive(Clone, Copy)]
pub(super) enum Layout {
    /// One ext4 file system.
    FileSystem,
    /// Partitions. The largest one has the root file system, which is ext4.
    Partitions,
}

/// A copy of a disk whose root file system has caught up with its journal.
pub(super) struct Copy {
    folder: tempfile::TempDir,
    /// As e2fsprogs name a file system: the file, and where in it the file system begins.
    file_system: String,
}

impl Copy {
    /// # Errors
    /// Also when the root file system is not ext4.
    pub(super) fn of(disk: &Path, layout: Layout) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let copy = folder.path().join("disk.raw");
        let [from, to] = [disk, &copy].map(|path| path.display().to_string());
        run("qemu-img", &["convert", "-O", "raw", &from, &to])?;
        let offset = match layout {
            Layout::FileSystem => 0,
            Layout::Partitions => largest_partition(&copy)?,
        };
        let file_system = format!("{to}?offset={offset}");
        let output = with_sbin("e2fsck", &["-p", &file_system])?;
        ensure!(
            matches!(output.status.code(), Some(0 | REPAIRED)),
            "e2fsck of the machine's disk ({}); only root file systems of the type ext4 can be read while a machine is off: {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(Self { folder, file_system })
    }

    /// debugfs succeeds whatever happens, and complains on its standard error.
    fn debugfs(&self, request: &str) -> Result<(Vec<u8>, String)> {
        let output = with_sbin("debugfs", &["-R", request, &self.file_system])?;
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

/// The part of what `sfdisk --json` prints that is read here.
#[derive(Deserialize)]
struct Printed {
    partitiontable: Table,
}

#[derive(Deserialize)]
struct Table {
    /// Bytes.
    sectorsize: u64,
    partitions: Vec<Partition>,
}

/// Both in sectors.
#[derive(Deserialize)]
struct Partition {
    start: u64,
    size: u64,
}

/// Where it begins, in bytes.
fn largest_partition(disk: &Path) -> Result<u64> {
    let disk = disk.display().to_string();
    let output = with_sbin("sfdisk", &["--json", &disk])?;
    ensure!(
        output.status.success(),
        "the partitions of the machine's disk: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let Printed {
        partitiontable: table,
    } = serde_json::from_slice(&output.stdout).context("sfdisk --json")?;
    let largest = table.partitions.iter().max_by_key(|partition| partition.size);
    let largest = largest.context("the machine's disk has no partition")?;
    Ok(largest.start * table.sectorsize)
}

fn absolute(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(program: &str, arguments: &[&str]) {
        let output = with_sbin(program, arguments).unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    }

    /// A disk with a file and a link, in the format qcow2. The file system begins after so many MiB.
    fn disk(scratch: &Path, mebibytes: u64) -> String {
        let [root, raw, disk] = ["root", "raw", "qcow2"].map(|name| scratch.join(name).display().to_string());
        std::fs::create_dir_all(scratch.join("root/var/lib/a b")).unwrap();
        std::fs::write(scratch.join("root/var/lib/a b/file"), "content").unwrap();
        std::os::unix::fs::symlink("/nowhere", scratch.join("root/link")).unwrap();
        let file = std::fs::File::create(&raw).unwrap();
        file.set_len((mebibytes + 18) << 20).unwrap();
        let offset = format!("offset={}", mebibytes << 20);
        made("mkfs.ext4", &["-q", "-d", &root, "-E", &offset, &raw, "16M"]);
        if mebibytes > 0 {
            let table = format!(
                "label: gpt\nsize={}M\nstart={mebibytes}M, size=16M\n",
                mebibytes - 1
            );
            std::fs::write(scratch.join("table"), table).unwrap();
            made(
                "sh",
                &["-c", &format!("sfdisk -q {raw} <{}/table", scratch.display())],
            );
        }
        run("qemu-img", &["convert", "-O", "qcow2", &raw, &disk]).unwrap();
        disk
    }

    #[test]
    fn files_of_a_disk_are_found_and_read() {
        super::super::require_programs().unwrap();
        for (layout, mebibytes) in [(Layout::FileSystem, 0), (Layout::Partitions, 8)] {
            let scratch = tempfile::tempdir().unwrap();
            let copy = Copy::of(Path::new(&disk(scratch.path(), mebibytes)), layout).unwrap();
            assert!(copy.has("/var/lib/a b/file").unwrap());
            assert!(copy.has("link").unwrap(), "a link that leads nowhere is there");
            assert!(!copy.has("/var/lib/nothing").unwrap());
            assert_eq!(
                copy.read("/var/lib/a b/file").unwrap().as_deref(),
                Some(b"content".as_slice())
            );
            assert_eq!(copy.read("/var/lib/nothing").unwrap(), None);
        }
    }

    #[test]
    fn what_has_no_file_system_or_no_partitions_is_refused() {
        super::super::require_programs().unwrap();
        let scratch = tempfile::tempdir().unwrap();
        let [raw, disk] = ["raw", "qcow2"].map(|name| scratch.path().join(name).display().to_string());
        std::fs::write(&raw, vec![0; 1 << 20]).unwrap();
        run("qemu-img", &["convert", "-O", "qcow2", &raw, &disk]).unwrap();
        for (layout, part) in [(Layout::FileSystem, "ext4"), (Layout::Partitions, "partition")] {
            let error = Copy::of(Path::new(&disk), layout).err().unwrap();
            assert!(format!("{error:#}").contains(part), "{error:#}");
        }
    }
}
