//! Machines: a kernel's namespaces with systemd as init, booted from user data as a cloud's virtual machine is, on a network that
//! leads nowhere.
//!
//! A program that wants machines calls [`isolation::enter`] first. It gets a process of its own namespaces (network, mounts, processes),
//! in which [`Lab::new`] sets up a bridge and [`Lab::boot`] starts machines. When that process ends, however it ends, the kernel removes
//! everything that it has made, and [`isolation`] the files; empty control groups of one that was killed go when the next one starts.
//!
//! Needs root, and the packages of [`PACKAGES`].

mod cgroups;
pub mod image;
pub mod isolation;
pub mod journal;
mod machine;
mod network;
pub mod processes;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result};

pub use self::image::{Image, Release};
pub use self::machine::{Machine, Order};

/// Debian packages that machines need on their host.
pub const PACKAGES: &[&str] = &[
    "debian-archive-keyring",
    "iproute2",
    "mmdebstrap",
    "mount",
    "systemd",
    "systemd-container",
    "util-linux",
];

/// The host's address on the machines' network: mirror, registry, or whatever a test serves.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 217, 0, 1);

/// A second address of the host, for the API server: it can be cut off by itself.
pub const API: Ipv4Addr = Ipv4Addr::new(10, 217, 0, 2);

/// A third one: where clouds have their metadata services.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// The first machine's address.
const FIRST: u8 = 10;

/// The network and the folder of machines.
#[derive(Debug)]
pub struct Lab {
    directory: PathBuf,
    /// Last byte of the next machine's address.
    next: AtomicU8,
}

impl Lab {
    /// Sets up the network. Only within [`isolation::enter`].
    ///
    /// # Errors
    /// When the process is not isolated, or the kernel refuses something.
    pub fn new() -> Result<Self> {
        let directory =
            isolation::directory().context("machines need namespaces of their own: isolation::enter")?;
        // Sockets, locks and names of namespaces that are not the host's.
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
        network::set_up()?;
        Ok(Self { directory, next: AtomicU8::new(FIRST) })
    }

    /// Where machines have their files; removed at the end.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// An address for a machine, which nobody else has.
    #[must_use]
    pub fn reserve(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 217, 0, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Boots a machine for the first time.
    ///
    /// # Errors
    /// When it can't be started; whether it boots is for its owner to see.
    pub fn boot(&self, order: Order<'_>) -> Result<Machine> {
        Machine::boot(&self.directory, order)
    }
}

/// Runs a command to its end, and gives its output.
fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = std::process::Command::new(program)
        .args(arguments)
        .stdin(std::process::Stdio::null())
        .output()
        .with_context(|| format!("{program} can't be run"))?;
    anyhow::ensure!(
        output.status.success(),
        "{program} {} failed ({}): {}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
