//! Machines with systemd as init. They boot from user data as the virtual machine of a cloud does, on a network without a route to the
//! outside. A machine is a virtual machine ([`vm`]) or a container ([`Container`]), and [`Machine`] is either.
//!
//! A program that needs machines first calls [`isolation::enter`]. It then gets a process in separate namespaces (network, mounts, processes).
//! There [`Lab::new`] sets up a bridge, and [`Lab::boot`] starts machines. When that process ends, however it ends, the kernel removes
//! everything in the namespaces, and [`isolation`] removes the files. The next start removes the empty control groups of a process that was
//! killed.
//!
//! Containers need root, control groups of version 1, and the packages of [`PACKAGES`]. Virtual machines need none of these, but the programs
//! that [`vm::require_programs`] names.

mod cgroups;
mod container;
mod dhcp;
mod folder;
pub mod image;
pub mod isolation;
pub mod journal;
mod machine;
mod network;
pub mod processes;
mod rootfs;
pub mod vm;

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

pub use self::container::Container;
pub use self::image::{Image, Kind, Release, System};
pub use self::machine::{DataSource, Hardware, Machine, Order, Tmpfs, unchanged};
pub use self::network::{Link, ipv6_of};
pub use self::vm::{Checksum, Given};

use self::dhcp::Dhcp;
use crate::serve::metadata::InstanceMetadata;

/// Debian packages that containers need on their host.
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
#[derive(Debug)]
pub struct Lab {
    directory: PathBuf,
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
    pub fn new() -> Result<Self> {
        let directory =
            isolation::directory().context("machines need namespaces of their own: isolation::enter")?;
        // Sockets, locks and names of namespaces that are not the host's.
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])?;
        network::set_up()?;
        fs::create_dir_all(directory.join(LOGS))?;
        Ok(Self {
            directory,
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

    /// Starts the metadata service of the machines' clouds. Until then, servers may listen on port 80 of all addresses.
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

/// Runs a command to its end, and gives its output.
fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{program} can't be run"))?;
    judge(program, arguments, output.status, &output.stdout, &output.stderr)
}

/// The same for what may never end by itself: it and what it has started are killed then.
fn run_within(deadline: Duration, program: &str, arguments: &[&str]) -> Result<String> {
    // No pipes: whoever inherits one could keep us waiting for its end.
    let (mut said, mut complained) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(complained.try_clone()?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("{program} can't be run"))?;
    let group = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .context("process id")?;
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() > deadline {
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
            // A process that waits for hardware ends only when that answers.
            let killed = Instant::now();
            while child.try_wait()?.is_none() && killed.elapsed() < ENDS {
                thread::sleep(POLL_INTERVAL);
            }
            let complaint = content(&mut complained)?;
            bail!(
                "{program} {} {NOT_OVER} after {deadline:?}: {}",
                arguments.join(" "),
                String::from_utf8_lossy(&complaint).trim_end()
            );
        }
        thread::sleep(POLL_INTERVAL);
    };
    judge(
        program,
        arguments,
        status,
        &content(&mut said)?,
        &content(&mut complained)?,
    )
}

/// What is said of a command that was ended.
const NOT_OVER: &str = "was not over";

/// How long a command may take to end after SIGKILL.
const ENDS: Duration = Duration::from_secs(5);

/// How often it is looked whether a command has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

fn content(file: &mut File) -> Result<Vec<u8>> {
    let mut content = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut content)?;
    Ok(content)
}

fn judge(
    program: &str,
    arguments: &[&str],
    status: ExitStatus,
    said: &[u8],
    complained: &[u8],
) -> Result<String> {
    ensure!(
        status.success(),
        "{program} {} failed ({status}): {}",
        arguments.join(" "),
        String::from_utf8_lossy(complained).trim_end()
    );
    Ok(String::from_utf8_lossy(said).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_command_that_does_not_end_is_ended_with_its_children() {
        assert_eq!(
            run_within(Duration::from_secs(20), "sh", &["-c", "echo out; echo no >&2"]).unwrap(),
            "out\n"
        );
        let error = run_within(Duration::from_secs(20), "sh", &["-c", "echo why >&2; exit 3"]).unwrap_err();
        assert!(error.to_string().ends_with("(exit status: 3): why"), "{error}");
        let scratch = tempfile::tempdir().unwrap();
        let pid = scratch.path().join("pid");
        let script = format!("sleep 300 & echo $! >{}; echo stuck >&2; wait", pid.display());
        let error = run_within(Duration::from_secs(1), "sh", &["-c", &script]).unwrap_err();
        assert!(
            error.to_string().ends_with("was not over after 1s: stuck"),
            "{error}"
        );
        let child = std::fs::read_to_string(pid).unwrap();
        osm_testkit::wait_for("its child to end", Duration::from_secs(20), async || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.trim()));
            // Whoever has inherited it may not have noticed yet.
            osm_testkit::check(stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z ")))
        })
        .await
        .unwrap();
    }

    #[test]
    fn a_machine_is_configured_as_its_link_says() {
        let address = Ipv4Addr::new(10, 217, 0, 17);
        assert_eq!(ipv6_of(address).to_string(), "fd00:10:217::11");
        let isolated = Link {
            routed: false,
            ..Link::default()
        };
        assert_eq!(
            isolated.configuration(address, None),
            "version: 2\nethernets:\n  eth0:\n    addresses: [10.217.0.17/24]\n    accept-ra: false\n"
        );
        let by_mac = isolated.configuration(address, Some("52:54:00:d9:00:11"));
        assert!(
            by_mac.contains(
                "  eth0:\n    match: {macaddress: \"52:54:00:d9:00:11\"}\n    set-name: eth0\n    addresses:"
            ),
            "{by_mac}"
        );
        assert_eq!(
            isolated.kernel_arguments(address).unwrap(),
            "ip=10.217.0.17:::255.255.255.0::eth0:none"
        );
        assert_eq!(
            Link::default().kernel_arguments(address).unwrap(),
            "ip=10.217.0.17::10.217.0.1:255.255.255.0::eth0:none"
        );
        assert_eq!(isolated.seen_as(address), address);
        let ipv6 = Link {
            ipv4: false,
            ipv6: true,
            routed: true,
        };
        assert_eq!(ipv6.seen_as(address), ipv6_of(address));
        assert!(ipv6.kernel_arguments(address).is_err());
        let text = ipv6.configuration(address, None);
        assert!(
            text.contains("\"fd00:10:217::11/64\"") && !text.contains("10.217"),
            "{text}"
        );
        assert!(
            text.contains("routes: [{to: \"::/0\", via: \"fd00:10:217::1\"}]"),
            "{text}"
        );
    }
}
