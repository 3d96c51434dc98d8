//! Disks that machines boot from: built from Debian packages once and cached outside the tree, or given by
//! path or URL.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use osm_judges::go_module::{cache_root, short};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{path_with_sbin, run};

/// A release of Debian: a stand-in for a cloud's Ubuntu image, with the same package manager and the same
/// cloud-init.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// systemd 252, cloud-init 22.4.
    Debian12,
    /// systemd 257, cloud-init 25.1.
    Debian13,
}

impl Release {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Debian12, Self::Debian13];

    fn suite(self) -> &'static str {
        match self {
            Self::Debian12 => "bookworm",
            Self::Debian13 => "trixie",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Debian {}", if *self == Self::Debian12 { 12 } else { 13 })
    }
}

/// What runs on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum System {
    /// A release of Debian, built here.
    Debian(Release),
    /// Debian 12 whose user data Ignition reads in the initramfs, built here. It stands in for Flatcar.
    DebianWithIgnition,
    /// An image that was built elsewhere. cloud-init reads its user data.
    Given(Given),
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Debian(release) => release.fmt(f),
            Self::DebianWithIgnition => write!(f, "{} with Ignition", Release::Debian12),
            Self::Given(image) => f.write_str(image.name()),
        }
    }
}

/// A disk that many machines boot from. Each writes to a layer of its own.
#[derive(Debug, Clone)]
pub struct Image {
    path: PathBuf,
    /// As QEMU names it.
    format: &'static str,
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

/// The least size of a machine's disk. An image that is larger stays as it is, and cloud-init grows the file
/// system of a smaller one.
const SIZE: u64 = 8 << 30;

impl Image {
    /// The image of a system. One of Debian comes from the cache, else it is built from Debian's archive,
    /// which takes minutes. One that was given is verified.
    ///
    /// # Errors
    /// When it can't be built, can't be had, or is not what its checksum says.
    pub fn ensure(system: &System, progress: impl Fn(&str)) -> Result<Self> {
        match system {
            System::Debian(release) => CLOUD_INIT.image(*release, progress),
            System::DebianWithIgnition => IGNITION.image(Release::Debian12, progress),
            System::Given(given) => given.image(progress),
        }
    }

    /// Makes a disk whose content is this one's, until a machine changes it.
    pub(super) fn layer(&self, layer: &Path) -> Result<()> {
        let [base, layer] = [self.path.as_path(), layer].map(|path| path.display().to_string());
        let info = run("qemu-img", &["info", "--output=json", "-f", self.format, &base])
            .with_context(|| format!("{base} is no disk image"))?;
        let info: Value = serde_json::from_str(&info).context("what qemu-img says of a disk")?;
        let size = info.get("virtual-size").and_then(Value::as_u64);
        let size = size.context("a disk's size")?.max(SIZE).to_string();
        let mut arguments = vec!["create", "-q", "-f", "qcow2", "-b", &base, "-F", self.format];
        arguments.extend([layer.as_str(), &size]);
        run("qemu-img", &arguments)
            .context("the machine's disk")
            .map(drop)
    }
}

/// A recipe of a disk that is built here.
struct Recipe {
    /// Its script, and where that is.
    text: &'static str,
    path: &'static str,
    /// The beginning of the disk's name in the cache.
    name: &'static str,
    reader: Reader,
    /// The kernel's file, and the initramfs.
    kernel: &'static str,
    initramfs: Option<&'static str>,
}

const CLOUD_INIT: Recipe = Recipe {
    text: include_str!("image.sh"),
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/src/machines/image.sh"),
    name: "",
    reader: Reader::CloudInit,
    kernel: "vmlinuz",
    initramfs: Some("initrd.img"),
};

const IGNITION: Recipe = Recipe {
    text: include_str!("ignition.sh"),
    path: concat!(env!("CARGO_MANIFEST_DIR"), "/src/machines/ignition.sh"),
    name: "ignition-",
    reader: Reader::Ignition,
    kernel: "grub",
    initramfs: None,
};

impl Recipe {
    fn image(&self, release: Release, progress: impl Fn(&str)) -> Result<Image> {
        ensure!(
            std::env::consts::ARCH == "x86_64",
            "virtual machines are x86-64, and this host is {}",
            std::env::consts::ARCH
        );
        let key = short(Sha256::new_with_prefix(format!("amd64{}", self.text)));
        let cache = cache_root()?.join("disks");
        let folder = cache.join(format!("{}{}-{key}", self.name, release.suite()));
        if !folder.is_dir() {
            fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
            let lock = File::create(cache.join(".lock"))?;
            lock.lock()?;
            if !folder.is_dir() {
                self.build(release, &cache, &folder, &progress)?;
            }
        }
        Ok(Image {
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
    fn build(&self, release: Release, cache: &Path, folder: &Path, progress: &impl Fn(&str)) -> Result<()> {
        let started = Instant::now();
        let disk = format!("disk of {}{release}", self.name);
        progress(&format!(
            "{disk}: building from Debian's packages, about two minutes"
        ));
        let building = cache.join(".building");
        if building.exists() {
            remove(&building)?;
        }
        fs::create_dir(&building)?;
        let output = Command::new("sh")
            .args([self.path, release.suite(), "amd64"])
            .arg(&building)
            // Users who are not root often have no path to mkfs and chroot.
            .env("PATH", path_with_sbin())
            .output()
            .context("sh can't be run")?;
        if !output.status.success() {
            remove(&building)?;
            let words = String::from_utf8_lossy(&output.stderr);
            let last: Vec<&str> = words
                .lines()
                .skip(words.lines().count().saturating_sub(10))
                .collect();
            bail!("{disk} can't be built:\n{}", last.join("\n"));
        }
        fs::rename(&building, folder)?;
        progress(&format!("{disk}: built in {} s", started.elapsed().as_secs()));
        Ok(())
    }
}

/// Removes a folder of files that may belong to the other users of a user namespace.
fn remove(folder: &Path) -> Result<()> {
    if fs::remove_dir_all(folder).is_ok() {
        return Ok(());
    }
    let folder = folder.display().to_string();
    let arguments = ["--user", "--map-root-user", "--map-auto", "rm", "-r", &folder];
    run("unshare", &arguments).map(drop)
}

/// An image of a distributor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// A path, or a URL that begins with `http://` or `https://`.
    pub location: String,
    /// The SHA-256 that it must have, in hexadecimal.
    pub sha256: String,
}

impl Given {
    /// The name of its file.
    #[must_use]
    pub fn name(&self) -> &str {
        self.location.rsplit('/').next().unwrap_or_default()
    }

    /// The disk, verified. A download is kept in the cache; what is not as expected is removed.
    fn image(&self, progress: impl Fn(&str)) -> Result<Image> {
        let path = if self.location.contains("://") {
            self.download(progress)?
        } else {
            let path = PathBuf::from(&self.location);
            self.verify(&path)?;
            // QEMU runs in another folder than the user.
            path.canonicalize()?
        };
        Ok(Image {
            format: format(&path)?,
            path,
            kernel: None,
            reader: Reader::CloudInit,
        })
    }

    fn download(&self, progress: impl Fn(&str)) -> Result<PathBuf> {
        let folder = cache_root()?.join("disks/downloads");
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let path = folder.join(self.sha256.to_lowercase());
        let lock = File::create(folder.join(".lock"))?;
        lock.lock()?;
        if path.is_file() && self.verify(&path).is_ok() {
            return Ok(path);
        }
        progress(&format!("downloading {}", self.location));
        let part = folder.join(".part").display().to_string();
        run("curl", &["-fsSL", "--retry", "3", "-o", &part, &self.location])?;
        if let Err(error) = self.verify(Path::new(&part)) {
            fs::remove_file(&part)?;
            return Err(error);
        }
        fs::rename(&part, &path)?;
        Ok(path)
    }

    fn verify(&self, path: &Path) -> Result<()> {
        let mut hash = Sha256::new();
        let mut file = File::open(path).with_context(|| path.display().to_string())?;
        io::copy(&mut file, &mut hash)?;
        let found: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        ensure!(
            found.eq_ignore_ascii_case(&self.sha256),
            "{} has the SHA-256 {found}, and {} was expected: it is damaged, or another build; compare with the distributor's signed list",
            self.location,
            self.sha256
        );
        Ok(())
    }
}

/// The format of a disk image, as QEMU names it.
fn format(path: &Path) -> Result<&'static str> {
    let mut magic = Vec::new();
    File::open(path)?.take(6).read_to_end(&mut magic)?;
    match magic.as_slice() {
        [b'Q', b'F', b'I', 0xfb, ..] => Ok("qcow2"),
        [0xfd, b'7', b'z', b'X', b'Z', ..] | [0x1f, 0x8b, ..] | [b'B', b'Z', b'h', ..] => bail!(
            "{} is compressed: unpack it, and give the disk with its own checksum",
            path.display()
        ),
        _ => Ok("raw"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_image_with_the_expected_checksum_is_taken() {
        // SHA-256 of `abc`, from FIPS 180-2.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("image");
        let given = |sha256: &str| Given {
            location: file.display().to_string(),
            sha256: sha256.to_owned(),
        };
        let error = format!("{:#}", given(abc).image(|_| ()).unwrap_err());
        assert!(error.contains("No such file"), "{error}");
        fs::write(&file, "abc").unwrap();
        for sha256 in [abc, &abc.to_uppercase()] {
            let image = given(sha256).image(|_| ()).unwrap();
            assert_eq!((image.format, image.kernel.is_none()), ("raw", true));
        }
        fs::write(&file, "abd").unwrap();
        let error = given(abc).image(|_| ()).unwrap_err().to_string();
        assert!(error.contains(abc) && error.contains("signed list"), "{error}");
    }
}
