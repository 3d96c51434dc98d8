//! What a machine boots, and the operating system whose profile fits.

use std::fmt;

use anyhow::{Result, ensure};
use osm_lab::machines::{Given, Release, System};

/// An image with its operating system.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub system: System,
    /// As a MachineDeployment names it.
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
    /// Debian with Ignition stands in for Flatcar: Ignition reads the user data in the initramfs, and applies
    /// the next config after a reboot.
    pub fn ignition() -> Self {
        Self {
            system: System::DebianWithIgnition,
            operating_system: "flatcar".to_owned(),
        }
    }

    /// Reads `OS=LOCATION,sha256=CHECKSUM`.
    pub fn given(argument: &str) -> Result<Self> {
        let parts = argument
            .split_once('=')
            .and_then(|(system, rest)| Some((system, rest.rsplit_once(",sha256=")?)));
        let (operating_system, (location, sha256)) = parts.unwrap_or_default();
        let is_known =
            serde_json::from_value::<osm_api::profile::OperatingSystem>(operating_system.into()).is_ok();
        let is_sha256 = sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(
            is_known && is_sha256 && !location.is_empty(),
            "--image {argument}: give it as OS=LOCATION,sha256=CHECKSUM: an operating system as a MachineDeployment names it, a path or URL, and \
             the 64 hexadecimal digits from the distributor's signed list"
        );
        ensure!(
            operating_system != "flatcar",
            "--image {argument}: Flatcar reads its user data with Ignition, and the tests cannot start their agent in such an image; scenario ignition \
             boots a substitute"
        );
        Ok(Self {
            system: System::Given(Given {
                location: location.to_owned(),
                sha256: sha256.to_owned(),
            }),
            operating_system: operating_system.to_owned(),
        })
    }

    /// The end of the names of its machines.
    pub fn suffix(&self) -> &str {
        match &self.system {
            System::Debian(Release::Debian12) | System::DebianWithIgnition => "12",
            System::Debian(Release::Debian13) => "13",
            System::Given(_) => &self.operating_system,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.system.fmt(f)
    }
}
