//! `downloads`: where nodes download from, which versions, with which checksums.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use semver::Version;
use serde::{Deserialize, Serialize};

use super::validation::{HTTP, Problems, URL, URL_RULE, is_url};

/// Downloads. Below each base URL lies what the project publishes, laid out as it publishes it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Downloads {
    /// The kubelet, in the version of the pool.
    pub kubelet: KubeletDownload,
    /// containerd, from the archives `containerd-static-…`.
    pub containerd: ContainerdDownload,
    /// runc.
    pub runc: RuncDownload,
    /// The CNI plugins.
    pub cni: CniDownload,
    /// crictl, a tool for operators. A node works without it.
    pub crictl: CrictlDownload,
}

/// Architectures of nodes, as projects name them in their releases.
pub const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// SHA-256 by architecture, one of [`ARCHITECTURES`], 64 hex characters each; absent: the checksum file
/// beside the archive is used, which guards against damage only.
pub type Checksums = BTreeMap<String, String>;

/// Download of the kubelet.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KubeletDownload {
    /// Base URL.
    #[serde(rename = "baseURL")]
    #[schemars(regex(pattern = URL))]
    pub base_url: String,
    /// SHA-256 of the program, by version, such as `1.34.2`, and by architecture.
    pub sha256: BTreeMap<String, Checksums>,
}

impl Default for KubeletDownload {
    fn default() -> Self {
        Self {
            base_url: "https://dl.k8s.io".to_owned(),
            sha256: BTreeMap::new(),
        }
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
            /// SHA-256 of the archives of this version, by architecture.
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
/// Download of crictl.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CrictlDownload {
    /// Whether it is installed.
    pub enabled: bool,
    /// Version, without `v`. The default is the first release for the minor version of the kubelet.
    pub version: Option<String>,
    /// Base URL.
    #[serde(rename = "baseURL")]
    #[schemars(regex(pattern = URL))]
    pub base_url: String,
    /// SHA-256 of the archives, by version, such as `1.34.0`, and by architecture.
    pub sha256: BTreeMap<String, Checksums>,
}

impl Default for CrictlDownload {
    fn default() -> Self {
        Self {
            enabled: true,
            version: None,
            base_url: "https://github.com/kubernetes-sigs/cri-tools/releases/download".to_owned(),
            sha256: BTreeMap::new(),
        }
    }
}

impl Downloads {
    pub(super) fn validate(&self, problems: &mut Problems) {
        let Self {
            kubelet,
            containerd,
            runc,
            cni,
            crictl,
        } = self;
        for (name, url) in [
            ("kubelet", &kubelet.base_url),
            ("containerd", &containerd.base_url),
            ("runc", &runc.base_url),
            ("cni", &cni.base_url),
            ("crictl", &crictl.base_url),
        ] {
            problems.check(format!("downloads.{name}.baseURL"), is_url(url, HTTP), URL_RULE);
        }
        for (name, version, required) in [
            ("containerd", &containerd.version, true),
            ("runc", &runc.version, true),
            ("cni", &cni.version, true),
            ("crictl", &crictl.version, false),
        ] {
            let path = format!("downloads.{name}.version");
            match version {
                Some(version) => {
                    let ok = Version::parse(version).is_ok();
                    problems.check(path, ok, "must be a version such as 1.2.3, without v");
                }
                None => problems.check(path, !required, "must be given"),
            }
        }
        // The library's configuration of containerd has version 3, which containerd 1 does not know.
        let of_containerd = containerd.version.as_deref().map(Version::parse);
        let is_old = matches!(of_containerd, Some(Ok(version)) if version.major < 2);
        let rule = "must be 2.0.0 or newer, because nodes have a configuration for containerd 2";
        problems.check("downloads.containerd.version", !is_old, rule);
        for (name, by_version) in [("kubelet", &kubelet.sha256), ("crictl", &crictl.sha256)] {
            let is_exact = |key: &String| Version::parse(key).is_ok();
            let ok = by_version.keys().all(is_exact);
            let rule = "a key must be a version such as 1.34.2, without v";
            problems.check(format!("downloads.{name}.sha256"), ok, rule);
            for (version, sums) in by_version.iter().filter(|(key, _)| is_exact(key)) {
                validate_checksums(&format!("downloads.{name}.sha256.{version}"), sums, problems);
            }
        }
        for (name, sums) in [
            ("containerd", &containerd.sha256),
            ("runc", &runc.sha256),
            ("cni", &cni.sha256),
        ] {
            validate_checksums(&format!("downloads.{name}.sha256"), sums, problems);
        }
    }
}

fn validate_checksums(path: &str, sums: &Checksums, problems: &mut Problems) {
    for (architecture, sum) in sums {
        let path = format!("{path}.{architecture}");
        let known = ARCHITECTURES.contains(&architecture.as_str());
        problems.check(path.clone(), known, "is not an architecture: use amd64 or arm64");
        let ok = sum.len() == 64 && sum.chars().all(|c| c.is_ascii_hexdigit());
        problems.check(path, ok, "must be 64 hex characters");
    }
}
