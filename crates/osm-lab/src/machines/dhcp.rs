//! DHCP on the network of the machines, for those that know nothing but their card's address: dnsmasq, without its DNS.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::network::{BRIDGE, NETMASK};
use super::vm::program;
use super::{HOST, LOGS, POLL_INTERVAL};
use osm_testkit::process::Service;

const DNSMASQ: &str = "dnsmasq";

/// What it logs when it is ready.
const READY: &str = "DHCP, static leases only";

/// How long it may take until then.
const STARTS: Duration = Duration::from_secs(20);

/// A DHCP server. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Dhcp {
    process: Service,
    /// dnsmasq reads each new file in this folder.
    leases: PathBuf,
}

impl Dhcp {
    /// Starts it. `directory` is the lab's folder.
    pub(super) fn start(directory: &Path) -> Result<Self> {
        let leases = directory.join("leases");
        fs::create_dir(&leases).with_context(|| leases.display().to_string())?;
        let arguments = [
            // In the foreground and as the user who starts it: the lab's namespace may have no other.
            "--no-daemon".to_owned(),
            "--conf-file=/dev/null".to_owned(),
            "--port=0".to_owned(),
            format!("--interface={BRIDGE}"),
            format!("--dhcp-range={HOST},static,{NETMASK}"),
            format!("--dhcp-option=option:router,{HOST}"),
            format!("--dhcp-hostsdir={}", leases.display()),
            "--leasefile-ro".to_owned(),
        ];
        let log = directory.join(LOGS).join("dnsmasq.log");
        let mut process = Service::spawn(&program(DNSMASQ)?, arguments, [("LC_ALL", "C")], &log)?;
        let started = Instant::now();
        while !process.logs()?.contains(READY) {
            if process.exited()?.is_some() || started.elapsed() > STARTS {
                bail!("{DNSMASQ} does not start: {}", process.log_tail(5));
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(Self { process, leases })
    }

    /// From now on, the card with this address gets this IPv4 address, and a default route.
    pub(super) fn lease(&mut self, mac: &str, address: Ipv4Addr) -> Result<()> {
        if let Some(status) = self.process.exited()? {
            bail!(
                "{DNSMASQ} has ended by itself ({status}): {}",
                self.process.log_tail(5)
            );
        }
        // Programs of a machine call themselves by different ids, one after the other.
        fs::write(
            self.leases.join(address.to_string()),
            format!("{mac},id:*,{address}\n"),
        )
        .context("a lease")
    }
}
