//! What a virtual machine takes of its host, and whether the host has it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;

/// What QEMU needs besides the memory of its guest.
const OWN_MEMORY_MIB: u64 = 256;

/// Room for the disk of a machine. Until it is a node, a machine with Debian 12 writes 400 MiB; other images may write more.
const DISK_MIB: u64 = 2048;

/// Held while a machine starts, until QEMU has taken all of its guest's memory.
pub(super) static STARTING: Mutex<()> = Mutex::new(());

/// # Errors
/// When the host has not enough memory for a guest with so much: what there is, what is needed, and what to do.
pub(super) fn require_memory(memory_mib: u64) -> Result<()> {
    let meminfo = fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    enough_memory(available_mib(&meminfo)?, memory_mib + OWN_MEMORY_MIB)
}

/// # Errors
/// When there is no room for a machine whose files are in `directory`: what there is, what is needed, and what to do.
pub(super) fn require_disk(directory: &Path) -> Result<()> {
    let disk = rustix::fs::statvfs(directory).with_context(|| directory.display().to_string())?;
    enough_disk(disk.f_bavail.saturating_mul(disk.f_frsize) >> 20, directory)
}

fn available_mib(meminfo: &str) -> Result<u64> {
    let available = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    Ok(available.context("/proc/meminfo has no MemAvailable")? >> 10)
}

fn enough_memory(there: u64, needed: u64) -> Result<()> {
    ensure!(
        there >= needed,
        "a virtual machine needs {needed} MiB of memory, and {there} MiB are available: end other programs, or run fewer machines at the \
         same time with --jobs 1"
    );
    Ok(())
}

fn enough_disk(there: u64, directory: &Path) -> Result<()> {
    ensure!(
        there >= DISK_MIB,
        "a virtual machine needs {DISK_MIB} MiB on the disk of {}, which has {there} MiB: make room, or set TMPDIR to a folder on another \
         disk",
        directory.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_with_what_to_do() {
        let meminfo = "MemTotal:  4096000 kB\nMemFree:  1 kB\nMemAvailable:  1048576 kB\n";
        assert_eq!(available_mib(meminfo).unwrap(), 1024);
        assert!(available_mib("MemTotal: 1 kB\n").is_err());
        enough_memory(2304, 2304).unwrap();
        let error = enough_memory(1024, 2304).unwrap_err().to_string();
        assert!(
            ["2304 MiB", "1024 MiB", "--jobs 1"]
                .iter()
                .all(|text| error.contains(text)),
            "{error}"
        );
        let directory = Path::new("/some/where");
        enough_disk(DISK_MIB, directory).unwrap();
        let error = enough_disk(100, directory).unwrap_err().to_string();
        assert!(
            error.contains("/some/where") && error.contains("TMPDIR"),
            "{error}"
        );
    }
}
