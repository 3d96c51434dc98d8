//! Disk images that a user gives, by path or URL. An image boots only if its SHA-256 is the expected one.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use osm_judges::go_module::cache_root;
use sha2::{Digest, Sha256};

use super::disk::Disk;

/// An image of a distributor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// Its name, such as `ubuntu-24.04`.
    pub name: String,
    /// A path, or a URL that begins with `http://` or `https://`.
    pub location: String,
    /// Its SHA-256 in hexadecimal.
    pub sha256: String,
}

/// A server that sends less than a kilobyte per second for a minute is given up.
const DOWNLOAD: [&str; 10] = [
    "--fail",
    "--location",
    "--silent",
    "--show-error",
    "--connect-timeout",
    "30",
    "--speed-limit",
    "1000",
    "--speed-time",
    "60",
];

impl Given {
    /// The disk, verified. A download is kept in the cache, and one that is not what was expected is removed.
    pub(crate) fn disk(&self, progress: impl Fn(&str)) -> Result<Disk> {
        let path = match self.is_url() {
            true => self.download(&progress)?,
            false => {
                let path = PathBuf::from(&self.location);
                ensure!(
                    path.is_file(),
                    "image {}: there is no file {}",
                    self.name,
                    self.location
                );
                self.verify(&path)?;
                // QEMU runs in another folder than the user.
                path.canonicalize()?
            }
        };
        Ok(Disk {
            format: format(&path)?,
            path,
            kernel: None,
        })
    }

    fn is_url(&self) -> bool {
        ["http://", "https://"]
            .iter()
            .any(|scheme| self.location.starts_with(scheme))
    }

    fn download(&self, progress: &impl Fn(&str)) -> Result<PathBuf> {
        let cache = cache_root()?.join("disks/downloads");
        fs::create_dir_all(&cache).with_context(|| cache.display().to_string())?;
        let path = cache.join(&self.sha256);
        let lock = File::create(cache.join(".lock"))?;
        lock.lock()?;
        if path.is_file() {
            self.verify(&path)?;
            return Ok(path);
        }
        progress(&format!("image {}: downloading {}", self.name, self.location));
        let part = cache.join(".part");
        let fetched = self.fetch(&part).and_then(|()| self.verify(&part));
        if fetched.is_err() {
            // Nothing of it is left, whatever it is.
            let _ = fs::remove_file(&part);
        }
        fetched?;
        fs::rename(&part, &path)?;
        Ok(path)
    }

    fn fetch(&self, to: &Path) -> Result<()> {
        let output = Command::new("curl")
            .args(DOWNLOAD)
            .arg("--output")
            .arg(to)
            .arg(&self.location)
            .output()
            .context("curl can't be run: it is in the Debian package curl")?;
        ensure!(
            output.status.success(),
            "image {} can't be downloaded from {}: {}\ndownload it where that works, and give its path: --image {}=PATH",
            self.name,
            self.location,
            String::from_utf8_lossy(&output.stderr).trim_end(),
            self.name
        );
        Ok(())
    }

    fn verify(&self, path: &Path) -> Result<()> {
        let found = sha256(path)?;
        if found != self.sha256.to_lowercase() {
            bail!(
                "image {}: {} has the SHA-256 {found}, and {} was expected: it is damaged, or another build; compare with the \
                 distributor's signed list",
                self.name,
                self.location,
                self.sha256
            );
        }
        Ok(())
    }
}

fn sha256(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let length = file.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        hash.write_all(buffer.get(..length).unwrap_or_default())?;
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
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

    /// SHA-256 of `abc`, from FIPS 180-2.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn given(location: &Path, sha256: &str) -> Given {
        Given {
            name: "some".to_owned(),
            location: location.display().to_string(),
            sha256: sha256.to_owned(),
        }
    }

    #[test]
    fn only_an_image_with_the_expected_checksum_is_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("image");
        fs::write(&file, "abc").unwrap();
        let disk = given(&file, ABC).disk(|_| ()).unwrap();
        assert_eq!(disk.format, "raw");
        assert!(disk.kernel.is_none());
        given(&file, &ABC.to_uppercase()).disk(|_| ()).unwrap();
        fs::write(&file, "abd").unwrap();
        let error = given(&file, ABC).disk(|_| ()).unwrap_err().to_string();
        assert!(error.contains(ABC) && error.contains("signed list"), "{error}");
        let error = given(&scratch.path().join("none"), ABC)
            .disk(|_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains("there is no file"), "{error}");
    }

    #[test]
    fn formats_are_recognised_and_compressed_files_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("image");
        for (magic, expected) in [
            (b"QFI\xfb\0\0".as_slice(), Some("qcow2")),
            (b"\xfd7zXZ\0", None),
            (b"", Some("raw")),
        ] {
            fs::write(&file, magic).unwrap();
            assert_eq!(format(&file).ok(), expected);
        }
    }

    #[test]
    fn a_failed_download_leaves_nothing_and_says_what_to_do() {
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("part");
        // Nobody listens on port 1.
        let image = given(Path::new("http://127.0.0.1:1/image"), ABC);
        assert!(image.is_url());
        let error = image.fetch(&to).unwrap_err().to_string();
        assert!(error.contains("--image some=PATH"), "{error}");
        assert!(!to.exists());
    }
}
