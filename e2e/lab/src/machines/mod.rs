//! Virtual machines that boot from user data as those of a cloud do, on a network without a route to the
//! outside.
//!
//! A program that needs machines first calls [`isolation::enter`]. It then gets a process in separate
//! namespaces (network, mounts, processes). There [`Lab::new`] sets up a bridge, and [`Lab::boot`] starts
//! machines. When that process ends, however it ends, the kernel removes everything in the namespaces, and
//! [`isolation`] removes the files.
//!
//! Machines need no root, but the programs that [`require_programs`] names.

mod agent;
mod dhcp;
mod ignition;
mod image;
pub mod isolation;
mod machine;
mod network;
mod openstack;
mod qemu;
mod seed;

use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;

pub use self::image::{Given, Image, Release, System};
pub use self::machine::{DataSource, Machine, Order, unchanged};
pub use self::network::{Link, ipv6_of};
pub use self::qemu::{Accelerator, PACKAGES, require_programs};

use self::dhcp::Dhcp;
use crate::serve::metadata::InstanceMetadata;

/// The host's address on the machines' network: mirror, registry, or whatever a test serves.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 217, 0, 1);

/// A second address of the host, for the API server: it can be cut off by itself.
pub const API: Ipv4Addr = Ipv4Addr::new(10, 217, 0, 2);

/// [`HOST`] of IPv6.
pub const HOST_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x217, 0, 0, 0, 0, 1);

/// [`API`] of IPv6.
pub const API_IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x217, 0, 0, 0, 0, 2);

/// Another address of the host: where clouds have their metadata services.
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// The folder of logs in the lab's folder. They outlive who writes them.
pub const LOGS: &str = "logs";

/// The first machine's address.
const FIRST: u8 = 10;

/// The network and the folder of machines.
pub struct Lab {
    directory: PathBuf,
    /// What runs machines.
    pub accelerator: Accelerator,
    /// Last byte of the next machine's address.
    next: AtomicU8,
    /// Started for the first machine that needs it.
    dhcp: Mutex<Option<Dhcp>>,
    metadata: Option<InstanceMetadata>,
}

impl Lab {
    /// Sets up the network. Only within [`isolation::enter`].
    ///
    /// # Errors
    /// When the process is not isolated, or the kernel refuses something.
    pub fn new(accelerator: Accelerator) -> Result<Self> {
        let directory =
            isolation::directory().context("machines need namespaces of their own: isolation::enter")?;
        // Sockets, locks and names of namespaces that are not the host's.
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
        network::set_up()?;
        fs::create_dir_all(directory.join(LOGS))?;
        Ok(Self {
            directory,
            accelerator,
            next: AtomicU8::new(FIRST),
            dhcp: Mutex::default(),
            metadata: None,
        })
    }

    /// Where machines have their files; removed at the end.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// One more address of the host.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn add_address(&self, address: Ipv4Addr) -> Result<()> {
        network::add_address(address)
    }

    /// The host finds `network` (`10.0.0.0/8`) behind a machine.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn route(&self, network: &str, machine: Ipv4Addr) -> Result<()> {
        network::route(network, machine)
    }

    /// An address for a machine, which nobody else has; [`ipv6_of`] it is the machine's alone as well.
    #[must_use]
    pub fn reserve(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 217, 0, self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Starts the metadata service of the machines' clouds. Until then, servers may listen on port 80 of all
    /// addresses.
    ///
    /// # Errors
    /// When something listens there.
    pub fn serve_metadata(&mut self) -> Result<()> {
        let address = SocketAddr::new(METADATA.into(), 80);
        self.metadata = Some(InstanceMetadata::start(address)?);
        Ok(())
    }

    /// The metadata service.
    ///
    /// # Errors
    /// When it was not started.
    pub fn metadata(&self) -> Result<&InstanceMetadata> {
        self.metadata
            .as_ref()
            .context("the lab has no metadata service: call serve_metadata first")
    }

    /// The card with the address `mac` gets this address by DHCP.
    fn lease(&self, mac: &str, address: Ipv4Addr) -> Result<()> {
        let mut dhcp = self.dhcp.lock();
        let server = dhcp.take().map_or_else(|| Dhcp::start(&self.directory), Ok)?;
        dhcp.insert(server).lease(mac, address)
    }

    /// Boots a machine for the first time.
    ///
    /// # Errors
    /// When it can't be started; whether it boots is for its owner to see.
    pub fn boot(&self, order: &Order<'_>) -> Result<Machine> {
        Machine::boot(self, order)
    }
}

/// Runs a command to its end, and gives its output. The program may be in a folder that only root's `PATH`
/// usually has.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(program)
        .args(arguments)
        .env("PATH", path_with_sbin())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} can't be run"))?;
    ensure!(
        status.success(),
        "{program} {} failed ({status}): {}",
        arguments.join(" "),
        String::from_utf8_lossy(&stderr).trim_end()
    );
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// `PATH` with the folders that only root's usually has.
fn path_with_sbin() -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{path}:/usr/local/sbin:/usr/sbin:/sbin")
}

/// Where a program is that [`require_programs`] has found.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    path_with_sbin()
        .split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed any more"))
}
