//! The table of operating systems: what differs between them, a row each, so that templates need no
//! conditions on the system.

use osm_api::profile::OperatingSystem;

/// Distributions whose package manager, paths and habits are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Debian,
    RedHat,
    Flatcar,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct System {
    pub family: Family,
    /// Whether its images come with SELinux.
    pub selinux: bool,
    /// The Python that cloud-init runs on, which has a YAML module.
    pub python: Python,
}

/// Two commands or paths, of which a machine uses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Python {
    /// Used where it exists.
    pub first: &'static str,
    /// Used where the first does not exist.
    pub otherwise: &'static str,
}

/// The row of an operating system.
pub fn system(os: OperatingSystem) -> System {
    let python = |first, otherwise| Python { first, otherwise };
    let red_hat = |python| System {
        family: Family::RedHat,
        selinux: true,
        python,
    };
    match os {
        OperatingSystem::Ubuntu => System {
            family: Family::Debian,
            selinux: false,
            python: python("python3", "/usr/libexec/platform-python"),
        },
        // RHEL 8, "Using Python": the system's own tools run on platform-python; python3 can be another one,
        // without their modules.
        OperatingSystem::Rhel | OperatingSystem::RockyLinux | OperatingSystem::CentOs => {
            red_hat(python("/usr/libexec/platform-python", "python3"))
        }
        // cloud-init and yum run on Python 2.7 there; python3 comes without YAML.
        OperatingSystem::Amzn2 => red_hat(python("python2.7", "python3")),
        // It has no Python, but the curl that scripts try first.
        OperatingSystem::Flatcar => System {
            family: Family::Flatcar,
            selinux: true,
            python: python("python3", "/usr/libexec/platform-python"),
        },
    }
}
