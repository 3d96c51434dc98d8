//! What machines boot from.

use std::fmt;

use anyhow::Result;

use super::rootfs::RootFs;
use super::vm::{Accelerator, Disk};

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
    /// The image of a release for machines of a kind: from the cache, else built from Debian's archive, which takes minutes.
    ///
    /// # Errors
    /// When it can't be built.
    pub fn ensure(kind: &Kind, release: Release, progress: impl Fn(&str)) -> Result<Self> {
        Ok(Self(match kind {
            Kind::Container => Content::Container(RootFs::ensure(release, progress)?),
            Kind::Virtual(accelerator) => {
                Content::Virtual(Disk::ensure(release, progress)?, accelerator.clone())
            }
        }))
    }
}
