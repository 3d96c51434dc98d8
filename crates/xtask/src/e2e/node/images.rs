//! Images that machines boot besides those that are built here: the table `e2e/images.toml`, and `--image`.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, bail, ensure};
use osm_lab::machines::{Given, Release, System};
use serde::Deserialize;

const TABLE: &str = include_str!("../../../../../e2e/images.toml");

/// An image of a distributor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Entry {
    /// As a MachineDeployment names the operating system.
    pub operating_system: String,
    /// What reads the user data.
    pub provisioning: Provisioning,
    /// Where the image is published. A `*` in the name of the file is for its build. None where it has to be fetched by hand.
    pub url: Option<String>,
    /// The distributor's list of checksums.
    pub checksums: Option<String>,
    /// The signature of the list, where it is not in the list itself.
    pub signature: Option<String>,
    /// What signs the list. None where the list has no signature that is known.
    pub key: Option<Key>,
}

/// A public key of a distributor.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// Where it is published. Any place will do, because the fingerprint decides.
    pub url: String,
    /// The fingerprint of its primary key: 40 hexadecimal digits.
    pub fingerprint: String,
}

/// What reads an image's user data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provisioning {
    /// Machines here support it.
    CloudInit,
    /// Machines here do not support it yet.
    Ignition,
}

/// All images by their names.
pub type Table = BTreeMap<String, Entry>;

/// Reads `e2e/images.toml`.
pub fn table() -> Result<Table> {
    toml::from_str(TABLE).context("e2e/images.toml")
}

/// The entry with this name.
pub fn find<'t>(table: &'t Table, name: &str) -> Result<&'t Entry> {
    table.get(name).with_context(|| {
        let names: Vec<&str> = table.keys().map(String::as_str).collect();
        format!("e2e/images.toml has no image {name}; it has {}", names.join(", "))
    })
}

impl Entry {
    /// Whether a workflow can download, verify and boot it.
    ///
    /// # Errors
    /// What it lacks.
    pub fn is_automatic(&self) -> Result<()> {
        ensure!(
            self.url.is_some(),
            "it has no public URL, so its path and checksum are given by hand"
        );
        ensure!(
            self.key.is_some(),
            "its list of checksums has no known signature, so its checksum is given by hand"
        );
        ensure!(
            self.provisioning == Provisioning::CloudInit,
            "it reads its user data with Ignition, and the tests cannot start their agent in such an image yet"
        );
        Ok(())
    }
}

impl Entry {
    /// How a user gets the argument for `--image`.
    fn how_to_get(&self, name: &str) -> String {
        match (&self.url, &self.checksums, &self.key) {
            (Some(_), _, Some(_)) => format!(
                "`cargo xtask e2e images {name}` downloads and verifies it, and prints the argument for --image"
            ),
            (Some(url), Some(list), None) => format!(
                "compare {list} with a second source, and give the checksum from it: --image {name}={},sha256=CHECKSUM",
                place(url)
            ),
            _ => format!(
                "download it by hand, and give its path and checksum: --image {name}=PATH,sha256=CHECKSUM"
            ),
        }
    }
}

/// What a machine boots, and the operating system whose profile fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub system: System,
    pub operating_system: String,
}

impl From<Release> for Target {
    /// Debian stands in for Ubuntu: it has the same package manager and the same cloud-init.
    fn from(release: Release) -> Self {
        Self {
            system: System::Debian(release),
            operating_system: "ubuntu".to_owned(),
        }
    }
}

impl Target {
    /// Debian with Ignition stands in for Flatcar: Ignition reads the user data in the initramfs, and applies the next config after a reboot.
    pub fn ignition() -> Self {
        Self {
            system: System::DebianWithIgnition,
            operating_system: "flatcar".to_owned(),
        }
    }

    /// The end of the names of its machines: `12`, `ubuntu-24-04`.
    pub fn suffix(&self) -> String {
        match &self.system {
            System::Debian(Release::Debian12) | System::DebianWithIgnition => "12".to_owned(),
            System::Debian(Release::Debian13) => "13".to_owned(),
            System::Given(image) => image.name.replace('.', "-"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.system.fmt(f)
    }
}

/// Reads `NAME=LOCATION,sha256=CHECKSUM`.
pub fn choose(argument: &str) -> Result<Target> {
    choose_from(&table()?, argument)
}

fn choose_from(table: &Table, argument: &str) -> Result<Target> {
    let (name, rest) = argument
        .split_once('=')
        .map_or((argument, None), |(name, rest)| (name, Some(rest)));
    let entry = find(table, name)?;
    ensure!(
        entry.provisioning == Provisioning::CloudInit,
        "image {name} reads its user data with Ignition, and the tests cannot start their agent in such an image yet"
    );
    let location_and_checksum = rest
        .and_then(|rest| rest.rsplit_once(",sha256="))
        .filter(|(location, _)| !location.is_empty());
    let Some((location, sha256)) = location_and_checksum else {
        bail!(
            "--image {argument}: an image boots only with its location and its checksum: {}",
            entry.how_to_get(name)
        );
    };
    ensure!(
        is_sha256(sha256),
        "image {name}: {sha256} is no SHA-256, which has 64 hexadecimal digits"
    );
    Ok(Target {
        system: System::Given(Given {
            name: name.to_owned(),
            location: location.to_owned(),
            sha256: sha256.to_owned(),
        }),
        operating_system: entry.operating_system.clone(),
    })
}

/// A location as part of an argument that a message proposes. A `*` is for a build, which only the reader knows.
pub fn place(location: &str) -> &str {
    match location.contains('*') {
        true => "URL",
        false => location,
    }
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    const FINGERPRINT: &str = "0123456789ABCDEF0123456789ABCDEF01234567";

    fn chosen(table: &Table, argument: &str) -> (Given, String) {
        match choose_from(table, argument).unwrap() {
            Target {
                system: System::Given(image),
                operating_system,
            } => (image, operating_system),
            other => panic!("{other:?}"),
        }
    }

    fn refused(table: &Table, argument: &str) -> String {
        choose_from(table, argument).unwrap_err().to_string()
    }

    #[test]
    fn every_entry_is_complete() {
        for (name, entry) in table().unwrap() {
            let key = entry.key.as_ref();
            let urls = [&entry.url, &entry.checksums, &entry.signature];
            let urls = urls.into_iter().flatten().chain(key.map(|key| &key.url));
            for url in urls {
                assert!(url.starts_with("https://"), "{name}: {url}");
            }
            let (folder, _) = entry.url.as_deref().unwrap_or("/").rsplit_once('/').unwrap();
            assert!(
                !folder.contains('*'),
                "{name}: only the name of the file depends on the build"
            );
            assert!(
                key.is_none_or(|key| key.fingerprint.len() == 40
                    && key.fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit())),
                "{name}: a fingerprint has 40 digits"
            );
            assert!(
                key.is_some() || entry.signature.is_none(),
                "{name}: a signature needs a key"
            );
            assert!(
                key.is_none() || entry.checksums.is_some(),
                "{name}: a key is for a list"
            );
            assert_eq!(
                entry.url.is_some(),
                entry.checksums.is_some(),
                "{name}: a URL has a list of checksums"
            );
            let system = serde_json::from_value::<osm_api::profile::OperatingSystem>(
                entry.operating_system.clone().into(),
            );
            assert!(system.is_ok(), "{name}: {}", entry.operating_system);
        }
    }

    #[test]
    fn an_image_boots_only_with_a_location_and_a_checksum() {
        let table: Table = toml::from_str(&format!(
            "[one]\noperating-system = 'ubuntu'\nprovisioning = 'cloud-init'\nurl = 'https://a/b.img'\nchecksums = 'https://a/SUMS'\n\
             [builds]\noperating-system = 'ubuntu'\nprovisioning = 'cloud-init'\nurl = 'https://a/b-*.img'\nchecksums = 'https://a/SUMS'\n\
             [signed]\noperating-system = 'ubuntu'\nprovisioning = 'cloud-init'\nurl = 'https://a/b.img'\nchecksums = 'https://a/SUMS'\n\
             key = {{ url = 'https://a/key', fingerprint = '{FINGERPRINT}' }}\n\
             [by-hand]\noperating-system = 'rhel'\nprovisioning = 'cloud-init'\n\
             [flatcar]\noperating-system = 'flatcar'\nprovisioning = 'ignition'\n"
        ))
        .unwrap();
        let (image, operating_system) = chosen(&table, &format!("one=/tmp/x=y.img,sha256={SHA256}"));
        assert_eq!(
            (image.location.as_str(), image.sha256.as_str()),
            ("/tmp/x=y.img", SHA256)
        );
        assert_eq!(operating_system, "ubuntu");
        for argument in [
            "one",
            "one=/tmp/b.img",
            "one=https://a/b.img",
            &format!("one=,sha256={SHA256}"),
        ] {
            let error = refused(&table, argument);
            assert!(
                ["https://a/SUMS", "--image one=https://a/b.img,sha256=CHECKSUM"]
                    .iter()
                    .all(|text| error.contains(text)),
                "{error}"
            );
        }
        assert!(refused(&table, "builds").contains("--image builds=URL,sha256=CHECKSUM"));
        for argument in ["signed", "signed=/tmp/b.img"] {
            let error = refused(&table, argument);
            assert!(error.contains("cargo xtask e2e images signed"), "{error}");
        }
        assert!(refused(&table, "by-hand=./x").contains("--image by-hand=PATH,sha256=CHECKSUM"));
        assert!(refused(&table, "one=x,sha256=123").contains("64 hexadecimal digits"));
        assert!(refused(&table, "flatcar=x").contains("Ignition"));
        assert!(refused(&table, "none=x").contains("it has builds, by-hand, flatcar, one, signed"));

        let lacks = |name: &str| table[name].is_automatic().unwrap_err().to_string();
        table["signed"].is_automatic().unwrap();
        assert!(lacks("one").contains("no known signature"));
        assert!(lacks("by-hand").contains("no public URL"));
    }
}
