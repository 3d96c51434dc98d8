//! DHCP on the network of the machines, for those that know nothing but their card's address: dnsmasq,
//! without its DNS.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use osm_testkit::process::Service;

use super::network::{BRIDGE, NETMASK};
use super::{HOST, LOGS};
use crate::serve::programs;

/// A DHCP server. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Dhcp {
    _process: Service,
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
            "--no-daemon",
            "--conf-file=/dev/null",
            "--port=0",
            &format!("--interface={BRIDGE}"),
            &format!("--dhcp-range={HOST},static,{NETMASK}"),
            &format!("--dhcp-option=option:router,{HOST}"),
            &format!("--dhcp-hostsdir={}", leases.display()),
            "--leasefile-ro",
        ];
        let process = programs::start(
            "dnsmasq",
            &arguments,
            &directory.join(LOGS),
            "DHCP, static leases only",
        )?;
        Ok(Self {
            _process: process,
            leases,
        })
    }

    /// From now on, the card with this address gets this IPv4 address, and a default route.
    pub(super) fn lease(&self, mac: &str, address: Ipv4Addr) -> Result<()> {
        // Programs of a machine call themselves by different ids, one after the other.
        let lease = format!("{mac},id:*,{address}\n");
        fs::write(self.leases.join(address.to_string()), lease).context("a lease")
    }
}
