//! Disk images that a user gives, by path or URL. An image boots only if its SHA-256 is the expected one.

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use osm_judges::go_module::cache_root;
use sha2::{Digest, Sha256, Sha512};

use super::disk::{Disk, Reader};
use super::download::{self, Cause, Failure, Limits};

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

/// What a file must have. The digits are hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checksum {
    /// 64 digits.
    Sha256(String),
    /// 128 digits.
    Sha512(String),
}

impl Checksum {
    fn digits(&self) -> &str {
        match self {
            Self::Sha256(digits) | Self::Sha512(digits) => digits,
        }
    }

    /// The checksum of the same kind that a file has.
    fn of(&self, path: &Path) -> Result<Self> {
        Ok(match self {
            Self::Sha256(_) => Self::Sha256(hash::<Sha256>(path)?),
            Self::Sha512(_) => Self::Sha512(hash::<Sha512>(path)?),
        })
    }

    /// What a file has instead. None if it has this checksum.
    fn differs(&self, path: &Path) -> Result<Option<Self>> {
        let found = self.of(path)?;
        Ok((!found.digits().eq_ignore_ascii_case(self.digits())).then_some(found))
    }

    fn verify(&self, image: &str, location: &str, path: &Path) -> Result<(), Failure> {
        match self.differs(path)? {
            None => Ok(()),
            Some(found) => Err(Failure::unverified(anyhow!(
                "image {image}: {location} has the {found}, and {} was expected: it is damaged, or another build; compare with the \
                 distributor's signed list",
                self.digits()
            ))),
        }
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(digits) => write!(f, "SHA-256 {digits}"),
            Self::Sha512(digits) => write!(f, "SHA-512 {digits}"),
        }
    }
}

/// Cloud images have a few gigabytes at most.
const LIMITS: Limits = Limits {
    bytes: 8 << 30,
    time: Duration::from_secs(45 * 60),
    reserve: 1 << 30,
};

impl Given {
    /// The disk, verified. A download is kept in the cache, and one that is not what was expected is removed.
    pub(crate) fn disk(&self, progress: impl Fn(&str)) -> Result<Disk> {
        let path = match self.is_url() {
            true => download(
                &Self::downloads()?,
                &self.name,
                &self.location,
                &self.checksum(),
                &progress,
            )?,
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
            reader: Reader::CloudInit,
        })
    }

    fn is_url(&self) -> bool {
        ["http://", "https://"]
            .iter()
            .any(|scheme| self.location.starts_with(scheme))
    }

    fn verify(&self, path: &Path) -> Result<()> {
        Ok(self.checksum().verify(&self.name, &self.location, path)?)
    }

    fn checksum(&self) -> Checksum {
        Checksum::Sha256(self.sha256.clone())
    }

    /// Where downloads are kept.
    ///
    /// # Errors
    /// When there is no home directory.
    pub fn downloads() -> Result<PathBuf> {
        Ok(cache_root()?.join("disks/downloads"))
    }

    /// Downloads an image into `folder`, and describes the file. One that is there already is verified again, and downloaded again if it is
    /// damaged.
    ///
    /// # Errors
    /// When it can't be downloaded, or has another checksum. No part of it is left then.
    pub fn download(
        folder: &Path,
        name: &str,
        url: &str,
        checksum: &Checksum,
        progress: impl Fn(&str),
    ) -> Result<Self, Failure> {
        let path = download(folder, name, url, checksum, &progress)?;
        Ok(Self {
            name: name.to_owned(),
            sha256: hash::<Sha256>(&path)?,
            location: path.display().to_string(),
        })
    }
}

/// Each file is called after its checksum.
fn download(
    folder: &Path,
    name: &str,
    url: &str,
    checksum: &Checksum,
    progress: &impl Fn(&str),
) -> Result<PathBuf, Failure> {
    let about = || folder.display().to_string();
    fs::create_dir_all(folder).with_context(about)?;
    let path = folder.join(checksum.digits().to_lowercase());
    let lock = File::create(folder.join(".lock")).with_context(about)?;
    lock.lock().with_context(about)?;
    if path.is_file() {
        let Some(found) = checksum.differs(&path)? else {
            return Ok(path);
        };
        progress(&format!(
            "image {name}: {} is damaged, because it has the {found}; it is removed",
            path.display()
        ));
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    progress(&format!("image {name}: downloading {url}"));
    let part = folder.join(".part");
    let fetched = fetch(name, url, &part).and_then(|()| checksum.verify(name, url, &part));
    if fetched.is_err() {
        // Nothing of it is left, whatever it is.
        let _ = fs::remove_file(&part);
    }
    fetched?;
    fs::rename(&part, &path).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn fetch(name: &str, url: &str, to: &Path) -> Result<(), Failure> {
    let fetched = download::download(url, to, &LIMITS);
    fetched.map_err(|failure| {
        let failure = match failure.cause {
            Cause::Unreachable => Failure::unreachable(anyhow!(
                "{failure}\ndownload it where that works, and give its path and checksum: --image {name}=PATH,sha256=CHECKSUM"
            )),
            Cause::Unverified | Cause::Other => failure,
        };
        failure.about(format!("image {name}"))
    })
}

fn hash<D: Digest + Write>(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut hash = D::new();
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
    use std::cell::RefCell;

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
        // Nobody listens on port 1.
        let image = given(Path::new("http://127.0.0.1:1/image"), ABC);
        assert!(image.is_url());
        let failure = Given::download(
            scratch.path(),
            &image.name,
            &image.location,
            &image.checksum(),
            |_| (),
        )
        .unwrap_err();
        assert_eq!(failure.cause, Cause::Unreachable);
        let error = failure.to_string();
        assert!(
            error.starts_with("image some: http://127.0.0.1:1/image can't be downloaded"),
            "{error}"
        );
        assert!(error.contains("--image some=PATH,sha256=CHECKSUM"), "{error}");
        let left: Vec<_> = fs::read_dir(scratch.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, [".lock"]);
    }

    #[test]
    fn a_download_is_kept_only_with_its_checksum_of_either_kind() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, folder) = (scratch.path().join("image"), scratch.path().join("downloads"));
        fs::write(&file, "abc").unwrap();
        let url = format!("file://{}", file.display());
        let download = |checksum: &Checksum| Given::download(&folder, "some", &url, checksum, |_| ());
        // SHA-512 of `abc`, from FIPS 180-2.
        let sha512 = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                      2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
        for checksum in [
            Checksum::Sha256(ABC.to_owned()),
            Checksum::Sha512(sha512.to_uppercase()),
        ] {
            let image = download(&checksum).unwrap();
            assert_eq!(image.sha256, ABC);
            assert_eq!(fs::read_to_string(&image.location).unwrap(), "abc");
        }

        let other = Checksum::Sha512(sha512.replace("dd", "00"));
        let failure = download(&other).unwrap_err();
        assert_eq!(failure.cause, Cause::Unverified);
        let error = failure.to_string();
        assert!(
            error.contains(sha512) && error.contains("was expected"),
            "{error}"
        );
        let mut kept: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        kept.sort();
        assert_eq!(kept, [".lock", ABC, sha512]);
    }

    #[test]
    fn a_download_that_was_damaged_in_the_cache_is_downloaded_again() {
        let scratch = tempfile::tempdir().unwrap();
        let (file, folder) = (scratch.path().join("image"), scratch.path().join("downloads"));
        fs::write(&file, "abc").unwrap();
        let url = format!("file://{}", file.display());
        let said = RefCell::new(Vec::new());
        let download = || {
            let checksum = Checksum::Sha256(ABC.to_owned());
            Given::download(&folder, "some", &url, &checksum, |line| {
                said.borrow_mut().push(line.to_owned());
            })
        };
        download().unwrap();
        download().unwrap();
        assert_eq!(said.borrow().len(), 1, "the second one comes from the cache");

        fs::write(folder.join(ABC), "abd").unwrap();
        let image = download().unwrap();
        assert_eq!(fs::read_to_string(&image.location).unwrap(), "abc");
        let damaged = format!("{} is damaged", folder.join(ABC).display());
        assert!(said.borrow()[1].contains(&damaged), "{said:?}");

        // If that does not work, the damaged file is gone all the same.
        fs::write(folder.join(ABC), "abd").unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(download().unwrap_err().cause, Cause::Unreachable);
        assert!(!folder.join(ABC).exists());
    }
}
