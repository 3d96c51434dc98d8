//! The metadata services of clouds, by HTTP: that of EC2 (IMDSv2) and that of OpenStack, as far as cloud-init
//! and our profiles read them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;

use super::{Answer, Asked, Log, Request, Server, answer, serve_http};

/// A session's token: every request for one gets this.
const TOKEN: &str = "a-session-of-the-metadata-service";

/// The region in which EC2's machines are.
const REGION: &str = "eu-west-1";

/// The version of EC2's metadata that is served besides `latest`. cloud-init asks for it first.
const EC2_VERSION: &str = "2021-03-23";

/// A running metadata service. Dropping it ends it.
///
/// A machine reads its own [`Documents`].
pub struct InstanceMetadata {
    _server: Server,
    log: Log,
    machines: Arc<Mutex<HashMap<IpAddr, Documents>>>,
}

impl InstanceMetadata {
    /// Starts it.
    ///
    /// # Errors
    /// When `listen` can't be listened on.
    pub fn start(listen: SocketAddr) -> Result<Self> {
        let (log, machines) = (Log::default(), Arc::new(Mutex::new(HashMap::new())));
        let (serving, all) = (log.clone(), machines.clone());
        let server = Server::start(&[listen], move |stream, client| {
            let (log, all) = (serving.clone(), all.clone());
            async move {
                serve_http(stream, client, &log, async |request| {
                    let own = all.lock().get(&client).cloned();
                    tell(&request, &own.unwrap_or_else(|| Documents::new(true)))
                })
                .await;
            }
        })?;
        Ok(Self {
            _server: server,
            log,
            machines,
        })
    }

    /// From now on, the machine with this address reads these documents.
    pub fn add(&self, machine: Ipv4Addr, documents: Documents) {
        self.machines.lock().insert(machine.into(), documents);
    }

    /// Every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.log.lock().clone()
    }
}

/// What a machine can read.
#[derive(Clone)]
pub struct Documents {
    /// Whether only those read it who have asked for a token.
    requires_token: bool,
    /// By their paths, which begin without a slash.
    files: BTreeMap<String, Bytes>,
}

impl Documents {
    fn new(requires_token: bool) -> Self {
        Self {
            requires_token,
            files: BTreeMap::new(),
        }
    }

    fn with(mut self, path: impl Into<String>, content: impl Into<Bytes>) -> Self {
        self.files.insert(path.into(), content.into());
        self
    }

    /// Of a machine in EC2. `mac` is the address of its network card.
    #[must_use]
    pub fn ec2(instance_id: &str, address: Ipv4Addr, mac: &str, user_data: &[u8]) -> Self {
        let identity = json!({"instanceId": instance_id, "region": REGION, "privateIp": address});
        let card = format!("latest/meta-data/network/interfaces/macs/{mac}");
        Self::new(true)
            .with("latest/meta-data/local-hostname", private_dns_name(address))
            .with("latest/dynamic/instance-identity/document", identity.to_string())
            .with("latest/meta-data/instance-id", instance_id.to_owned())
            .with(format!("{card}/device-number"), "0")
            .with(format!("{card}/local-ipv4s"), address.to_string())
            // Without it, cloud-init takes the machine for one of EC2 Classic.
            .with(format!("{card}/vpc-id"), "vpc-0")
            .with("latest/user-data", user_data.to_vec())
    }

    /// Of a machine in OpenStack. `latest` has the files of its folder `openstack/latest`. It also finds its
    /// instance id where EC2 has it.
    #[must_use]
    pub fn openstack<'a>(instance_id: &str, latest: impl IntoIterator<Item = (&'a str, Vec<u8>)>) -> Self {
        let documents = Self::new(false)
            .with("openstack", "latest\n")
            .with("latest/meta-data/instance-id", instance_id.to_owned());
        latest.into_iter().fold(documents, |documents, (name, content)| {
            documents.with(format!("openstack/latest/{name}"), content)
        })
    }

    /// A file, or the names in a folder, where names of folders end with a slash.
    fn read(&self, path: &str) -> Option<Bytes> {
        let path = match path.strip_prefix(EC2_VERSION) {
            Some(rest) => format!("latest{rest}"),
            None => path.to_owned(),
        };
        self.files.get(&path).cloned().or_else(|| {
            let folder = format!("{path}/");
            let inside = self.files.keys().filter_map(|file| file.strip_prefix(&folder));
            let names: BTreeSet<&str> = inside
                .filter_map(|rest| rest.split_inclusive('/').next())
                .collect();
            let names = names.into_iter().collect::<Vec<_>>().join("\n");
            (!names.is_empty()).then(|| names.into())
        })
    }
}

/// The private DNS name of the machine with this address, as AWS makes it.
#[must_use]
pub fn private_dns_name(address: Ipv4Addr) -> String {
    let address = address.to_string().replace('.', "-");
    format!("ip-{address}.{REGION}.compute.internal")
}

fn tell(request: &Asked, documents: &Documents) -> Answer {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let plain = |status, text: Bytes| answer(status, "text/plain", text);
    let path = request.uri().path().trim_matches('/');
    if documents.requires_token {
        if (request.method(), path) == (&Method::PUT, "latest/api/token") {
            let life =
                header("x-aws-ec2-metadata-token-ttl-seconds").and_then(|life| life.parse::<u32>().ok());
            return match life {
                Some(1..=21_600) => plain(StatusCode::OK, TOKEN.into()),
                _ => plain(StatusCode::BAD_REQUEST, Bytes::new()),
            };
        }
        if header("x-aws-ec2-metadata-token") != Some(TOKEN) {
            return plain(StatusCode::UNAUTHORIZED, Bytes::new());
        }
    }
    match documents.read(path) {
        Some(content) if request.method() == Method::GET => plain(StatusCode::OK, content),
        _ => plain(StatusCode::NOT_FOUND, Bytes::new()),
    }
}
