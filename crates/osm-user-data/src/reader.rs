//! The programs that read documents on machines.

use osm_api::profile::{OperatingSystem, ProvisioningUtility};

/// The program that reads a document, each with a language of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The cloud-init that all other distributions have.
    CloudInit,
    /// Flatcar's program for `cloud-init`.
    CoreosCloudinit,
    Ignition,
}

impl Reader {
    /// What an operating system has for a provisioning utility.
    pub fn of(os: Option<OperatingSystem>, utility: ProvisioningUtility) -> Self {
        match (utility, os) {
            (ProvisioningUtility::Ignition, _) => Self::Ignition,
            (ProvisioningUtility::CloudInit, Some(OperatingSystem::Flatcar)) => Self::CoreosCloudinit,
            (ProvisioningUtility::CloudInit, _) => Self::CloudInit,
        }
    }
}

/// Why a profile can't have this cloud-init module, if so.
pub fn unsupported_module(reader: Reader, module: &str) -> Option<&'static str> {
    match (reader, module) {
        (Reader::CloudInit, _) => None,
        (_, "packages" | "package_update" | "package_upgrade" | "package_reboot_if_required") => {
            Some("Flatcar has no package manager: let a unit fetch what you need to /opt")
        }
        _ => Some("Flatcar applies no modules of cloud-init: use files, and units that run scripts"),
    }
}
