//! The settings document of an installation: one ConfigMap, typed, checked as a whole.
//!
//! Every field has a default, so that an empty document is a working one. `docs/settings.md` shows them all.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::names::{CLOUD_INIT_SETTINGS, MAX_NAME};
use crate::profile::OperatingSystem;
use crate::strict;

/// What a schema can say of a URL before [`Settings::parse`] judges it.
const URL: &str = "^https?://[^/@]+(/|$)";

/// Settings of one cluster's nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// The cluster that nodes join.
    pub cluster: ClusterSettings,
    /// Proxy for downloads, containerd and the package manager.
    pub proxy: Proxy,
    /// PEM bundle that nodes trust besides their own.
    pub host_ca_bundle: Option<String>,
    /// Image of the pod sandbox; absent: containerd's default.
    pub pause_image: Option<String>,
    /// Taints with which every node registers.
    pub initial_taints: Vec<Taint>,
    /// kubelet.
    pub kubelet: KubeletDefaults,
    /// containerd.
    pub containerd: Containerd,
    /// Where nodes download from.
    pub downloads: Downloads,
    /// Packages of the operating system.
    pub packages: Packages,
    /// Credentials of nodes; read by secret-syncer.
    pub credentials: Credentials,
    /// Default profiles; read by osp-controller.
    pub default_profiles: DefaultProfiles,
}

/// The cluster that nodes join.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterSettings {
    /// `https://host:port` of the API server as nodes reach it; absent: read from the cluster.
    #[schemars(regex(pattern = "^https://[^/@]+(/|$)"))]
    pub api_server: Option<String>,
    /// PEM bundle that verifies it; absent: read from the cluster.
    pub ca_bundle: Option<String>,
    /// Addresses of the cluster's DNS service.
    #[serde(rename = "dnsIPs")]
    #[schemars(length(min = 1))]
    pub dns_ips: Vec<std::net::IpAddr>,
    /// The cluster's DNS domain.
    pub dns_domain: String,
    /// Whether an external cloud controller manager initialises nodes.
    pub external_cloud_provider: bool,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            api_server: None,
            ca_bundle: None,
            dns_ips: vec![std::net::Ipv4Addr::new(10, 96, 0, 10).into()],
            dns_domain: "cluster.local".to_owned(),
            external_cloud_provider: false,
        }
    }
}

/// A proxy. URLs with a user name or password are refused: they would stand in a custom resource.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Proxy {
    /// `http://host:port`, for HTTP and HTTPS.
    #[schemars(regex(pattern = URL))]
    pub http: Option<String>,
    /// Hosts, domains and networks that are reached directly, comma-separated.
    pub no_proxy: Option<String>,
}

/// A taint.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Taint {
    pub key: String,
    #[serde(default)]
    pub value: Option<String>,
    pub effect: TaintEffect,
}

/// Effect of a taint.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum TaintEffect {
    NoSchedule,
    PreferNoSchedule,
    NoExecute,
}

/// kubelet settings of all pools.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeletDefaults {
    /// Feature gates.
    pub feature_gates: BTreeMap<String, bool>,
    /// A part of a `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`), merged into the profile's. It is judged
    /// when a pool is rendered, as its kubelet's version decides.
    pub configuration: Option<serde_json::Map<String, Value>>,
}

/// containerd settings of all pools.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Containerd {
    /// Registries with mirrors or credentials.
    pub registries: Vec<Registry>,
    /// Give devices to the user of a non-root container.
    pub device_ownership_from_security_context: bool,
}

/// A registry.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registry {
    /// Host, with port where it has one; `_default` stands for every registry not listed.
    pub host: String,
    /// Mirrors, tried in this order before the registry itself.
    #[serde(default)]
    pub mirrors: Vec<Mirror>,
    /// The Secret that holds user name and password.
    #[serde(default)]
    pub credentials: Option<SecretReference>,
}

/// A mirror of a registry.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mirror {
    /// `http(s)://host[:port][/path]`.
    #[schemars(regex(pattern = URL))]
    pub url: String,
    /// Don't verify the mirror's certificate.
    #[serde(default)]
    pub skip_verify: bool,
    /// The URL's path already is the API root: `/v2` is not appended.
    #[serde(default)]
    pub override_path: bool,
}

/// A Secret: of type `kubernetes.io/dockerconfigjson`, or with the keys `username` and `password`.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretReference {
    /// Namespace of the Secret.
    #[serde(default = "cloud_init_settings")]
    pub namespace: String,
    /// Name of the Secret.
    pub name: String,
}

fn cloud_init_settings() -> String {
    CLOUD_INIT_SETTINGS.to_owned()
}

/// Downloads. Below each base URL lies what the project publishes, laid out as it publishes it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Downloads {
    /// kubelet; its version is the pool's.
    pub kubelet: KubeletDownload,
    /// containerd, `containerd-static-…`.
    pub containerd: ContainerdDownload,
    /// runc.
    pub runc: RuncDownload,
    /// CNI plugins.
    pub cni: CniDownload,
    /// crictl; without a version it is not installed.
    pub crictl: CrictlDownload,
}

/// Architectures of nodes, as projects name them in their releases.
pub const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// SHA-256 by architecture, one of [`ARCHITECTURES`], 64 hex characters each; absent: the checksum file beside the
/// archive is used, which guards against damage only.
pub type Checksums = BTreeMap<String, String>;

/// Download of the kubelet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeletDownload {
    /// Base URL.
    #[serde(rename = "baseURL")]
    #[schemars(regex(pattern = URL))]
    pub base_url: String,
    /// Checksums by kubelet version, such as `1.34.2`.
    pub sha256: BTreeMap<String, Checksums>,
}

impl Default for KubeletDownload {
    fn default() -> Self {
        Self { base_url: "https://dl.k8s.io".to_owned(), sha256: BTreeMap::new() }
    }
}

macro_rules! download {
    ($(#[$doc:meta])* $name:ident, $version:expr, $url:expr) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
        #[serde(rename_all = "camelCase", deny_unknown_fields, default)]
        pub struct $name {
            /// Version, without `v`.
            pub version: Option<String>,
            /// Base URL.
            #[serde(rename = "baseURL")]
            #[schemars(regex(pattern = URL))]
            pub base_url: String,
            /// Checksums of that version.
            pub sha256: Checksums,
        }

        impl Default for $name {
            fn default() -> Self {
                let version: Option<&str> = $version;
                Self { version: version.map(str::to_owned), base_url: $url.to_owned(), sha256: Checksums::new() }
            }
        }
    };
}

download!(
    /// Download of containerd.
    ContainerdDownload, Some("2.2.9"), "https://github.com/containerd/containerd/releases/download"
);
download!(
    /// Download of runc.
    RuncDownload, Some("1.3.6"), "https://github.com/opencontainers/runc/releases/download"
);
download!(
    /// Download of the CNI plugins.
    CniDownload, Some("1.9.1"), "https://github.com/containernetworking/plugins/releases/download"
);
download!(
    /// Download of crictl.
    CrictlDownload, None, "https://github.com/kubernetes-sigs/cri-tools/releases/download"
);

/// Packages of the operating system: tools that a node is better off with, none that it needs to become Ready.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Packages {
    /// Whether nodes install or upgrade any.
    pub enabled: bool,
    /// Sources of systems with apt.
    pub apt: Apt,
    /// Sources of systems with yum or dnf.
    pub yum: Yum,
}

impl Default for Packages {
    fn default() -> Self {
        Self { enabled: true, apt: Apt::default(), yum: Yum::default() }
    }
}

/// Sources of systems with apt.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Apt {
    /// `http(s)://host[:port][/path]` of a mirror of the distribution's archive; absent: the image's own.
    #[schemars(regex(pattern = URL))]
    pub mirror: Option<String>,
    /// That of a mirror of its security updates; absent: `mirror`.
    #[schemars(regex(pattern = URL))]
    pub security_mirror: Option<String>,
}

/// Sources of systems with yum or dnf.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Yum {
    /// Repositories in the place of those of the image; empty: those of the image.
    pub repositories: Vec<YumRepository>,
}

/// A repository.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct YumRepository {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// `http(s)://host[:port][/path]`, in which yum's `$releasever` and `$basearch` may stand.
    #[serde(rename = "baseURL")]
    pub base_url: String,
    /// Key that its packages are signed with: a URL, or `file:///…` on the machine.
    pub gpg_key: String,
}

/// Credentials of nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Credentials {
    /// Life to ask for, in hours; renewed at half of what the API server grants.
    #[schemars(range(min = 1, max = 720))]
    pub token_lifetime_hours: u16,
    /// Secrets and ConfigMaps that a MachineDeployment may refer to; none unless listed.
    pub allowed_sources: Vec<AllowedSource>,
    /// With what a kubelet asks for its first certificate.
    pub node_bootstrap: NodeBootstrap,
}

impl Credentials {
    /// Life to ask for.
    pub fn token_lifetime(&self) -> Duration {
        Duration::from_secs(u64::from(self.token_lifetime_hours) * 3600)
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            token_lifetime_hours: 24,
            allowed_sources: Vec::new(),
            node_bootstrap: NodeBootstrap::default(),
        }
    }
}

/// With what a kubelet asks for its first certificate.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeBootstrap {
    /// Kind of the token.
    pub kind: NodeBootstrapKind,
    /// Groups of bootstrap tokens, besides `system:bootstrappers` which has them all. What they may do is for bindings
    /// to say.
    pub groups: Vec<String>,
}

impl Default for NodeBootstrap {
    fn default() -> Self {
        Self { kind: NodeBootstrapKind::default(), groups: vec![NODE_TOKEN_GROUP.to_owned()] }
    }
}

/// Group of the Go implementation's bootstrap tokens, for which machine-controller's manifests, KKP and KubeOne bring
/// the bindings along.
const NODE_TOKEN_GROUP: &str = "system:bootstrappers:machine-controller:default-node-token";

/// Kind of the token with which a kubelet asks for its first certificate.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum NodeBootstrapKind {
    /// Of the ServiceAccount `osm-node-bootstrap`, bound to the pool's provisioning Secret.
    #[default]
    ServiceAccountToken,
    /// A Secret in `kube-system` that expires by itself.
    BootstrapToken,
}

/// Objects of one namespace that a MachineDeployment may refer to.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AllowedSource {
    /// Namespace.
    pub namespace: String,
    /// Names of Secrets.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Names of ConfigMaps.
    #[serde(default)]
    pub config_maps: Vec<String>,
}

/// Default profiles.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultProfiles {
    /// Whether default profiles are installed at all.
    pub enabled: bool,
    /// Operating systems whose default profiles are not installed.
    pub disabled: Vec<OperatingSystem>,
}

impl Default for DefaultProfiles {
    fn default() -> Self {
        Self { enabled: true, disabled: Vec::new() }
    }
}

/// What is wrong with a settings document: every mistake, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the settings are not valid:\n  {}", .0.join("\n  "))]
pub struct SettingsError(pub Vec<String>);

impl Settings {
    /// Reads a settings document (YAML).
    ///
    /// # Errors
    /// All mistakes at once, each with its path; no message repeats a value.
    pub fn parse(text: &str) -> Result<Self, SettingsError> {
        Self::from_document(Self::document(text)?)
    }

    /// The text's YAML as it stands, an empty map where it holds nothing.
    ///
    /// # Errors
    /// A text that is not YAML.
    pub fn document(text: &str) -> Result<Value, SettingsError> {
        let value: Option<Value> = serde_saphyr::from_str(text)
            .map_err(|error| SettingsError(vec![format!("not YAML: {}", first_line(&error.to_string()))]))?;
        Ok(value.filter(|value| !value.is_null()).unwrap_or_else(|| Value::Object(serde_json::Map::new())))
    }

    /// Reads a settings document that is parsed already.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn from_document(document: Value) -> Result<Self, SettingsError> {
        let mut settings = strict::decode_and_judge(document, Self::mistakes).map_err(SettingsError)?;
        for bundle in [&mut settings.cluster.ca_bundle, &mut settings.host_ca_bundle] {
            *bundle = bundle.take().and_then(|text| certificates(&text));
        }
        Ok(settings)
    }

    fn mistakes(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut check = |path: String, ok: bool, rule: &str| {
            if !ok {
                found.push(format!("{path}: {rule}"));
            }
        };
        if let Some(url) = &self.cluster.api_server {
            check("cluster.apiServer".into(), is_url(url, &["https"]), "must be https://host[:port]");
        }
        if let Some(pem) = &self.cluster.ca_bundle {
            check("cluster.caBundle".into(), certificates(pem).is_some(), PEM);
        }
        check("cluster.dnsIPs".into(), !self.cluster.dns_ips.is_empty(), "must name at least one address");
        let domain = &self.cluster.dns_domain;
        check("cluster.dnsDomain".into(), is_host_name(domain), "must be a DNS domain");
        if let Some(url) = &self.proxy.http {
            check(
                "proxy.http".into(),
                is_url(url, &["http", "https"]),
                "must be http://host:port, without credentials",
            );
        }
        if let Some(list) = &self.proxy.no_proxy {
            let clean = list.chars().all(|c| c.is_ascii_alphanumeric() || "-._:/,*%[]".contains(c));
            check(
                "proxy.noProxy".into(),
                clean,
                "must be hosts, domains, addresses and networks, comma-separated, without spaces",
            );
        }
        if let Some(pem) = &self.host_ca_bundle {
            check("hostCaBundle".into(), certificates(pem).is_some(), PEM);
        }
        let gate = |name: &String| {
            (1..=100).contains(&name.len()) && name.chars().all(|c| c.is_ascii_alphanumeric())
        };
        let gates = self.kubelet.feature_gates.keys().all(gate);
        check("kubelet.featureGates".into(), gates, "a feature gate's name has letters and digits only");
        for (i, registry) in self.containerd.registries.iter().enumerate() {
            let path = format!("containerd.registries[{i}]");
            let ok = registry.host == "_default" || is_host(&registry.host);
            check(format!("{path}.host"), ok, "must be a host, with port where it has one, or _default");
            let twice =
                self.containerd.registries.iter().filter(|other| other.host == registry.host).count() > 1;
            check(format!("{path}.host"), !twice, "is listed more than once");
            let ok = registry.credentials.is_none() || registry.host != "_default";
            check(format!("{path}.credentials"), ok, "need a registry of their own, not _default");
            if let Some(secret) = &registry.credentials {
                let (namespace, name) = (&secret.namespace, &secret.name);
                check(
                    format!("{path}.credentials.namespace"),
                    is_object_name(namespace),
                    "must be that of a namespace",
                );
                check(format!("{path}.credentials.name"), is_object_name(name), "must be that of a Secret");
            }
            for (j, mirror) in registry.mirrors.iter().enumerate() {
                let ok = is_url(&mirror.url, &["http", "https"]);
                check(format!("{path}.mirrors[{j}].url"), ok, "must be http(s)://host[:port][/path]");
            }
        }
        for (name, url) in
            [("mirror", &self.packages.apt.mirror), ("securityMirror", &self.packages.apt.security_mirror)]
        {
            let ok = url.as_ref().is_none_or(|url| is_url(url, &["http", "https"]));
            check(format!("packages.apt.{name}"), ok, "must be http(s)://host[:port][/path]");
        }
        let repositories = &self.packages.yum.repositories;
        for (i, repository) in repositories.iter().enumerate() {
            let path = format!("packages.yum.repositories[{i}]");
            let name = &repository.name;
            let ok =
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
            check(format!("{path}.name"), ok, "must be letters, digits, - and _");
            let twice = repositories.iter().filter(|other| other.name == *name).count() > 1;
            check(format!("{path}.name"), !twice, "is listed more than once");
            let plain = repository.base_url.replace("$releasever", "9").replace("$basearch", "x86_64");
            check(
                format!("{path}.baseURL"),
                is_url(&plain, &["http", "https"]),
                "must be http(s)://host[:port][/path]",
            );
            let key = &repository.gpg_key;
            let file = key
                .strip_prefix("file://")
                .is_some_and(|path| is_url(&format!("https://host{path}"), &["https"]));
            let ok = is_url(key, &["http", "https"]) || (file && key.starts_with("file:///"));
            check(format!("{path}.gpgKey"), ok, "must be http(s)://host[:port][/path] or file:///path");
        }
        let downloads = &self.downloads;
        for (name, url) in [
            ("kubelet", &downloads.kubelet.base_url),
            ("containerd", &downloads.containerd.base_url),
            ("runc", &downloads.runc.base_url),
            ("cni", &downloads.cni.base_url),
            ("crictl", &downloads.crictl.base_url),
        ] {
            let ok = is_url(url, &["http", "https"]);
            check(format!("downloads.{name}.baseURL"), ok, "must be http(s)://host[:port][/path]");
        }
        for (name, version) in [
            ("containerd", &downloads.containerd.version),
            ("runc", &downloads.runc.version),
            ("cni", &downloads.cni.version),
        ] {
            check(format!("downloads.{name}.version"), version.is_some(), "must be given");
        }
        for (name, version) in [
            ("containerd", &downloads.containerd.version),
            ("runc", &downloads.runc.version),
            ("cni", &downloads.cni.version),
            ("crictl", &downloads.crictl.version),
        ] {
            let ok = version.as_deref().is_none_or(|version| semver::Version::parse(version).is_ok());
            check(format!("downloads.{name}.version"), ok, "must be a version such as 1.2.3, without v");
        }
        let sums = downloads
            .kubelet
            .sha256
            .iter()
            .map(|(version, sums)| (format!("kubelet.sha256.{version}"), sums));
        let sums = sums.chain([
            ("containerd.sha256".to_owned(), &downloads.containerd.sha256),
            ("runc.sha256".to_owned(), &downloads.runc.sha256),
            ("cni.sha256".to_owned(), &downloads.cni.sha256),
            ("crictl.sha256".to_owned(), &downloads.crictl.sha256),
        ]);
        for (path, sums) in sums {
            for (architecture, sum) in sums {
                let known = ARCHITECTURES.contains(&architecture.as_str());
                check(
                    format!("downloads.{path}.{architecture}"),
                    known,
                    "is no architecture: use amd64 or arm64",
                );
                let ok = sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit());
                check(format!("downloads.{path}.{architecture}"), ok, "must be 64 hex characters");
            }
        }
        let hours = self.credentials.token_lifetime_hours;
        check("credentials.tokenLifetimeHours".into(), (1..=720).contains(&hours), "must be from 1 to 720");
        for (i, group) in self.credentials.node_bootstrap.groups.iter().enumerate() {
            let ok = is_bootstrap_group(group);
            let rule = "must be system:bootstrappers:… of lowercase letters, digits, - and :";
            check(format!("credentials.nodeBootstrap.groups[{i}]"), ok, rule);
        }
        found
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

const PEM: &str = "must be one or more PEM certificates";

/// The certificates of a bundle, and nothing of what people and programs write around them: the text stands in files
/// that are read line by line. `None` where there is none, one is damaged, or something else is among them, such as a key.
fn certificates(text: &str) -> Option<String> {
    let (mut inside, mut found) = (false, String::new());
    for line in text.lines().map(str::trim_end) {
        match line {
            "-----BEGIN CERTIFICATE-----" if !inside => inside = true,
            "-----END CERTIFICATE-----" if inside => inside = false,
            _ if line.starts_with("-----") => return None,
            _ if !inside => continue,
            _ if line.chars().all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c)) => {}
            _ => return None,
        }
        found.push_str(line);
        found.push('\n');
    }
    (!inside && !found.is_empty()).then_some(found)
}

/// The name of an object of Kubernetes.
fn is_object_name(text: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric())
            && part.ends_with(|c: char| c.is_ascii_alphanumeric())
            && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    text.len() <= MAX_NAME && text.split('.').all(part)
}

/// A group that the API server takes from a bootstrap token.
fn is_bootstrap_group(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.strip_prefix("system:bootstrappers:").is_some_and(|rest| {
        rest.len() <= 256 && rest.ends_with(plain) && rest.chars().all(|c| plain(c) || c == '-' || c == ':')
    })
}

/// A URL of one of the schemes: a host and perhaps a path, without user information, query or fragment, and without
/// anything that a shell expands in double quotes or curl in a URL.
fn is_url(text: &str, schemes: &[&str]) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    schemes.contains(&scheme)
        && is_host(authority)
        && path.chars().all(|c| c.is_ascii_alphanumeric() || "/-._~%!&()*+,;=:@".contains(c))
}

/// `host`, `host:port`, `1.2.3.4:5` or `[::1]:5`.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => {
            ("v6", port.strip_prefix(':'))
        }
        Some(_) => return false,
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let digits = |port: &str| port.chars().all(|c| c.is_ascii_digit()) && port.parse::<u16>().is_ok();
    is_host_name(host) && port.is_none_or(digits)
}

/// A host's name or IPv4 address: parts that are not empty, between dots.
fn is_host_name(text: &str) -> bool {
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    };
    text.strip_suffix('.').unwrap_or(text).split('.').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_document_is_the_defaults() {
        for text in ["", "---\n", "{}", "# nothing\n"] {
            assert_eq!(Settings::parse(text).unwrap(), Settings::default(), "{text:?}");
        }
        assert!(Settings::default().mistakes().is_empty());
    }

    #[test]
    fn all_mistakes_at_once_of_shape() {
        let errors =
            Settings::parse("cluster: {dnsIPs: [nonsense], apiSerer: x}\nproxy: 5\nmore: 1\n").unwrap_err().0;
        for path in ["cluster.dnsIPs[0]: ", "cluster.apiSerer: ", "proxy: ", "more: "] {
            assert!(errors.iter().any(|error| error.starts_with(path)), "{path} missing in {errors:#?}");
        }
    }

    #[test]
    fn all_mistakes_at_once_of_meaning() {
        let text = r#"
cluster: {apiServer: "http://plain", caBundle: "no", dnsIPs: []}
proxy: {http: "http://user:secret@proxy:3128", noProxy: "a, b"}
containerd:
  registries:
    - {host: docker.io, mirrors: [{url: "mirror"}]}
    - {host: docker.io}
    - {host: _default, credentials: {name: x}}
downloads: {runc: {version: v1, sha256: {mips: "12"}}}
packages: {apt: {mirror: "ftp://x"}, yum: {repositories: [{name: "a b", baseURL: "https://$arch/x", gpgKey: "/etc/key"}]}}
credentials: {tokenLifetimeHours: 0, nodeBootstrap: {groups: ["system:bootstrappers:a:b-1", "system:masters", "system:bootstrappers:"]}}
"#;
        let errors = Settings::parse(text).unwrap_err().0;
        for path in [
            "cluster.apiServer",
            "cluster.caBundle",
            "cluster.dnsIPs",
            "proxy.http",
            "proxy.noProxy",
            "containerd.registries[0].mirrors[0].url",
            "containerd.registries[1].host",
            "containerd.registries[2].credentials",
            "downloads.runc.version",
            "downloads.runc.sha256.mips",
            "packages.apt.mirror",
            "packages.yum.repositories[0].name",
            "packages.yum.repositories[0].baseURL",
            "packages.yum.repositories[0].gpgKey",
            "credentials.tokenLifetimeHours",
            "credentials.nodeBootstrap.groups[1]",
            "credentials.nodeBootstrap.groups[2]",
        ] {
            assert!(errors.iter().any(|error| error.starts_with(path)), "{path} missing in {errors:#?}");
        }
        assert!(!errors.join("").contains("secret@") && !errors.join("").contains("groups[0]"));
    }

    #[test]
    fn all_mistakes_at_once_of_both_and_no_consequences() {
        let text = r#"
pauseImge: x
proxy: {http: no-url, noProxy: 5}
cluster: {apiServer: here, dnsIPs: [nonsense]}
initialTaints: [{key: a, effect: Never}]
containerd:
  registries:
    - {mirrors: [{url: "mirror"}]}
    - nonsense
    - {host: docker.io, mirors: [], credentials: {nme: x}}
    - {host: docker.io}
    - {host: a/b}
packages: {yum: {repositories: [{name: "a b", baseURL: "https://x/y"}]}}
credentials: {tokenLifetimeHours: 0, nodeBootstrap: {groups: [1, "system:masters"]}}
"#;
        let errors = Settings::parse(text).unwrap_err().0;
        let lines = [
            "pauseImge: unknown field",
            "proxy.http: must be",
            "proxy.noProxy: expected a string",
            "cluster.apiServer: must be",
            "cluster.dnsIPs[0]: ",
            "initialTaints[0].effect: expected one of",
            "containerd.registries[0]: missing field `host`",
            "containerd.registries[0].mirrors[0].url: must be",
            "containerd.registries[1]: expected",
            "containerd.registries[2].mirors: unknown field",
            "containerd.registries[2].credentials.nme: unknown field",
            "containerd.registries[2].credentials: missing field `name`",
            "containerd.registries[2].host: is listed more than once",
            "containerd.registries[3].host: is listed more than once",
            "containerd.registries[4].host: must be",
            "packages.yum.repositories[0]: missing field `gpgKey`",
            "packages.yum.repositories[0].name: must be",
            "credentials.tokenLifetimeHours: must be",
            "credentials.nodeBootstrap.groups[0]: expected a string",
            "credentials.nodeBootstrap.groups[1]: must be",
        ];
        for line in lines {
            assert!(errors.iter().any(|error| error.starts_with(line)), "{line} missing in {errors:#?}");
        }
        assert_eq!(errors.len(), lines.len(), "{errors:#?}");
    }

    #[test]
    fn certificates_are_nothing_else() {
        let one = "-----BEGIN CERTIFICATE-----\nTWFu+/==\n-----END CERTIFICATE-----\n";
        let two = [one, one].concat();
        for (text, kept) in [
            (one.to_owned(), one),
            (one.replace('\n', "\r\n"), one),
            (format!("##\n## Bundle\n\nOne Root\n========\n{one}\nOther Root\n==\n{one}\n"), &two),
            (format!("{one}END-OF-BUNDLE\nreboot\n{one}# \u{1b}\n"), &two),
        ] {
            assert_eq!(certificates(&text).as_deref(), Some(kept), "{text}");
        }
        let begin = "-----BEGIN CERTIFICATE-----\n";
        for bad in [
            String::new(),
            "One Root\n".to_owned(),
            begin.to_owned(),
            format!("{begin}{one}"),
            format!("{one}-----END CERTIFICATE-----\n"),
            format!("{one}-----BEGIN PRIVATE KEY-----\nTWFu\n-----END PRIVATE KEY-----\n"),
            one.replace("TWFu", "TW Fu"),
            one.replace("TWFu", "TWFu\r-"),
            one.replace("TWFu", "\0"),
            one.replace("CERTIFICATE", "PRIVATE KEY"),
        ] {
            assert_eq!(certificates(&bad), None, "{bad:?}");
        }
        let settings =
            Settings::parse(&format!("hostCaBundle: |\n  Root\n  {}", one.replace('\n', "\n  "))).unwrap();
        assert_eq!(settings.host_ca_bundle.as_deref(), Some(one));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let refused = |document: Value| Settings::from_document(document).unwrap_err().0.join("\n");
        for host in ["..", ".", "a..b", "a/b", "-a", "a:1:2", "a:+1", ""] {
            let error = refused(serde_json::json!({"containerd": {"registries": [{"host": host}]}}));
            assert!(error.starts_with("containerd.registries[0].host: "), "{host}: {error}");
        }
        for name in ["", "..", "a/b", "A", "a b", "-a", "a.", "a\n"] {
            let secret = serde_json::json!({"name": name, "namespace": name});
            let error = refused(
                serde_json::json!({"containerd": {"registries": [{"host": "a", "credentials": secret}]}}),
            );
            for field in ["name", "namespace"] {
                assert!(
                    error.contains(&format!("containerd.registries[0].credentials.{field}: ")),
                    "{error}"
                );
            }
        }
        for gate in ["", "a b", "a:", "é", &"a".repeat(2000)] {
            let error = refused(serde_json::json!({"kubelet": {"featureGates": {gate: true}}}));
            assert_eq!(error, "kubelet.featureGates: a feature gate's name has letters and digits only");
        }
        let error = refused(serde_json::json!({"cluster": {"dnsDomain": "cluster.local:53"}}));
        assert!(error.starts_with("cluster.dnsDomain: "), "{error}");
        for hosts in ["a b", "a\nb", "a#b", "a\u{2028}b", "a\u{7f}"] {
            let error = refused(serde_json::json!({"proxy": {"noProxy": hosts}}));
            assert!(error.starts_with("proxy.noProxy: "), "{error}");
        }
        Settings::parse("proxy: {noProxy: '10.0.0.0/8,.svc,*.example,[fd00::1]:8080,fe80::1%eth0'}").unwrap();
        Settings::parse("cluster: {dnsDomain: cluster.local.}").unwrap();
    }

    #[test]
    fn hosts_and_urls() {
        for good in [
            "https://a",
            "https://a:6443",
            "https://[fd00::1]:6443",
            "https://10.0.0.1:6443/",
            "https://a/v2/docker.io",
            "https://a/~me/%20/x_y-z.1,2;3=4:5@6+7",
        ] {
            assert!(is_url(good, &["https"]), "{good}");
        }
        for bad in
            ["http://a", "https://", "https://a:port", "https://u@a", "https://a/\"", "a", "https://[zz]:1"]
        {
            assert!(!is_url(bad, &["https"]), "{bad}");
        }
        // Nothing that ends or expands a text in double quotes, and nothing that curl expands.
        for bad in "\"'\\`$<>[]{}?#|^ \t\n\0é".chars() {
            for url in
                [format!("https://a/x{bad}y"), format!("https://a{bad}b/"), format!("https://a:1{bad}/")]
            {
                assert!(!is_url(&url, &["https"]), "{url:?}");
            }
        }
    }
}
