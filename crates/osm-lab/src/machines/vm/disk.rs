//! Disks of virtual machines: built from Debian packages once, and cached outside the tree.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use osm_judges::go_module::{cache_root, short};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::super::image::Release;
use super::super::run;

/// A recipe of a disk that is built here.
#[derive(Debug, Clone, Copy)]
struct Recipe {
    /// Its script, and where that is.
    text: &'static str,
    path: &'static str,
    /// The beginning of the disk's name in the cache.
    name: &'static str,
    /// What a message says after the release.
    variant: &'static str,
    reader: Reader,
    /// The kernel's file, and the initramfs.
    kernel: &'static str,
    initramfs: Option<&'static str>,
}

const CLOUD_INIT: Recipe = Recipe {
    text: include_str!("image.sh"),
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/src/machines/vm/image.sh"),
    name: "",
    variant: "",
    reader: Reader::CloudInit,
    kernel: "vmlinuz",
    initramfs: Some("initrd.img"),
};

const IGNITION: Recipe = Recipe {
    text: include_str!("ignition.sh"),
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/src/machines/vm/ignition.sh"),
    name: "ignition-",
    variant: " with Ignition",
    reader: Reader::Ignition,
    kernel: "grub",
    initramfs: None,
};

/// A disk that many machines boot from. Each writes to a layer of its own.
#[derive(Debug, Clone)]
pub struct Disk {
    /// The disk's image.
    pub(super) path: PathBuf,
    /// Its format, as QEMU names it.
    pub(super) format: &'static str,
    /// The kernel, where QEMU starts it. Other disks have a boot loader.
    pub(super) kernel: Option<Kernel>,
    /// What reads the user data of machines that boot from it.
    pub(super) reader: Reader,
}

/// What reads user data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    CloudInit,
    Ignition,
}

/// A kernel that QEMU itself loads. The root file system is then the whole disk.
#[derive(Debug, Clone)]
pub(super) struct Kernel {
    pub(super) kernel: PathBuf,
    /// None where the kernel is a boot loader, which finds kernel and initramfs on the disk.
    pub(super) initramfs: Option<PathBuf>,
}

impl Disk {
    /// The disk of a release: from the cache, else built. It needs Debian's archive and takes minutes, but no root.
    pub(crate) fn ensure(release: Release, progress: impl Fn(&str)) -> Result<Self> {
        CLOUD_INIT.disk(release, progress)
    }

    /// The same of Debian 12 with Ignition instead of cloud-init.
    pub(crate) fn with_ignition(progress: impl Fn(&str)) -> Result<Self> {
        IGNITION.disk(Release::Debian12, progress)
    }
}

impl Recipe {
    fn disk(&self, release: Release, progress: impl Fn(&str)) -> Result<Disk> {
        let architecture = debian_architecture()?;
        let key = short(Sha256::new_with_prefix(format!("{architecture}{}", self.text)));
        let cache = cache_root()?.join("disks");
        let folder = cache.join(format!("{}{}-{key}", self.name, release.suite()));
        if !folder.is_dir() {
            fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
            let lock = File::create(cache.join(".lock"))?;
            lock.lock()?;
            if !folder.is_dir() {
                self.build(release, architecture, &cache, &folder, &progress)?;
            }
        }
        Ok(Disk {
            path: folder.join("disk.raw"),
            format: "raw",
            kernel: Some(Kernel {
                kernel: folder.join(self.kernel),
                initramfs: self.initramfs.map(|name| folder.join(name)),
            }),
            reader: self.reader,
        })
    }

    /// The caller holds the lock, so what is half built is left by a process that was killed.
    fn build(
        &self,
        release: Release,
        architecture: &str,
        cache: &Path,
        folder: &Path,
        progress: &impl Fn(&str),
    ) -> Result<()> {
        let started = Instant::now();
        let system = format!("{release}{}", self.variant);
        progress(&format!(
            "disk of {system}: building from Debian's packages, about two minutes"
        ));
        let building = cache.join(".building");
        if building.exists() {
            remove(&building)?;
        }
        fs::create_dir(&building)?;
        let output = Command::new("sh")
            .args([self.path, release.suite(), architecture])
            .arg(&building)
            // Users who are not root often have no path to mkfs and chroot.
            .env("PATH", path_with_sbin())
            .output()
            .context("sh can't be run")?;
        if !output.status.success() {
            remove(&building)?;
            let words = String::from_utf8_lossy(&output.stderr);
            let last: Vec<&str> = words.lines().rev().take(10).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            anyhow::bail!("the disk of {system} can't be built:\n{}", last.join("\n"));
        }
        fs::rename(&building, folder)?;
        progress(&format!(
            "disk of {system}: built in {} s",
            started.elapsed().as_secs()
        ));
        Ok(())
    }
}

/// The least size of a machine's disk. An image that is larger stays as it is, and cloud-init grows the file system of a smaller one.
const SIZE: u64 = 8 << 30;

impl Disk {
    /// Makes a disk whose content is this one's, until a machine changes it.
    pub(super) fn layer(&self, layer: &Path) -> Result<()> {
        let [base, layer] = [self.path.as_path(), layer].map(|path| path.display().to_string());
        let info = run("qemu-img", &["info", "--output=json", "-f", self.format, &base])
            .with_context(|| format!("{base} is no disk image"))?;
        let info: Value = serde_json::from_str(&info).context("what qemu-img says of a disk")?;
        let size = info.get("virtual-size").and_then(Value::as_u64);
        let size = size.context("a disk's size")?.max(SIZE).to_string();
        let arguments = [
            "create",
            "-q",
            "-f",
            "qcow2",
            "-b",
            &base,
            "-F",
            self.format,
            &layer,
            &size,
        ];
        run("qemu-img", &arguments)
            .context("the machine's disk")
            .map(drop)
    }
}

/// Makes a disk of so many bytes, on which the program makes a file system, or swap.
pub(super) fn format(disk: &Path, bytes: u64, program: &str, arguments: &[&str]) -> Result<()> {
    File::create(disk)?.set_len(bytes)?;
    let path = disk.display().to_string();
    let output = with_sbin(program, &[arguments, &[&path]].concat())?;
    ensure!(
        output.status.success(),
        "{program} of {}: {}",
        disk.display(),
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(())
}

/// Debian's name of the host's architecture, which is that of the machines.
fn debian_architecture() -> Result<&'static str> {
    ensure!(
        std::env::consts::ARCH == "x86_64",
        "virtual machines are x86-64, and this host is {}",
        std::env::consts::ARCH
    );
    Ok("amd64")
}

/// Removes a folder of files that may belong to the other users of a user namespace.
fn remove(folder: &Path) -> Result<()> {
    if fs::remove_dir_all(folder).is_ok() {
        return Ok(());
    }
    let folder = folder.display().to_string();
    run(
        "unshare",
        &["--user", "--map-root-user", "--map-auto", "rm", "-r", &folder],
    )
    .map(drop)
}

/// Runs a program that may be in a folder that only root's `PATH` usually has, and returns what it printed.
pub(super) fn with_sbin(program: &str, arguments: &[&str]) -> Result<Output> {
    Command::new(program)
        .args(arguments)
        .env("PATH", path_with_sbin())
        .output()
        .with_context(|| format!("{program} can't be run"))
}

/// `PATH` with the folders that only root's usually has.
pub(super) fn path_with_sbin() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")
}
