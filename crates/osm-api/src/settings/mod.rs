//! The settings document of an installation: one ConfigMap, typed, checked as a whole.
//!
//! Each section is a file: its fields, their defaults and their validation. Every field has a default, so
//! that an empty document is a working one. `docs/settings.md` shows them all.

mod cluster;
mod containerd;
mod credentials;
mod downloads;
mod installation;
mod kubelet;
mod packages;
mod proxy;
mod sources;
mod system;
mod taint;
mod validation;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

pub use self::cluster::ClusterSettings;
pub use self::containerd::{Containerd, Mirror, Registry, SecretReference};
pub use self::credentials::{AllowedSource, Credentials, ProfileSecret};
pub use self::downloads::{
    ARCHITECTURES, Checksums, CniDownload, ContainerdDownload, CrictlDownload, Downloads, KubeletDownload,
    RuncDownload,
};
pub use self::installation::{DefaultProfiles, Limits, MOST_MACHINE_DEPLOYMENTS};
pub use self::kubelet::KubeletDefaults;
pub use self::packages::{Apt, Packages, Yum, YumRepository};
pub use self::proxy::Proxy;
pub use self::system::{REQUIRED_SYSCTLS, Swap, SwapBehavior, System};
pub use self::taint::{Taint, TaintEffect};
use self::validation::{IMAGE_RULE, PEM, Problems, certificates, is_image};
use crate::{digest, strict};

/// The largest number of YAML nodes of a document once its aliases are expanded: a few lines of nested
/// aliases could otherwise fill the memory.
const MAX_NODES: usize = 250_000;

/// Settings of one cluster's nodes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// The cluster that nodes join.
    pub cluster: ClusterSettings,
    /// Proxy for downloads, containerd and the package manager.
    pub proxy: Proxy,
    /// PEM bundle of certificates that nodes trust in addition to their own.
    #[serde(rename = "hostCABundle")]
    pub host_ca_bundle: Option<String>,
    /// Image of the pod sandbox. The default is that of containerd.
    pub pause_image: Option<String>,
    /// Taints with which every node registers.
    pub initial_taints: Vec<Taint>,
    /// Settings of the kubelet.
    pub kubelet: KubeletDefaults,
    /// Settings of containerd.
    pub containerd: Containerd,
    /// Sources, versions and checksums of what nodes download.
    pub downloads: Downloads,
    /// Packages of the operating system.
    pub packages: Packages,
    /// The operating system itself.
    pub system: System,
    /// Credentials of nodes. secret-syncer reads this section.
    pub credentials: Credentials,
    /// Default profiles. osp-controller reads this section.
    pub default_profiles: DefaultProfiles,
    /// Limits of the installation. osc-controller reads this section.
    pub limits: Limits,
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
        Self::document_within(text, MAX_NODES)
    }

    /// As [`Settings::document`], for a text with at most so many YAML nodes (maps, lists and scalars, keys
    /// included) once its aliases are expanded.
    ///
    /// # Errors
    /// A text that is not YAML, or has more nodes.
    pub fn document_within(text: &str, max_nodes: usize) -> Result<Value, SettingsError> {
        let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_nodes: max_nodes } };
        let value: Option<Value> = serde_saphyr::from_str_with_options(text, options)
            .map_err(|error| SettingsError(vec![yaml_problem(&error, max_nodes)]))?;
        Ok(value
            .filter(|value| !value.is_null())
            .unwrap_or_else(|| Value::Object(serde_json::Map::new())))
    }

    /// Reads a settings document that is parsed already.
    ///
    /// # Errors
    /// As [`Settings::parse`].
    pub fn from_document(document: Value) -> Result<Self, SettingsError> {
        let mut settings = strict::decode_and_validate(document, Self::problems).map_err(SettingsError)?;
        for bundle in [&mut settings.cluster.ca_bundle, &mut settings.host_ca_bundle] {
            *bundle = bundle.take().and_then(|text| certificates(&text));
        }
        Ok(settings)
    }

    /// SHA-256 of everything, 64 hex characters.
    ///
    /// # Errors
    /// Settings without a JSON form; there are none.
    pub fn digest(&self) -> Result<String, serde_json::Error> {
        digest::of(self)
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Problems::default();
        self.cluster.validate(&mut problems);
        self.proxy.validate(&mut problems);
        if let Some(pem) = &self.host_ca_bundle {
            problems.check("hostCABundle", certificates(pem).is_some(), PEM);
        }
        if let Some(image) = &self.pause_image {
            problems.check("pauseImage", is_image(image), IMAGE_RULE);
        }
        let external = self.cluster.external_cloud_provider;
        taint::validate(&self.initial_taints, &self.kubelet, external, &mut problems);
        self.kubelet.validate(&mut problems);
        self.containerd.validate(&mut problems);
        self.packages.validate(&mut problems);
        self.system.validate(&self.kubelet, &mut problems);
        self.downloads.validate(&mut problems);
        self.credentials.validate(&mut problems);
        self.limits.validate(&mut problems);
        problems.into_lines()
    }
}

fn yaml_problem(error: &Error, max_nodes: usize) -> String {
    let mut cause = error;
    while let Error::AliasError { error, .. } | Error::WithSnippet { error, .. } = cause {
        cause = error;
    }
    match cause {
        Error::Budget {
            breach: BudgetBreach::Nodes { .. },
            ..
        } => format!(
            "has more than {max_nodes} keys, values, lists and maps, aliases expanded; shorten the document"
        ),
        // Without a blank after the colon, what is written as a key can hold a value.
        Error::DuplicateMappingKey { location, .. } => format!(
            "line {} column {}: a map has the same key twice; remove one of them",
            location.line(),
            location.column()
        ),
        _ => format!(
            "not YAML: {}",
            error.to_string().lines().next().unwrap_or_default()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_document_is_the_defaults() {
        for text in ["", "---\n", "{}", "# nothing\n"] {
            assert_eq!(Settings::parse(text).unwrap(), Settings::default(), "{text:?}");
        }
        assert!(Settings::default().problems().is_empty());
    }

    #[test]
    fn a_document_has_at_most_so_many_nodes() {
        // The list is a node, too.
        let with = |nodes: usize| format!("[{}]", "1,".repeat(nodes - 1));
        assert!(Settings::document(&with(MAX_NODES)).is_ok());
        let error = Settings::document(&with(MAX_NODES + 1)).unwrap_err();
        assert!(error.to_string().contains("250000"), "{error}");
        // So does what an alias repeats.
        let repeated = format!("a: &a {}\nb: [{}]\n", with(1_000), "*a,".repeat(250));
        assert!(Settings::document(&repeated).is_err());
    }

    #[test]
    fn a_key_that_is_there_twice_is_named_by_its_place() {
        let error = Settings::document("proxy:\n  a:hunter2: 1\n  a:hunter2: 2\n").unwrap_err();
        assert_eq!(
            error.to_string().lines().last().unwrap_or_default().trim(),
            "line 3 column 3: a map has the same key twice; remove one of them"
        );
    }

    /// Documents, and how the only mistake of each begins.
    const REFUSED: &str = r#"
cluster: {apiServer: "http://77"} => cluster.apiServer: must be https://
cluster: {caBundle: "77"} => cluster.caBundle: must be one or more PEM
cluster: {dnsIPs: []} => cluster.dnsIPs: must name
cluster: {dnsDomain: "cluster.local:77"} => cluster.dnsDomain: must be a DNS domain
pauseImage: "registry.example/pause 77" => pauseImage: must be an image
pauseImage: "https://registry.example/pause:77" => pauseImage: must be an image
pauseImage: "registry.example/pause:-77" => pauseImage: must be an image
initialTaints: [{key: "77 key!", effect: NoSchedule}] => initialTaints[0].key: must be a label key
initialTaints: [{key: a, value: "77 value!", effect: NoSchedule}] => initialTaints[0].value: must be a label value
initialTaints: [{key: a, effect: Never}] => initialTaints[0].effect: expected one of
initialTaints: [{key: a, effect: NoSchedule}, {key: a, value: "77", effect: NoSchedule}] => initialTaints[1]: has the key and effect of initialTaints[0]
{cluster: {externalCloudProvider: true}, initialTaints: [{key: node.cloudprovider.kubernetes.io/uninitialized, effect: NoSchedule}]} => initialTaints[0]: is added by
kubelet: {configuration: {registerWithTaints: [{key: a, effect: NoExecute}, {key: a, value: "77", effect: NoExecute}]}} => kubelet.configuration.registerWithTaints[1]: has the key
kubelet: {configuration: {registerWithTaints: [{key: "77 a", effect: NoExecute}]}} => kubelet.configuration.registerWithTaints[0].key: must be a label key
proxy: {http: "http://user:77@proxy:3128"} => proxy.http: must be http://host:port, without
proxy: {noProxy: "77, b"} => proxy.noProxy: must be
proxy: {noProxy: "a\n77"} => proxy.noProxy: must be
proxy: {noProxy: "a#77"} => proxy.noProxy: must be
proxy: {noProxy: "a\u202877"} => proxy.noProxy: must be
proxy: {credentials: {name: a}} => proxy.credentials: requires proxy.http
containerd: {registries: [{host: a77, mirrors: []}]} => containerd.registries[0].host: is in no image
containerd: {registries: [{host: index.docker.io, mirrors: []}]} => containerd.registries[0].host: is in no image
containerd: {registries: [{host: a.b, mirrors: [{url: "http://a"}, {url: "http://a"}]}]} => containerd.registries[0].mirrors[1].url: is listed twice
containerd: {registries: [{host: ..}]} => containerd.registries[0].host: must be
containerd: {registries: [{host: a..77}]} => containerd.registries[0].host: must be
containerd: {registries: [{host: a/77}]} => containerd.registries[0].host: must be
containerd: {registries: [{host: "-a77"}]} => containerd.registries[0].host: must be
containerd: {registries: [{host: "a:1:77"}]} => containerd.registries[0].host: must be
containerd: {registries: [{host: "a:+77"}]} => containerd.registries[0].host: must be
containerd: {registries: [{host: ""}]} => containerd.registries[0].host: must be
containerd: {registries: [{host: a.b, credentials: {name: a/77}}]} => containerd.registries[0].credentials.name: must be
containerd: {registries: [{host: a.b, credentials: {name: ""}}]} => containerd.registries[0].credentials.name: must be
containerd: {registries: [{host: a.b, credentials: {name: a, namespace: ..}}]} => containerd.registries[0].credentials.namespace: must be
containerd: {registries: [{host: a.b, mirrors: [{url: "77"}]}]} => containerd.registries[0].mirrors[0].url: must be
kubelet: {featureGates: {"a 77": true}} => kubelet.featureGates: the name of a feature gate must have up to 100 letters
kubelet: {featureGates: {"": true}} => kubelet.featureGates: the name of a feature gate must have up to 100 letters
containerd: {registries: [{host: _default, credentials: {name: x}}]} => containerd.registries[0].credentials: cannot be
downloads: {containerd: {version: 1.77.29}} => downloads.containerd.version: must be 2.0.0 or newer
downloads: {kubelet: {sha256: {v1.34.77: {}}}} => downloads.kubelet.sha256: a key must be
downloads: {crictl: {sha256: {"1.77": {}}}} => downloads.crictl.sha256: a key must be
downloads: {runc: {version: v77}} => downloads.runc.version: must be a version
downloads: {runc: {sha256: {amd64: "77"}}} => downloads.runc.sha256.amd64: must be 64 hex
packages: {apt: {mirror: "ftp://77"}} => packages.apt.mirror: must be
packages: {yum: {repositories: [{name: "77 b", baseURL: "https://x", gpgKey: "https://x"}]}} => packages.yum.repositories[0].name: must
packages: {yum: {repositories: [{name: b, baseURL: "https://$77/x", gpgKey: "https://x"}]}} => packages.yum.repositories[0].baseURL: must
packages: {yum: {repositories: [{name: b, baseURL: "https://x", gpgKey: "/77/key"}]}} => packages.yum.repositories[0].gpgKey: must be
packages: {install: ["-77"]} => packages.install[0]: must consist of
credentials: {tokenLifetimeHours: 0} => credentials.tokenLifetimeHours: must be from 1 to 720
credentials: {allowedSources: [{namespace: K77, secrets: [a]}]} => credentials.allowedSources[0].namespace: must be
credentials: {allowedSources: [{namespace: a, secrets: [a, "*77"]}]} => credentials.allowedSources[0].secrets[1]: must be
credentials: {allowedSources: [{namespace: a, configMaps: ["77/a"]}]} => credentials.allowedSources[0].configMaps[0]: must be
credentials: {profileSecrets: [{namespace: kube-system, name: vpn}]} => credentials.profileSecrets[0]: missing field `key`
credentials: {profileSecrets: [{namespace: K77, name: vpn, key: a}]} => credentials.profileSecrets[0].namespace: must be
credentials: {profileSecrets: [{namespace: a, name: "*77", key: a}]} => credentials.profileSecrets[0].name: must be
credentials: {profileSecrets: [{namespace: a, name: vpn, key: "77/b"}]} => credentials.profileSecrets[0].key: must be
credentials: {profileSecrets: [{namespace: a, name: vpn, key: ""}]} => credentials.profileSecrets[0].key: must be
limits: {machineDeployments: 0} => limits.machineDeployments: must be from 1 to 10000
limits: {machineDeployments: 10001} => limits.machineDeployments: must be from 1 to 10000
system: {swap: {size: 1025Gi}} => system.swap.size: must be
system: {swap: {size: 0Gi}} => system.swap.size: must be
system: {swap: {size: 77G}} => system.swap.size: must be
system: {swap: {size: "+77Gi"}} => system.swap.size: must be
system: {swap: {size: 77777777777Gi}} => system.swap.size: must be
system: {swap: {behavior: Unlimited77}} => system.swap.behavior: expected
system: {sysctls: {"77 a": 1}} => system.sysctls: the name of a kernel parameter must consist of
system: {sysctls: {vm.swappiness: ""}} => system.sysctls.vm.swappiness: must be a number or a text
system: {sysctls: {kernel.core_pattern: "core{77}"}} => system.sysctls.kernel.core_pattern: must not contain an opening brace
system: {sysctls: {vm.overcommit_memory: 77}} => system.sysctls.vm.overcommit_memory: must be 1, because every node needs
system: {sysctls: {net/ipv4/ip_forward: 77}} => system.sysctls.net/ipv4/ip_forward: must be 1, because every node needs
system: {sysctls: {net.ipv6.conf.all.forwarding: 77}} => system.sysctls.net.ipv6.conf.all.forwarding: must be 1
system: {kernelModules: [nf_conntrack, "77;reboot"]} => system.kernelModules[1]: must consist of
system: {ntpServers: ["77 prefer"]} => system.ntpServers[0]: must be the name of a host
system: {ntpServers: [a.example, b.example, a.example]} => system.ntpServers[2]: is listed twice
{system: {swap: {}}, kubelet: {configuration: {failSwapOn: true}}} => system.swap: contradicts kubelet.configuration.failSwapOn
{system: {swap: {}}, kubelet: {featureGates: {NodeSwap: false}}} => system.swap: contradicts the feature gate
{system: {swap: {}}, kubelet: {configuration: {featureGates: {NodeSwap: false}}}} => system.swap: contradicts the feature gate
"#;

    #[test]
    fn each_rule_is_named_with_its_path_and_without_the_value() {
        let cases = REFUSED.trim().lines().filter(|line| !line.starts_with('#'));
        for case in cases {
            let (document, expected) = case.split_once(" => ").unwrap();
            let errors = Settings::parse(document).unwrap_err().0;
            let [error] = &errors[..] else {
                panic!("{case}: {errors:?}")
            };
            assert!(
                error.starts_with(expected) && !error.contains("77"),
                "{case}: {error}"
            );
        }
        for good in [
            "system: {swap: {}, kernelModules: [nf_conntrack]}\nkubelet: {featureGates: {NodeSwap: true}}",
            "limits: {machineDeployments: 10000}",
            "initialTaints: [{key: a, effect: NoSchedule}, {key: a, effect: NoExecute}]",
            "initialTaints: [{key: node.cloudprovider.kubernetes.io/uninitialized, effect: NoSchedule}]",
            "containerd: {registries: [{host: localhost}, {host: 'a:5000'}, {host: Registry}, {host: _default}]}",
            "credentials: {profileSecrets: [{namespace: kube-system, name: vpn, key: tls.key}]}",
            "pauseImage: registry.example:5000/a/pause:3.10@sha256:abcd",
            "pauseImage: registry.example/pause:_latest",
            "proxy: {noProxy: '10.0.0.0/8,.svc,*.example,[fd00::1]:8080,fe80::1%eth0'}",
            "cluster: {dnsDomain: cluster.local.}",
        ] {
            Settings::parse(good).unwrap();
        }
    }

    #[test]
    fn what_is_around_certificates_is_left_out() {
        let one = "-----BEGIN CERTIFICATE-----\nTWFu+/==\n-----END CERTIFICATE-----\n";
        let document = serde_json::json!({"hostCABundle": format!("Root\n{one}")});
        let settings = Settings::from_document(document).unwrap();
        assert_eq!(settings.host_ca_bundle.as_deref(), Some(one));
    }
}
