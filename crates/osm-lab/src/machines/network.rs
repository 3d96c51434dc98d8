//! The network of the machines: a bridge with the addresses of the host, and a cable for each machine. No route leads out of it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, ensure};

use super::{API, API_IPV6, HOST, HOST_IPV6, METADATA, run};

pub(super) const BRIDGE: &str = "lab0";

const PREFIX_LENGTH: u8 = 24;
pub(super) const NETMASK: Ipv4Addr = Ipv4Addr::new(255, 255, 255, 0);
const PREFIX_LENGTH_IPV6: u8 = 64;

/// What a machine's network is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The machine has an IPv4 address.
    pub ipv4: bool,
    /// It has an IPv6 address.
    pub ipv6: bool,
    /// It has default routes, though nobody beyond them answers.
    pub routed: bool,
}

impl Default for Link {
    /// IPv4, with a default route.
    fn default() -> Self {
        Self {
            ipv4: true,
            ipv6: false,
            routed: true,
        }
    }
}

impl Link {
    /// As whom servers see the machine of this address. One with both families comes by IPv4.
    #[must_use]
    pub fn seen_as(self, address: Ipv4Addr) -> IpAddr {
        if self.ipv4 {
            address.into()
        } else {
            ipv6_of(address).into()
        }
    }

    /// cloud-init's network configuration for it.
    ///
    /// The only card is `eth0`. A kernel that numbers cards by their slots needs `mac`, the address of the card that is to have this name.
    pub(super) fn configuration(self, address: Ipv4Addr, mac: Option<&str>) -> String {
        let (mut addresses, mut routes) = (Vec::new(), Vec::new());
        if self.ipv4 {
            addresses.push(format!("{address}/{PREFIX_LENGTH}"));
            routes.push(format!("{{to: 0.0.0.0/0, via: {HOST}}}"));
        }
        if self.ipv6 {
            addresses.push(format!("\"{}/{PREFIX_LENGTH_IPV6}\"", ipv6_of(address)));
            routes.push(format!("{{to: \"::/0\", via: \"{HOST_IPV6}\"}}"));
        }
        let interface = format!(
            "    addresses: [{}]\n    accept-ra: false\n",
            addresses.join(", ")
        );
        let routes = if self.routed {
            format!("    routes: [{}]\n", routes.join(", "))
        } else {
            String::new()
        };
        let card = mac.map_or_else(String::new, |mac| {
            format!("    match: {{macaddress: \"{mac}\"}}\n    set-name: eth0\n")
        });
        format!("version: 2\nethernets:\n  eth0:\n{card}{interface}{routes}")
    }

    /// The same as an argument of a kernel that calls the only card `eth0`. systemd's generator of networks reads it.
    ///
    /// # Errors
    /// With IPv6, which this does not support.
    pub(super) fn kernel_arguments(self, address: Ipv4Addr) -> Result<String> {
        ensure!(
            self.ipv4 && !self.ipv6,
            "the arguments of its kernel can describe only a network of IPv4"
        );
        let gateway = if self.routed {
            HOST.to_string()
        } else {
            String::new()
        };
        Ok(format!("ip={address}::{gateway}:{NETMASK}::eth0:none"))
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
        // At once, without a look whether somebody else has it: servers are to listen there.
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

/// A machine's connection to the network.
#[derive(Debug)]
pub(super) struct Cable {
    /// The namespace that has `eth0`, where the machine is a container.
    namespace: Option<String>,
    /// The bridge's end: half of a pair of virtual cards, or the card that QEMU reads and writes.
    port: String,
    address: Ipv4Addr,
}

impl Cable {
    /// A cable to a new namespace. `eth0` is up and has no address: the machine sets it.
    pub(super) fn lay(name: &str, address: Ipv4Addr) -> Result<Self> {
        let cable = Self::new(Some(name.to_owned()), address);
        let port = &cable.port;
        ip(&format!("netns add {name}"))?;
        ip(&format!("link add {port} type veth peer name eth0 netns {name}"))?;
        ip(&format!("link set {port} master {BRIDGE} up"))?;
        ip(&format!("-n {name} link set lo up"))?;
        ip(&format!("-n {name} link set eth0 up"))?;
        Ok(cable)
    }

    /// A cable to a tap device, which QEMU opens.
    pub(super) fn tap(address: Ipv4Addr) -> Result<Self> {
        let cable = Self::new(None, address);
        let port = &cable.port;
        ip(&format!("tuntap add dev {port} mode tap"))
            .context("/dev/net/tun must be readable and writable for everybody, as udev makes it: chmod 666 /dev/net/tun")?;
        ip(&format!("link set {port} master {BRIDGE} up"))?;
        Ok(cable)
    }

    fn new(namespace: Option<String>, address: Ipv4Addr) -> Self {
        // An interface's name has at most 15 characters.
        let port = format!("lab{}", address.octets()[3]);
        Self {
            namespace,
            port,
            address,
        }
    }

    pub(super) fn namespace_path(&self) -> String {
        format!("/run/netns/{}", self.namespace.as_deref().unwrap_or_default())
    }

    /// The bridge's end.
    pub(super) fn port(&self) -> &str {
        &self.port
    }

    /// The address of the card of a virtual machine.
    pub(super) fn mac(&self) -> String {
        let [_, b, c, d] = self.address.octets();
        format!("52:54:00:{b:02x}:{c:02x}:{d:02x}")
    }

    /// From now on nothing that the host sends from `from` reaches the machine: connections time out.
    pub(super) fn cut(&self, from: Ipv4Addr) -> Result<()> {
        ip(&format!("rule add from {from} to {} blackhole", self.address))
    }

    /// Takes back [`Self::cut`].
    pub(super) fn mend(&self, from: Ipv4Addr) -> Result<()> {
        ip(&format!("rule del from {from} to {} blackhole", self.address))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // What is left goes with our own namespaces.
        let _ = ip(&format!("link del {}", self.port));
        if let Some(namespace) = &self.namespace {
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}
