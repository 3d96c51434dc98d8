//! Stand-ins for Internet hosts, for commands that need them on a computer without Internet access.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result};

use super::files::FileServer;
use super::relay::Identity;

/// Servers that stand in for hosts: each gives the files of a folder that is called as the host is, by TLS, on a loopback address of its
/// own. Whoever is to believe it needs [`Internet::hosts`] and [`Internet::ca`].
#[derive(Debug)]
pub struct Internet {
    servers: Vec<FileServer>,
    hosts: String,
    ca: String,
}

impl Internet {
    /// One server for each folder in `root`; `port` is 443 but for who may not listen there.
    ///
    /// # Errors
    /// When a folder can't be read, or there are more than 254 hosts, or an address can't be listened on.
    pub fn start(root: &Path, port: u16) -> Result<Self> {
        let mut names: Vec<String> = std::fs::read_dir(root)
            .with_context(|| root.display().to_string())?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_>>()?;
        names.sort_unstable();
        let (ca, identities) = Identity::of_hosts(&names)?;
        let mut internet = Self {
            servers: Vec::new(),
            hosts: String::new(),
            ca,
        };
        for (i, (name, identity)) in names.iter().zip(identities).enumerate() {
            let last = u8::try_from(i + 1).context("too many hosts")?;
            let address = IpAddr::V4(Ipv4Addr::new(127, 0, 1, last));
            internet.servers.push(FileServer::start_tls(
                SocketAddr::new(address, port),
                &root.join(name),
                &identity,
            )?);
            internet.hosts += &format!("{address} {name}\n");
        }
        Ok(internet)
    }

    /// Lines for `/etc/hosts`.
    #[must_use]
    pub fn hosts(&self) -> &str {
        &self.hosts
    }

    /// The certificate of the CA that vouches for the hosts, PEM.
    #[must_use]
    pub fn ca(&self) -> &str {
        &self.ca
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn each_host_gives_its_own_files_to_who_trusts_the_ca() {
        let root = tempfile::tempdir().unwrap();
        for host in ["a.example.com", "b.example.com"] {
            std::fs::create_dir(root.path().join(host)).unwrap();
            std::fs::write(root.path().join(host).join("file"), format!("of {host}")).unwrap();
        }
        let port = std::net::TcpListener::bind("127.0.1.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let internet = Internet::start(root.path(), port).unwrap();
        let ca = root.path().join("ca.crt");
        std::fs::write(&ca, internet.ca()).unwrap();
        for line in internet.hosts().lines() {
            let (address, host) = line.split_once(' ').unwrap();
            let curl = |more: &[&str]| {
                let mut curl = Command::new("curl");
                curl.args(["-sS", "--resolve", &format!("{host}:{port}:{address}")])
                    .args(more);
                curl.arg(format!("https://{host}:{port}/file")).output().unwrap()
            };
            let trusting = curl(&["--cacert", &ca.display().to_string()]);
            assert_eq!(String::from_utf8_lossy(&trusting.stdout), format!("of {host}"));
            assert_eq!(curl(&[]).status.code(), Some(60), "a stranger trusts it");
        }
    }
}
