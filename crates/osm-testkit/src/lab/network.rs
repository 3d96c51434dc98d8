//! The machines' network: a bridge with the host's addresses, and a cable for each machine. No route leads out of it.

use std::net::Ipv4Addr;

use anyhow::Result;

use super::{API, HOST, METADATA, run};

const BRIDGE: &str = "lab0";

pub(super) const PREFIX_LENGTH: u8 = 24;

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
    ip(&format!("link set {BRIDGE} up"))
}

/// A machine's end of the network: a namespace with `eth0`.
#[derive(Debug)]
pub(super) struct Cable {
    namespace: String,
    port: String,
    address: Ipv4Addr,
}

impl Cable {
    /// `eth0` is up and has no address: that is for the machine to set.
    pub(super) fn lay(name: &str, address: Ipv4Addr) -> Result<Self> {
        // An interface's name has at most 15 characters.
        let port = format!("lab{}", address.octets()[3]);
        let cable = Self { namespace: name.to_owned(), port, address };
        let Self { namespace, port, .. } = &cable;
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("link add {port} type veth peer name eth0 netns {namespace}"))?;
        ip(&format!("link set {port} master {BRIDGE} up"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        ip(&format!("-n {namespace} link set eth0 up"))?;
        Ok(cable)
    }

    pub(super) fn namespace_path(&self) -> String {
        format!("/run/netns/{}", self.namespace)
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
        let _ = ip(&format!("netns del {}", self.namespace));
    }
}
