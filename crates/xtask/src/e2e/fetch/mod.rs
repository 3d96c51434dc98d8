//! `cargo xtask e2e images`: downloads images of `e2e/images.toml`. A checksum comes only from a list that the distributor has signed.

mod list;
mod signature;
#[cfg(test)]
mod signer;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use osm_lab::machines::Given;
use osm_lab::machines::vm::download::{Cause, Failure, Limits, download};

use self::signature::Keyring;
use super::images::{self, Entry};
use crate::booted::{BootResult, NotFetched};
use crate::revision;
use osm_testkit::progress::Progress;

/// Lists and keys are small. A server that sends more is not the distributor's.
const SMALL: Limits = Limits {
    bytes: 4 << 20,
    time: Duration::from_secs(120),
    reserve: 0,
};

/// Download official images, and verify them by the signatures of their distributors
///
/// The command takes the checksum of an image from the list that the distributor has signed. It prints NAME=PATH,sha256=CHECKSUM for each
/// image, which is an argument for `cargo xtask e2e node --image`. Without names, it lists the images.
#[derive(clap::Args)]
pub struct Images {
    /// Images of e2e/images.toml
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Print the names of all images that can be downloaded, verified and booted, as a JSON array
    #[arg(long, conflicts_with_all = ["names", "results"])]
    matrix: bool,
    /// Write FOLDER/NAME.json, which reports whether the image was downloaded and verified
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
}

impl Images {
    /// Downloads all that were named.
    ///
    /// # Errors
    /// An image that can't be downloaded, or that is not what the distributor has signed. The others are downloaded all the same.
    pub async fn run(&self) -> Result<()> {
        let table = images::table()?;
        if self.matrix {
            let automatic = table.iter().filter(|(_, entry)| entry.is_automatic().is_ok());
            let names: Vec<&String> = automatic.map(|(name, _)| name).collect();
            println!("{}", serde_json::to_string(&names)?);
            return Ok(());
        }
        if self.names.is_empty() {
            for (name, entry) in &table {
                match entry.is_automatic() {
                    Ok(()) => println!("{name}"),
                    Err(reason) => println!("{name}: {reason}"),
                }
            }
            return Ok(());
        }
        let chosen = self
            .names
            .iter()
            .map(|name| Ok((name, images::find(&table, name)?)))
            .collect::<Result<Vec<_>>>()?;
        let commit = revision::read().await?;
        let progress = Progress::start();
        let mut failed = Vec::new();
        for (name, entry) in chosen {
            let downloads = Given::downloads()?;
            let fetched =
                tokio::task::block_in_place(|| fetch(&downloads, name, entry, |line| progress.step(line)));
            let mut result = BootResult::new(name, &commit);
            match fetched {
                Ok(image) => {
                    println!("{name}={},sha256={}", image.location, image.sha256);
                    result.sha256 = Some(image.sha256);
                }
                Err(failure) => {
                    let reason = failure.to_string();
                    progress.warn(&reason);
                    let cause = failure.cause;
                    result.not_fetched = Some(NotFetched { cause, reason });
                    failed.push(name.as_str());
                }
            }
            if let Some(folder) = &self.results {
                result.write(folder)?;
            }
        }
        ensure!(failed.is_empty(), "not downloaded: {}", failed.join(", "));
        Ok(())
    }
}

/// Downloads list, signature and key, and then the image, into `downloads`.
fn fetch(downloads: &Path, name: &str, entry: &Entry, progress: impl Fn(&str)) -> Result<Given, Failure> {
    let url = entry.url.as_deref().with_context(|| {
        format!(
            "image {name} has no public URL: download it by hand, and give its path and checksum: --image {name}=PATH,sha256=CHECKSUM"
        )
    })?;
    let (Some(key), Some(list_url)) = (&entry.key, &entry.checksums) else {
        return Err(Failure::unverified(anyhow!(
            "image {name}: its distributor publishes no signature that is known, so there is no verified checksum: compare {} with a second \
             source, and give it: --image {name}={},sha256=CHECKSUM",
            entry.checksums.as_deref().unwrap_or("the distributor's list"),
            images::place(url)
        )));
    };
    let scratch = tempfile::tempdir().context("a temporary folder")?;
    let get = |url: &str, file: &str| {
        let path = scratch.path().join(file);
        let got = get(url, &path).map_err(|failure| failure.about(format!("image {name}")));
        got.map(|()| path)
    };
    progress(&format!("image {name}: verifying {list_url}"));
    let list = get(list_url, "list")?;
    let signature = entry.signature.as_deref();
    let signature = signature.map(|url| get(url, "signature")).transpose()?;
    let key_file = get(&key.url, "key")?;
    let listed = || {
        let keyring = Keyring::with(&key_file, &key.fingerprint)
            .with_context(|| format!("image {name}: the key {}", key.url))?;
        let about_list = || format!("image {name}: {list_url}");
        let text = keyring
            .signed_text(&list, signature.as_deref())
            .with_context(about_list)?;
        let (folder, pattern) = url.rsplit_once('/').context("a URL has a folder")?;
        let listed = list::find(&text, pattern).with_context(about_list)?;
        anyhow::Ok((format!("{folder}/{}", listed.file), listed.checksum))
    };
    let (url, checksum) = listed().map_err(Failure::unverified)?;
    Given::download(downloads, name, &url, &checksum, progress)
}

/// Downloads a small file.
fn get(url: &str, to: &Path) -> Result<(), Failure> {
    download(url, to, &SMALL).map_err(|failure| match failure.cause {
        Cause::Unreachable => Failure::unreachable(anyhow!(
            "{failure}\ntry again where the Internet can be reached, or check the URL in e2e/images.toml"
        )),
        Cause::Unverified | Cause::Other => failure,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use osm_judges::packages;

    use super::signer::Signer;
    use super::*;
    use crate::e2e::images::{Key, Table};

    /// SHA-256 of `abc`, from FIPS 180-2.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    /// A distributor with its server, which is a folder.
    struct Distributor {
        server: tempfile::TempDir,
        signer: Signer,
        entry: Entry,
    }

    impl Distributor {
        /// It publishes `image-1.img`, which has the text `abc`, with a list in Ubuntu's format.
        fn new() -> Self {
            Self::with(Signer::new)
        }

        fn with(signer: fn() -> Signer) -> Self {
            packages::ensure(&["curl", "gnupg"]).unwrap();
            let server = tempfile::tempdir().unwrap();
            let signer = signer();
            let url = |file: &str| format!("file://{}/{file}", server.path().display());
            let table = format!(
                "[image]\noperating-system = 'ubuntu'\nprovisioning = 'cloud-init'\nurl = '{}'\nchecksums = '{}'\nsignature = '{}'\n\
                 key = {{ url = '{}', fingerprint = '{}' }}\n",
                url("image-*.img"),
                url("SHA256SUMS"),
                url("SHA256SUMS.gpg"),
                url("key.asc"),
                signer.fingerprint()
            );
            let mut table: Table = toml::from_str(&table).unwrap();
            let distributor = Self {
                entry: table.remove("image").unwrap(),
                server,
                signer,
            };
            distributor.publish("image-1.img", "abc");
            distributor.publish("key.asc", &distributor.signer.public_key());
            distributor.publish("SHA256SUMS", &format!("{ABC} *image-1.img\n"));
            distributor.sign(&distributor.signer);
            distributor
        }

        fn path(&self, file: &str) -> PathBuf {
            self.server.path().join(file)
        }

        fn publish(&self, file: &str, text: &str) {
            fs::write(self.path(file), text).unwrap();
        }

        fn sign(&self, signer: &Signer) {
            let _ = fs::remove_file(self.path("SHA256SUMS.gpg"));
            signer.detached(&self.path("SHA256SUMS"), &self.path("SHA256SUMS.gpg"));
        }

        fn fetch(&self) -> Result<Given, Failure> {
            fetch(&self.path("downloads"), "image", &self.entry, |_| ())
        }

        /// The message of a list or an image that is not the distributor's.
        fn refused(&self) -> String {
            self.fails(Cause::Unverified)
        }

        fn fails(&self, cause: Cause) -> String {
            let failure = self.fetch().unwrap_err();
            assert_eq!(failure.cause, cause, "{failure}");
            let error = failure.to_string();
            assert!(error.contains("image image"), "{error}");
            assert!(!self.path("downloads").join(ABC).exists());
            error
        }
    }

    #[test]
    fn an_image_of_a_signed_list_is_taken() {
        let distributor = Distributor::new();
        let image = distributor.fetch().unwrap();
        assert_eq!((image.name.as_str(), image.sha256.as_str()), ("image", ABC));
        assert_eq!(fs::read_to_string(&image.location).unwrap(), "abc");
        // What --image gets from the output.
        let target = images::choose(&format!(
            "ubuntu-24.04={},sha256={}",
            image.location, image.sha256
        ));
        assert_eq!(target.unwrap().operating_system, "ubuntu");
    }

    #[test]
    fn a_list_that_has_its_signature_in_itself_is_taken_without_what_is_around() {
        let mut distributor = Distributor::new();
        let sha512 = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                      2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
        // As Flatcar's.
        distributor.publish(
            "SHA256SUMS",
            &format!(
                "# MD5 HASH\n900150983cd24fb0d6963f7d28e17f72  image-1.img\n# SHA512 HASH\n{sha512}  image-1.img\n"
            ),
        );
        let signed = distributor.path("DIGESTS.asc");
        distributor
            .signer
            .clear_signed(&distributor.path("SHA256SUMS"), &signed);
        distributor.entry.checksums = Some(format!("file://{}", signed.display()));
        distributor.entry.signature = None;
        assert_eq!(distributor.fetch().unwrap().sha256, ABC);

        let text = fs::read_to_string(&signed).unwrap();
        fs::remove_dir_all(distributor.path("downloads")).unwrap();
        distributor.publish("DIGESTS.asc", &text.replace("ddaf35", "ddaf36"));
        assert!(distributor.refused().contains("changed after it was signed"));
        // The key has signed a list, and the line for the image is outside of what it has signed.
        distributor.publish("SHA256SUMS", &format!("{ABC} *other.img\n"));
        fs::remove_file(&signed).unwrap();
        distributor
            .signer
            .clear_signed(&distributor.path("SHA256SUMS"), &signed);
        let around = fs::read_to_string(&signed).unwrap() + &format!("{ABC}  image-1.img\n");
        distributor.publish("DIGESTS.asc", &around);
        assert!(distributor.refused().contains("no SHA-256 and no SHA-512"));
        distributor.publish("DIGESTS.asc", &format!("{ABC}  image-1.img\n"));
        assert!(distributor.refused().contains("no signature that gpg can read"));
    }

    #[test]
    fn a_forged_signature_is_refused() {
        let distributor = Distributor::new();
        // Another key with the same name.
        let forger = Signer::new();
        distributor.sign(&forger);
        let error = distributor.refused();
        assert!(error.contains("another key signed the list"), "{error}");
        assert!(error.contains(&distributor.signer.fingerprint()), "{error}");

        // The forger's key beside the real one: gpg finds the signature good, but the table does not name that key.
        let both = distributor.signer.public_key() + &forger.public_key();
        distributor.publish("key.asc", &both);
        let error = distributor.refused();
        assert!(error.contains("another key signed the list"), "{error}");

        distributor.publish("key.asc", &forger.public_key());
        let error = distributor.refused();
        assert!(
            error.contains(&forger.fingerprint()) && error.contains("several other sources"),
            "{error}"
        );
    }

    #[test]
    fn a_signature_of_an_expired_key_is_refused() {
        let error = Distributor::with(Signer::expired).refused();
        assert!(error.contains("its key has expired"), "{error}");
    }

    #[test]
    fn a_list_that_was_changed_is_refused() {
        let distributor = Distributor::new();
        distributor.publish("SHA256SUMS", &format!("{} *image-1.img\n", "0".repeat(64)));
        let error = distributor.refused();
        assert!(error.contains("changed after it was signed"), "{error}");
    }

    #[test]
    fn an_image_that_is_not_the_signed_one_is_refused_and_removed() {
        let distributor = Distributor::new();
        distributor.publish("image-1.img", "abd");
        let error = distributor.refused();
        assert!(error.contains(ABC) && error.contains("was expected"), "{error}");
        let left: Vec<_> = fs::read_dir(distributor.path("downloads"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left, [".lock"]);
    }

    #[test]
    fn what_is_missing_is_named_with_what_to_do() {
        let mut distributor = Distributor::new();
        fs::remove_file(distributor.path("SHA256SUMS.gpg")).unwrap();
        let error = distributor.fails(Cause::Unreachable);
        assert!(
            error.contains("SHA256SUMS.gpg can't be downloaded") && error.contains("e2e/images.toml"),
            "{error}"
        );
        distributor.publish("key.asc", "<html>not found</html>");
        distributor.sign(&distributor.signer);
        let error = distributor.refused();
        assert!(error.contains("key.asc: it is no public key"), "{error}");
        let key: Option<Key> = distributor.entry.key.take();
        let error = distributor.refused();
        assert!(
            error.contains("no signature that is known") && error.contains("second source"),
            "{error}"
        );
        distributor.entry.key = key;
        distributor.entry.url = None;
        assert!(distributor.fails(Cause::Other).contains("no public URL"));
    }

    #[test]
    fn a_list_of_unknown_length_is_at_most_four_megabytes() {
        let mut distributor = Distributor::new();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        distributor.entry.checksums = Some(format!("http://{}/SUMS", listener.local_addr().unwrap()));
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            lines.map_while(Result::ok).find(String::is_empty).unwrap();
            let line = format!("{ABC} *image-1.img\n");
            // The client closes the connection before the end.
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
                line.repeat((5 << 20) / line.len())
            );
        });
        let error = distributor.refused();
        assert!(error.contains("SUMS has more than 4 MiB"), "{error}");
        server.join().unwrap();
    }
}
