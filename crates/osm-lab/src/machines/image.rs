//! What machines boot from.

use std::fmt;

use anyhow::{Result, bail};

use super::rootfs::RootFs;
use super::vm::{Accelerator, Disk, Given};

/// A release of Debian: a stand-in for a cloud's Ubuntu image, with the same package manager and the same cloud-init.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// systemd 252, cloud-init 22.4.
    Debian12,
    /// systemd 257, cloud-init 25.1.
    Debian13,
}

impl Release {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Debian12, Self::Debian13];

    pub(super) fn suite(self) -> &'static str {
        match self {
            Self::Debian12 => "bookworm",
            Self::Debian13 => "trixie",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Debian12 => "Debian 12",
            Self::Debian13 => "Debian 13",
        })
    }
}

/// What runs on a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum System {
    /// A release of Debian, built here.
    Debian(Release),
    /// Debian 12 whose user data Ignition reads in the initramfs, built here. It stands in for Flatcar. Only virtual machines boot it.
    DebianWithIgnition,
    /// An image that was built elsewhere. Only virtual machines boot it.
    Given(Given),
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Debian(release) => release.fmt(f),
            Self::DebianWithIgnition => write!(f, "{} with Ignition", Release::Debian12),
            Self::Given(image) => f.write_str(&image.name),
        }
    }
}

/// How a machine is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A container in namespaces and control groups of this host's kernel. It needs root, and control groups of version 1.
    Container,
    /// A virtual machine of QEMU, with a kernel of its own.
    Virtual(Accelerator),
}

impl Kind {
    /// How many times longer such a machine may take for everything than a container on the same host.
    #[must_use]
    pub fn slowness(&self) -> u32 {
        match self {
            Self::Container => 1,
            Self::Virtual(accelerator) => accelerator.slowness(),
        }
    }

    /// Its name without a reason, which may name files of this host.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Container => "containers",
            Self::Virtual(Accelerator::Kvm) => "KVM",
            Self::Virtual(Accelerator::Emulation { .. }) => "emulation",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container => f.write_str("containers"),
            Self::Virtual(Accelerator::Kvm) => f.write_str("virtual machines with KVM"),
            Self::Virtual(Accelerator::Emulation { reason }) => {
                write!(f, "virtual machines by emulation, because {reason}")
            }
        }
    }
}

/// An image, shared by all machines that boot from it and changed by none.
#[derive(Debug, Clone)]
pub struct Image(pub(super) Content);

#[derive(Debug, Clone)]
pub(super) enum Content {
    Container(RootFs),
    Virtual(Disk, Accelerator),
}

impl Image {
    /// The image of a system for machines of a kind. One of Debian comes from the cache, else it is built, which takes minutes. One that was
    /// given is verified.
    ///
    /// # Errors
    /// When it can't be built, can't be had, or is not what its checksum says.
    pub fn ensure(kind: &Kind, system: &System, progress: impl Fn(&str)) -> Result<Self> {
        Ok(Self(match (kind, system) {
            (Kind::Container, System::Debian(release)) => {
                Content::Container(RootFs::ensure(*release, progress)?)
            }
            (Kind::Container, System::DebianWithIgnition | System::Given(_)) => {
                bail!("{system} boots only as a virtual machine: add --machines virtual")
            }
            (Kind::Virtual(accelerator), System::Debian(release)) => {
                Content::Virtual(Disk::ensure(*release, progress)?, accelerator.clone())
            }
            (Kind::Virtual(accelerator), System::DebianWithIgnition) => {
                Content::Virtual(Disk::with_ignition(progress)?, accelerator.clone())
            }
            (Kind::Virtual(accelerator), System::Given(image)) => {
                Content::Virtual(image.disk(progress)?, accelerator.clone())
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_kind_has_no_reason() {
        let reason = "qemu-system-x86_64 -accel kvm: see /tmp/x/console".to_owned();
        let emulation = Kind::Virtual(Accelerator::Emulation { reason });
        assert!(emulation.to_string().contains("/tmp/x/console"));
        assert_eq!(emulation.name(), "emulation");
        assert_eq!(Kind::Virtual(Accelerator::Kvm).name(), "KVM");
    }
}
