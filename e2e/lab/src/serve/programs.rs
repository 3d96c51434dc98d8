//! Servers that are programs of Debian: a registry of images, a proxy with a password, and a name server.
//! Dropping one ends it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use osm_testkit::process::Service;
use serde_json::json;
use tempfile::NamedTempFile;

use super::Request;
use super::identity::Identity;
use super::oci;
use crate::machines::{program, run};

/// How long a program may take until it is ready.
const STARTS: Duration = Duration::from_secs(180);

/// How often it is looked whether it is.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Starts a program, and waits until its log has this text. The log is in the folder.
pub(crate) fn start(name: &str, arguments: &[&str], folder: &Path, ready: &str) -> Result<Service> {
    let log = folder.join(format!("{name}.log"));
    let mut process = Service::spawn(&program(name)?, arguments, [("LC_ALL", "C")], &log)?;
    let started = Instant::now();
    while !process.logs()?.contains(ready) {
        if process.exited()?.is_some() || started.elapsed() > STARTS {
            bail!("{name} does not start: {}", process.log_tail(5));
        }
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(process)
}

/// A registry, empty at first.
///
/// For containerd it is a mirror of every registry whose `hosts.toml` names it: pulls for all of them arrive
/// at the same paths.
#[derive(Debug)]
pub struct Registry {
    process: Service,
    address: SocketAddr,
}

impl Registry {
    /// Starts it, with its files in a new folder. It uses TLS if it has an identity. The port 0 is replaced
    /// by a free one.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(folder: &Path, mut listen: SocketAddr, identity: Option<&Identity>) -> Result<Self> {
        fs::create_dir(folder).with_context(|| folder.display().to_string())?;
        if listen.port() == 0 {
            listen = TcpListener::bind(listen)?.local_addr()?;
        }
        let [configuration, content, certificate, key] =
            ["configuration", "content", "certificate", "key"].map(|name| folder.join(name));
        let mut http = json!({"addr": listen.to_string()});
        if let Some(identity) = identity {
            fs::write(&certificate, &identity.certificate)?;
            fs::write(&key, &identity.key)?;
            http = json!({"addr": listen.to_string(), "tls": {"certificate": certificate, "key": key}});
        }
        let text =
            json!({"version": 0.1, "storage": {"filesystem": {"rootdirectory": content}}, "http": http});
        fs::write(&configuration, text.to_string())?;
        let configuration = configuration.display().to_string();
        let process = start(
            "docker-registry",
            &["serve", &configuration],
            folder,
            "listening on",
        )?;
        Ok(Self {
            process,
            address: listen,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives it an image that runs `binary`, by the name `repository:tag`. Without TLS only.
    ///
    /// # Errors
    /// What skopeo says.
    pub fn push(&self, name: &str, binary: &Path) -> Result<()> {
        let archive = NamedTempFile::new()?;
        fs::write(archive.path(), oci::archive(name, binary)?)?;
        let from = format!("docker-archive:{}", archive.path().display());
        let to = format!("docker://localhost:{}/{name}", self.address.port());
        let arguments = ["--insecure-policy", "copy", "--dest-tls-verify=false", &from, &to];
        run("skopeo", &arguments).map(drop)
    }

    /// Every request so far that was answered.
    ///
    /// # Errors
    /// When its log can't be read.
    pub fn requests(&self) -> Result<Vec<Request>> {
        Ok(self.process.logs()?.lines().filter_map(request).collect())
    }
}

/// Reads a line of a log in the format of Apache: `10.217.0.10 - - [26/Nov/2026:14:00:00 +0000] "GET /v2/
/// HTTP/1.1" 200 2 "" "curl"`.
fn request(line: &str) -> Option<Request> {
    let (client, _) = line.split_once(' ')?;
    let mut parts = line.split('"').skip(1);
    let mut words = parts.next()?.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    Some(Request {
        client: client.parse::<IpAddr>().ok()?.to_canonical(),
        method: method.to_owned(),
        path: path.split('?').next()?.to_owned(),
        status: parts.next()?.trim_start().split(' ').next()?.parse().ok()?,
    })
}

/// A proxy for plain HTTP that demands a user name and a password.
#[derive(Debug)]
pub struct Proxy(Service);

impl Proxy {
    /// Starts it. User name and password may have only letters, digits, dots, hyphens and underscores.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(folder: &Path, listen: SocketAddr, username: &str, password: &str) -> Result<Self> {
        let file = folder.join("tinyproxy.conf");
        let (address, port) = (listen.ip(), listen.port());
        let text = format!("Listen {address}\nPort {port}\nLogLevel Info\nBasicAuth {username} {password}\n");
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        let file = file.display().to_string();
        start("tinyproxy", &["-d", "-c", &file], folder, "Starting main loop").map(Self)
    }

    /// Lines about the requests so far. Each has the whole URL.
    ///
    /// # Errors
    /// When its log can't be read.
    pub fn requests(&self) -> Result<Vec<String>> {
        let log = self.0.logs()?;
        let lines = log.lines().filter(|line| line.contains("Request"));
        Ok(lines.map(str::to_owned).collect())
    }
}

#[derive(Debug)]
pub struct NameServer {
    _process: Service,
}

impl NameServer {
    /// Starts it on port 53 of an address. It knows the address of one name only.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(folder: &Path, listen: Ipv4Addr, name: &str, address: Ipv4Addr) -> Result<Self> {
        let arguments = [
            // In the foreground and as the user who starts it: the lab's namespace may have no other.
            "--no-daemon",
            "--conf-file=/dev/null",
            "--no-resolv",
            "--no-hosts",
            "--bind-interfaces",
            &format!("--listen-address={listen}"),
            &format!("--address=/{name}/{address}"),
        ];
        let process = start("dnsmasq", &arguments, folder, "started, version")?;
        Ok(Self { _process: process })
    }
}
