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
struct Entry {
    /// As a MachineDeployment names the operating system.
    operating_system: String,
    /// What reads the user data.
    provisioning: Provisioning,
    /// Where the image is published. None where it has to be fetched by hand.
    url: Option<String>,
    /// The distributor's list of checksums.
    checksums: Option<String>,
    /// From that list. An entry without one does not boot.
    sha256: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Provisioning {
    CloudInit,
    Ignition,
}

fn table() -> Result<BTreeMap<String, Entry>> {
    toml::from_str(TABLE).context("e2e/images.toml")
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
    /// The end of the names of its machines: `12`, `ubuntu-24-04`.
    pub fn suffix(&self) -> String {
        match &self.system {
            System::Debian(Release::Debian12) => "12".to_owned(),
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

/// Reads `NAME`, `NAME=LOCATION` or `NAME=LOCATION,sha256=CHECKSUM`. What is not given comes from the table.
pub fn choose(argument: &str) -> Result<Target> {
    choose_from(&table()?, argument)
}

fn choose_from(table: &BTreeMap<String, Entry>, argument: &str) -> Result<Target> {
    let (name, rest) = argument
        .split_once('=')
        .map_or((argument, None), |(name, rest)| (name, Some(rest)));
    let (location, given) = match rest.and_then(|rest| rest.rsplit_once(",sha256=")) {
        Some((location, sha256)) => (Some(location), Some(sha256)),
        None => (rest, None),
    };
    let entry = table.get(name).with_context(|| {
        let names: Vec<&str> = table.keys().map(String::as_str).collect();
        format!("e2e/images.toml has no image {name}; it has {}", names.join(", "))
    })?;
    ensure!(
        entry.provisioning == Provisioning::CloudInit,
        "image {name} reads its user data with Ignition, which machines here do not support yet"
    );
    let location = location
        .map(str::to_owned)
        .or_else(|| entry.url.clone())
        .with_context(|| {
            format!("image {name} has no public URL: give its path, --image {name}=PATH,sha256=…")
        })?;
    let Some(sha256) = given.map(str::to_owned).or_else(|| entry.sha256.clone()) else {
        let list = entry.checksums.as_deref().unwrap_or("the distributor's list");
        bail!(
            "image {name} has no checksum, and does not boot without one: verify {list} by its signature, and add the checksum from it: \
             --image {name}={location},sha256=…"
        );
    };
    ensure!(
        is_sha256(&sha256),
        "image {name}: {sha256} is no SHA-256, which has 64 hexadecimal digits"
    );
    Ok(Target {
        system: System::Given(Given {
            name: name.to_owned(),
            location,
            sha256,
        }),
        operating_system: entry.operating_system.clone(),
    })
}

fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn chosen(table: &BTreeMap<String, Entry>, argument: &str) -> (Given, String) {
        match choose_from(table, argument).unwrap() {
            Target {
                system: System::Given(image),
                operating_system,
            } => (image, operating_system),
            other => panic!("{other:?}"),
        }
    }

    fn refused(table: &BTreeMap<String, Entry>, argument: &str) -> String {
        choose_from(table, argument).unwrap_err().to_string()
    }

    #[test]
    fn every_entry_is_complete() {
        for (name, entry) in table().unwrap() {
            assert!(
                entry
                    .url
                    .iter()
                    .chain(&entry.checksums)
                    .all(|url| url.starts_with("https://")),
                "{name}"
            );
            assert_eq!(
                entry.url.is_some(),
                entry.checksums.is_some(),
                "{name}: a URL has a list of checksums"
            );
            assert!(entry.sha256.iter().all(|sha256| is_sha256(sha256)), "{name}");
            let system = serde_json::from_value::<osm_api::profile::OperatingSystem>(
                entry.operating_system.clone().into(),
            );
            assert!(system.is_ok(), "{name}: {}", entry.operating_system);
        }
    }

    #[test]
    fn an_image_boots_only_with_a_checksum() {
        let table: BTreeMap<String, Entry> = toml::from_str(&format!(
            "[one]\noperating-system = 'ubuntu'\nprovisioning = 'cloud-init'\nurl = 'https://a/b.img'\nchecksums = 'https://a/SUMS'\n\
             [known]\noperating-system = 'ubuntu'\nprovisioning = 'cloud-init'\nurl = 'https://a/c.img'\nchecksums = 'https://a/SUMS'\n\
             sha256 = '{SHA256}'\n\
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
        assert_eq!(chosen(&table, "known").0.location, "https://a/c.img");
        assert_eq!(chosen(&table, "known=./c.img").0.location, "./c.img");

        let error = refused(&table, "one");
        assert!(
            error.contains("https://a/SUMS") && error.contains("sha256=…"),
            "{error}"
        );
        assert!(refused(&table, "one=x,sha256=123").contains("64 hexadecimal digits"));
        assert!(refused(&table, "by-hand").contains("no public URL"));
        assert!(refused(&table, "flatcar=x").contains("Ignition"));
        assert!(refused(&table, "none=x").contains("it has by-hand, flatcar, known, one"));
    }
}
