//! The network of the machines: a bridge with the addresses of the host, and a cable for each machine. No
//! route leads out of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result};

use super::{API, API_IPV6, HOST, HOST_IPV6, METADATA, run};

pub(super) const BRIDGE: &str = "lab0";

const PREFIX_LENGTH: u8 = 24;
pub(super) const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
const PREFIX_LENGTH_IPV6: u8 = 64;

/// What a machine's network is like. Its default route leads to a host beyond which nobody answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// The machine has an IPv4 address.
    IPv4,
    /// It has an IPv6 address, and no other.
    IPv6,
}

impl Link {
    /// As whom servers see the machine of this address.
    #[must_use]
    pub fn seen_as(self, address: Ipv4Addr) -> IpAddr {
        match self {
            Self::IPv4 => address.into(),
            Self::IPv6 => ipv6_of(address).into(),
        }
    }

    /// cloud-init's network configuration. The card with the address `mac` becomes `eth0`.
    pub(super) fn configuration(self, address: Ipv4Addr, mac: &str) -> String {
        let (prefix, everything, gateway) = match self {
            Self::IPv4 => (PREFIX_LENGTH, "0.0.0.0/0", IpAddr::from(HOST)),
            Self::IPv6 => (PREFIX_LENGTH_IPV6, "::/0", IpAddr::from(HOST_IPV6)),
        };
        format!(
            "version: 2\nethernets:\n  eth0:\n    match: {{macaddress: \"{mac}\"}}\n    set-name: eth0\n    \
             addresses: [\"{}/{prefix}\"]\n    accept-ra: false\n    routes: [{{to: \"{everything}\", via: \"{gateway}\"}}]\n",
            self.seen_as(address)
        )
    }
}

/// The IPv6 address of the machine that has this IPv4 address.
#[must_use]
pub fn ipv6_of(address: Ipv4Addr) -> Ipv6Addr {
    let ([a, b, c, d, ..], [.., last]) = (HOST_IPV6.segments(), address.octets());
    Ipv6Addr::new(a, b, c, d, 0, 0, 0, last.into())
}

fn ip(arguments: &str) -> Result<()> {
    run("ip", &arguments.split_whitespace().collect::<Vec<_>>()).map(drop)
}

/// In the namespaces of this process.
pub(super) fn set_up() -> Result<()> {
    ip("link set lo up")?;
    ip(&format!("link add {BRIDGE} type bridge"))?;
    ip(&format!("addr add {HOST}/{PREFIX_LENGTH} dev {BRIDGE}"))?;
    ip(&format!("addr add {API}/{PREFIX_LENGTH} dev {BRIDGE}"))?;
    ip(&format!("addr add {METADATA}/32 dev {BRIDGE}"))?;
    for address in [HOST_IPV6, API_IPV6] {
        // At once, without a look whether someone else has it: servers are to listen there.
        ip(&format!(
            "addr add {address}/{PREFIX_LENGTH_IPV6} dev {BRIDGE} nodad"
        ))?;
    }
    ip(&format!("link set {BRIDGE} up"))
}

pub(super) fn add_address(address: Ipv4Addr) -> Result<()> {
    ip(&format!("addr add {address}/32 dev {BRIDGE}"))
}

pub(super) fn route(network: &str, machine: Ipv4Addr) -> Result<()> {
    ip(&format!("route add {network} via {machine} dev {BRIDGE}"))
}

/// A machine's connection to the network: a tap device on the bridge, which QEMU opens.
#[derive(Debug)]
pub(super) struct Cable {
    port: String,
    address: Ipv4Addr,
}

impl Cable {
    pub(super) fn lay(address: Ipv4Addr) -> Result<Self> {
        // An interface's name has at most 15 characters.
        let port = format!("lab{}", address.octets()[3]);
        let cable = Self { port, address };
        let port = &cable.port;
        ip(&format!("tuntap add dev {port} mode tap"))
            .context("/dev/net/tun must be readable and writable for everybody, as udev makes it: chmod 666 /dev/net/tun")?;
        ip(&format!("link set {port} master {BRIDGE} up"))?;
        Ok(cable)
    }

    /// The bridge's end.
    pub(super) fn port(&self) -> &str {
        &self.port
    }

    /// The address of the machine's card.
    pub(super) fn mac(&self) -> String {
        let [_, b, c, d] = self.address.octets();
        format!("52:54:00:{b:02x}:{c:02x}:{d:02x}")
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // What is left goes with our own namespaces.
        let _ = ip(&format!("link del {}", self.port));
    }
}
