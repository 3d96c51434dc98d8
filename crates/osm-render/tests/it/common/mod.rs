//! Pools, settings and credentials that profiles are tried with, and the documents that they give.

pub mod any_text;
pub mod flatcar;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use osm_api::content::Content;
use osm_api::machine_deployment::MachineDeployment;
use osm_api::names;
use osm_api::provider_spec::{Dns, Network};
use osm_api::{OperatingSystemProfileSpec, Pool, Settings};
use osm_render::{ClusterEndpoint, Profile};
use osm_render::{compile, resolve};
use osm_user_data::machine_stage;
use osm_user_data::{LateValues, MachineFile, Stage};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Name of the Secret with the provisioning document.
pub const SECRET: &str = "osm-provisioning-0123456789abcdef0123";

/// Settings with everything set that changes a document.
pub const EVERYTHING: &str = r#"
cluster: {externalCloudProvider: true}
proxy: {http: "http://proxy.example:3128", noProxy: "10.0.0.0/8,.svc,.cluster.local"}
hostCABundle: |
  -----BEGIN CERTIFICATE-----
  TWFueSBtYWNoaW5lcw==
  -----END CERTIFICATE-----
  -----BEGIN CERTIFICATE-----
  b25lIHRydXN0
  -----END CERTIFICATE-----
pauseImage: registry.example/pause:3.10
initialTaints: [{key: a, effect: NoSchedule}, {key: b, value: x, effect: NoExecute}]
kubelet: {hostnameOverride: true, featureGates: {KubeletTracing: true}, configuration: {podPidsLimit: 4096, shutdownGracePeriod: 30s}}
packages:
  install: [chrony, "libfoo2=1.0~rc1+x"]
  apt: {mirror: "https://mirror.example/ubuntu", securityMirror: "https://mirror.example/security"}
  yum: {repositories: [{name: base, baseURL: "https://mirror.example/$releasever/$basearch", gpgKey: "file:///etc/pki/rpm-gpg/KEY"}]}
system:
  swap: {behavior: LimitedSwap, size: 2Gi}
  sysctls: {vm.max_map_count: 262144, net.ipv4.tcp_rmem: "4096 87380 6291456"}
  kernelModules: [nf_conntrack, ip_vs]
  ntpServers: [time.example, 192.0.2.123]
containerd:
  deviceOwnershipFromSecurityContext: true
  registries:
  - host: docker.io
    mirrors: [{url: "https://z.example/v2/hub", skipVerify: true, overridePath: true}, {url: "https://a.example"}]
    credentials: {name: pull}
  - {host: _default, mirrors: [{url: "http://mirror.example:5000"}]}
  - {host: "registry.example:5000", credentials: {name: pull}}
downloads:
  crictl: {version: 1.34.0, sha256: {}}
  runc: {sha256: {amd64: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}}
"#;

/// What a pool says of its kubelet.
const ANNOTATIONS: &str = "
SystemReserved: cpu=100m
KubeReserved: cpu=200m,memory=200Mi
EvictionHard: memory.available<100Mi,nodefs.available<10%,nodefs.inodesFree<5%,imagefs.available<15%,imagefs.inodesFree<5%
ContainerLogMaxSize: 20Mi
ContainerLogMaxFiles: 7
MaxPods: 55
ImageGCHighThresholdPercent: 80
ImageGCLowThresholdPercent: 0
ImageMinimumGCAge: 5m
ImageMaximumGCAge: 24h
";

/// A pool, as its MachineDeployment says; with `annotations`, it says everything it can.
pub fn pool(os: &str, cloud: &str, kubelet: &str, family: &str, annotations: bool) -> Pool {
    let prefix = "v1.kubelet-config.machine-controller.kubermatic.io";
    let annotations: BTreeMap<String, &str> = table(ANNOTATIONS, ": ")
        .filter(|_| annotations)
        .map(|[name, value]| (format!("{prefix}/{name}"), value))
        .collect();
    let cloud_config = if annotations.is_empty() {
        Value::Null
    } else {
        json!("[Global]\nregion = \"EOF\"\nEOF\n")
    };
    let system = match (os, family) {
        ("rhel", _) if annotations.is_empty() => Value::Null,
        ("rhel", "IPv4") => {
            json!({"rhelSubscriptionManagerUser": "me", "rhelSubscriptionManagerPassword": "hunter2"})
        }
        ("rhel", _) => {
            json!({"rhelUseSatelliteServer": true, "rhelSatelliteServer": "satellite.example", "distUpgradeOnBoot": true,
            "rhelOrganizationName": "ACME", "rhelActivationKey": {"secretKeyRef": {"namespace": "n", "name": "s", "key": "k"}}})
        }
        _ => json!({"distUpgradeOnBoot": !annotations.is_empty() && os != "flatcar"}),
    };
    let deployment: MachineDeployment = serde_json::from_value(json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"name": "pool", "namespace": "kube-system", "annotations": annotations},
        "spec": {"template": {"spec": {"versions": {"kubelet": kubelet}, "providerSpec": {"value": {
            "sshPublicKeys": ["ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGlrZQ ops"],
            "cloudProvider": cloud, "operatingSystem": os, "operatingSystemSpec": system, "network": {"ipFamily": family},
            "overwriteCloudConfig": cloud_config,
        }}}}},
    }))
    .unwrap();
    Pool::read(&deployment).unwrap()
}

/// Cells of a table with a row on each line.
pub fn table<const CELLS: usize>(
    text: &'static str,
    separator: &'static str,
) -> impl Iterator<Item = [&'static str; CELLS]> {
    let rows = text.trim().lines();
    rows.map(move |row| row.split(separator).collect::<Vec<_>>().try_into().unwrap())
}

/// A default profile.
pub fn default_spec(name: &str) -> OperatingSystemProfileSpec {
    let mut defaults = osm_render::defaults().into_iter();
    defaults.find(|(known, _)| known == name).unwrap().1
}

pub fn compiled(spec: &OperatingSystemProfileSpec) -> Profile {
    compile(&resolve(spec).unwrap()).unwrap()
}

pub fn cluster(api_server: &str, ca: &str) -> ClusterEndpoint {
    ClusterEndpoint {
        api_server: api_server.to_owned(),
        ca: ca.to_owned(),
    }
}

/// Gives the pool's machines a static address.
pub fn give_static_address(pool: &mut Pool) {
    pool.network = Network {
        cidr: "192.0.2.7/24".to_owned(),
        gateway: "192.0.2.1".to_owned(),
        dns: Dns {
            servers: vec!["192.0.2.2".to_owned()],
        },
        ..pool.network.clone()
    };
}

/// What machine-controller makes of a bootstrap document.
pub fn named(document: &str, machine: &str) -> String {
    let named = document.replace("<MACHINE_NAME>", machine);
    named.replace("%3CMACHINE_NAME%3E", machine)
}

/// What machine-controller makes of the lines of a bootstrap document.
pub fn without_blanks(document: &str) -> String {
    let without = |line| {
        if str::trim_matches(line, [' ', '\t']).is_empty() {
            ""
        } else {
            line
        }
    };
    let lines: Vec<&str> = document.split('\n').map(without).collect();
    lines.join("\n")
}

/// What a pool gives with the default profile of its system, for a cluster with this API server and CA.
pub fn content(pool: &Pool, settings: &str, (server, ca): (&str, &str)) -> Content {
    let name = osm_render::default_name(pool.operating_system.as_str(), pool.provisioning_utility());
    let settings = Settings::parse(settings).unwrap();
    let profile = default_profile(&name);
    let rendered = profile.render(pool, &settings, &cluster(server, ca));
    rendered.unwrap().spec
}

/// Most tests render the same profiles, and compiling one takes longer than that.
fn default_profile(name: &str) -> Arc<Profile> {
    static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Profile>>>> = LazyLock::new(Mutex::default);
    let mut profiles = COMPILED.lock().unwrap();
    let profile = profiles.entry(name.to_owned());
    let profile = profile.or_insert_with(|| Arc::new(compiled(&default_spec(name))));
    profile.clone()
}

/// The files that a document puts on a machine.
pub fn files(content: &Content, stage: Stage, values: &LateValues) -> Vec<MachineFile> {
    let mut files = machine_stage(content, stage, values).unwrap().files;
    for file in &mut files {
        file.text = named(&file.text, "pool-5d8f");
    }
    files
}

/// Text that does not compress, as signatures don't.
pub fn noise(seed: &str, length: usize) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        bytes.extend(Sha256::digest(format!("{seed}{}", bytes.len())));
    }
    URL_SAFE_NO_PAD.encode(bytes)[..length].to_owned()
}

/// A token as an API server issues it.
pub fn token(seed: &str, issued: u64) -> String {
    let claims = json!({"iat": issued, "sub": "system:serviceaccount:cloud-init-settings:osm", "jti": noise(seed, 500)});
    let claims = URL_SAFE_NO_PAD.encode(claims.to_string());
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256"}"#);
    format!("{header}.{claims}.{}", noise(seed, 342))
}

/// A value for everything that is late-bound.
pub fn values(digest: &str, issued: u64) -> LateValues {
    let mut values: Vec<(String, String)> = [
        ("api/token", &*token("api", issued)),
        ("kubelet/token", &token("kubelet", issued)),
        ("provisioning/secret-name", SECRET),
        ("provisioning/key", names::CLOUD_CONFIG_GZIP_KEY),
        ("provisioning/sha256", digest),
        ("pool/id", "0123456789abcdef0123"),
        ("pool/content", "0123456789abcdef"),
        ("rhel/password", "quo\"te's \\ and: # {{line"),
        ("rhel/activation-key", "quo\"te's \\ and: # {{line"),
    ]
    .map(|(id, value)| (id.to_owned(), value.to_owned()))
    .to_vec();
    for registry in ["docker.io", "registry.example:5000"] {
        let named = |part: &str| format!("registry/{registry}/{part}");
        values.push((named("username"), "robot$ci".to_owned()));
        values.push((named("password"), "quo\"te's \\ and\nline".to_owned()));
    }
    values.into_iter().collect()
}

/// Values for a machine that fetches no document.
pub fn any_values() -> LateValues {
    values(&"0".repeat(64), 1)
}
