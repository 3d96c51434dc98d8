//! A pool: what rendering needs to know of a MachineDeployment, checked.

use std::collections::BTreeMap;

use semver::Version;
use serde::Serialize;
use serde_json::Value;

use crate::machine_deployment::MachineDeployment;
use crate::profile::{CloudProvider, OperatingSystem, ProvisioningUtility};
use crate::provider_spec::{Network, OperatingSystemSpec, ProviderSpec};
use crate::{digest, names, strict};

/// A pool of machines, independent of where it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Name of the pool's object.
    pub name: String,
    /// Namespace of the pool's object.
    pub namespace: String,
    /// Operating system of its machines.
    pub operating_system: OperatingSystem,
    /// Cloud of its machines.
    pub cloud_provider: CloudProvider,
    /// Version of the kubelet.
    pub kubelet_version: Version,
    /// SSH public keys, trimmed, each once, in order.
    pub ssh_public_keys: Vec<String>,
    /// Network of the machines.
    pub network: Network,
    /// Settings of the operating system.
    pub os: OperatingSystemSpec,
    /// Replaces `/etc/kubernetes/cloud-config`.
    pub overwrite_cloud_config: Option<String>,
    /// Kubelet settings from annotations.
    pub kubelet: KubeletSettings,
}

/// Kubelet settings that a pool's annotations may carry.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)]
pub struct KubeletSettings {
    pub system_reserved: Option<BTreeMap<String, String>>,
    pub kube_reserved: Option<BTreeMap<String, String>>,
    pub eviction_hard: Option<BTreeMap<String, String>>,
    pub container_log_max_size: Option<String>,
    pub container_log_max_files: Option<i32>,
    pub max_pods: Option<i32>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: Option<i32>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: Option<i32>,
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: Option<String>,
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: Option<String>,
}

/// Why a MachineDeployment can't be read as a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum PoolError {
    #[error(
        "spec.template.spec.providerSpec.value is missing: set the cloud provider and the operating system there"
    )]
    MissingProviderSpec,
    #[error("spec.template.spec.providerSpec.value can't be read: {}", .0.join("; "))]
    InvalidProviderSpec(Vec<String>),
    #[error(
        "spec.template.spec.providerSpec.value.operatingSystem is not known: use one of flatcar, rhel, ubuntu, amzn2, rockylinux"
    )]
    UnknownOperatingSystem,
    #[error(
        "spec.template.spec.providerSpec.value.cloudProvider is not known: use a name that machine-controller knows"
    )]
    UnknownCloudProvider,
    #[error("spec.template.spec.providerSpec.value.operatingSystemSpec can't be read: {}", .0.join("; "))]
    InvalidOperatingSystemSpec(Vec<String>),
    #[error(
        "spec.template.spec.versions.kubelet is missing: set it to the kubelet's version, such as 1.34.2"
    )]
    MissingKubeletVersion,
    #[error("spec.template.spec.versions.kubelet is not a version such as 1.34.2")]
    InvalidKubeletVersion,
    #[error("annotation {key}: {problem}")]
    InvalidAnnotation { key: String, problem: String },
}

impl PoolError {
    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::MissingProviderSpec | Self::InvalidProviderSpec(_) => "InvalidProviderSpec",
            Self::UnknownOperatingSystem => "UnknownOperatingSystem",
            Self::UnknownCloudProvider => "UnknownCloudProvider",
            Self::InvalidOperatingSystemSpec(_) => "InvalidOperatingSystemSpec",
            Self::MissingKubeletVersion | Self::InvalidKubeletVersion => "InvalidKubeletVersion",
            Self::InvalidAnnotation { .. } => "InvalidAnnotation",
        }
    }
}

impl Pool {
    /// Reads a MachineDeployment.
    ///
    /// # Errors
    /// The first thing that makes it unusable; no message repeats a value.
    pub fn read(md: &MachineDeployment) -> Result<Self, PoolError> {
        let machine = md.spec.template.get("spec").unwrap_or(&Value::Null);
        let value = machine.pointer("/providerSpec/value").filter(|value| !value.is_null());
        let provider: ProviderSpec = strict::decode(value.ok_or(PoolError::MissingProviderSpec)?.clone())
            .map_err(PoolError::InvalidProviderSpec)?;
        let known = |name: &str| serde_json::from_value(Value::String(name.to_owned()));
        let operating_system =
            known(&provider.operating_system).map_err(|_| PoolError::UnknownOperatingSystem)?;
        let cloud_provider = serde_json::from_value(Value::String(provider.cloud_provider.clone()))
            .map_err(|_| PoolError::UnknownCloudProvider)?;
        let os = match provider.operating_system_spec {
            Value::Null => OperatingSystemSpec::default(),
            spec => strict::decode(spec).map_err(PoolError::InvalidOperatingSystemSpec)?,
        };
        let kubelet_version = machine
            .pointer("/versions/kubelet")
            .and_then(Value::as_str)
            .filter(|version| !version.is_empty())
            .ok_or(PoolError::MissingKubeletVersion)?;
        Ok(Self {
            name: md.metadata.name.clone().unwrap_or_default(),
            namespace: md.metadata.namespace.clone().unwrap_or_default(),
            operating_system,
            cloud_provider,
            kubelet_version: parse_version(kubelet_version)?,
            ssh_public_keys: distinct(provider.ssh_public_keys)?,
            network: provider.network.unwrap_or_default(),
            os,
            overwrite_cloud_config: provider.overwrite_cloud_config,
            kubelet: KubeletSettings::read(md.metadata.annotations.as_ref())?,
        })
    }
}

impl Pool {
    /// The program that applies user data on its machines: on Flatcar Ignition unless told otherwise, elsewhere
    /// always cloud-init.
    pub fn provisioning_utility(&self) -> ProvisioningUtility {
        match self.operating_system {
            OperatingSystem::Flatcar => self.os.provisioning_utility.unwrap_or(ProvisioningUtility::Ignition),
            _ => ProvisioningUtility::CloudInit,
        }
    }
}

/// SHA-256 of a MachineDeployment's `spec.template`.
pub fn template_digest(md: &MachineDeployment) -> String {
    // A JSON tree always has a JSON form.
    digest::of(&md.spec.template).unwrap_or_default()
}

/// Revision that machine-controller stamped on a MachineDeployment.
pub fn revision(md: &MachineDeployment) -> Option<&str> {
    annotation(md, names::REVISION)
}

/// An annotation that is neither absent nor empty.
pub fn annotation<'a>(md: &'a MachineDeployment, key: &str) -> Option<&'a str> {
    md.metadata.annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
}

/// `v1.34.2`, `1.34.2` and `1.34` are all taken, as machine-controller takes them.
fn parse_version(text: &str) -> Result<Version, PoolError> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let padded = if bare.split(['-', '+']).next().is_some_and(|core| core.matches('.').count() == 1) {
        let at = bare.find(['-', '+']).unwrap_or(bare.len());
        let (core, rest) = bare.split_at(at);
        format!("{core}.0{rest}")
    } else {
        bare.to_owned()
    };
    Version::parse(&padded).map_err(|_| PoolError::InvalidKubeletVersion)
}

/// The keys without blanks around them, each once. More than one line would be more than one key, perhaps with options.
fn distinct(keys: Vec<String>) -> Result<Vec<String>, PoolError> {
    let mut seen: Vec<String> = Vec::new();
    for (i, key) in keys.iter().map(|key| key.trim()).enumerate() {
        if key.contains(char::is_control) {
            let problem = format!("sshPublicKeys[{i}]: must be one line, without control characters");
            return Err(PoolError::InvalidProviderSpec(vec![problem]));
        }
        if !key.is_empty() && !seen.iter().any(|known| known == key) {
            seen.push(key.to_owned());
        }
    }
    Ok(seen)
}

impl KubeletSettings {
    fn read(annotations: Option<&BTreeMap<String, String>>) -> Result<Self, PoolError> {
        let mut settings = Self::default();
        let Some(annotations) = annotations else { return Ok(settings) };
        for (key, value) in annotations {
            let Some(name) = key.strip_prefix(names::KUBELET_CONFIG_PREFIX) else { continue };
            let bad = |problem: String| PoolError::InvalidAnnotation { key: key.clone(), problem };
            let number = || value.parse::<i32>().map_err(|_| bad("must be a whole number".to_owned()));
            let pairs = |separator| parse_pairs(value, separator).map_err(&bad);
            let duration = || match value.parse::<jiff::SignedDuration>() {
                Ok(_) => Ok(value.clone()),
                Err(_) => Err(bad("must be a duration such as 2m or 24h".to_owned())),
            };
            match name {
                "SystemReserved" => settings.system_reserved = Some(pairs('=')?),
                "KubeReserved" => settings.kube_reserved = Some(pairs('=')?),
                "EvictionHard" => settings.eviction_hard = Some(pairs('<')?),
                "ContainerLogMaxSize" => settings.container_log_max_size = Some(value.clone()),
                "ContainerLogMaxFiles" => settings.container_log_max_files = Some(number()?),
                "MaxPods" => settings.max_pods = Some(number()?),
                "ImageGCHighThresholdPercent" => settings.image_gc_high_threshold_percent = Some(number()?),
                "ImageGCLowThresholdPercent" => settings.image_gc_low_threshold_percent = Some(number()?),
                "ImageMinimumGCAge" => settings.image_minimum_gc_age = Some(duration()?),
                "ImageMaximumGCAge" => settings.image_maximum_gc_age = Some(duration()?),
                _ => return Err(bad("is not a kubelet setting that is known here".to_owned())),
            }
        }
        Ok(settings)
    }
}

/// Whether a text is like the name of a resource or signal, such as `memory` or `nodefs.available`. A longer key than 1024
/// characters ends YAML's patience.
fn is_name(text: &str) -> bool {
    (1..=253).contains(&text.len()) && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._/".contains(c))
}

fn parse_pairs(text: &str, separator: char) -> Result<BTreeMap<String, String>, String> {
    text.split(',')
        .map(|pair| match pair.split_once(separator) {
            Some((key, value)) if is_name(key.trim()) && !value.trim().is_empty() => {
                Ok((key.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(format!("must be a list such as cpu{separator}200m,memory{separator}200Mi")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn machine_deployment(spec: Value, annotations: Value) -> MachineDeployment {
        serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": {"name": "pool", "namespace": "kube-system", "annotations": annotations},
            "spec": {"template": {"spec": spec}},
        }))
        .unwrap()
    }

    fn good() -> Value {
        json!({
            "versions": {"kubelet": "v1.34.2"},
            "providerSpec": {"value": {
                "sshPublicKeys": ["ssh-ed25519 AAA a\n", "ssh-ed25519 AAA a", " "],
                "cloudProvider": "aws", "cloudProviderSpec": {"secretAccessKey": "hunter2"},
                "operatingSystem": "ubuntu", "operatingSystemSpec": {"distUpgradeOnBoot": true, "other": 1},
                "network": {"ipFamily": ""},
            }},
        })
    }

    #[test]
    fn reads_what_rendering_needs() {
        let annotations = json!({
            "v1.kubelet-config.machine-controller.kubermatic.io/MaxPods": "55",
            "v1.kubelet-config.machine-controller.kubermatic.io/KubeReserved": "cpu=200m, memory=200Mi",
            "v1.kubelet-config.machine-controller.kubermatic.io/EvictionHard": "memory.available<100Mi",
            "v1.kubelet-config.machine-controller.kubermatic.io/ImageMinimumGCAge": "5m",
        });
        let pool = Pool::read(&machine_deployment(good(), annotations)).unwrap();
        assert_eq!(pool.kubelet_version.to_string(), "1.34.2");
        assert_eq!(pool.ssh_public_keys, ["ssh-ed25519 AAA a"]);
        assert!(pool.os.dist_upgrade_on_boot);
        assert_eq!(pool.kubelet.max_pods, Some(55));
        assert_eq!(pool.kubelet.kube_reserved.unwrap().get("memory").unwrap(), "200Mi");
        assert_eq!(pool.kubelet.eviction_hard.unwrap().get("memory.available").unwrap(), "100Mi");
    }

    #[test]
    fn each_mistake_has_its_reason_and_keeps_values_to_itself() {
        let with = |path: &str, value: Value| {
            let mut spec = good();
            *spec.pointer_mut(path).unwrap() = value;
            Pool::read(&machine_deployment(spec, json!({}))).unwrap_err()
        };
        let cases = [
            (with("/providerSpec/value", Value::Null), "InvalidProviderSpec"),
            (with("/providerSpec/value", json!({"cloudProvidr": "aws"})), "InvalidProviderSpec"),
            (with("/providerSpec/value/network", json!("hunter2")), "InvalidProviderSpec"),
            (with("/providerSpec/value/operatingSystem", json!("hunter2")), "UnknownOperatingSystem"),
            (with("/providerSpec/value/cloudProvider", json!("hunter2")), "UnknownCloudProvider"),
            (
                with("/providerSpec/value/sshPublicKeys", json!(["ssh-rsa A", "ssh-rsa hunter2\nssh-rsa B"])),
                "InvalidProviderSpec",
            ),
            (
                with("/providerSpec/value/operatingSystemSpec", json!({"distUpgradeOnBoot": "hunter2"})),
                "InvalidOperatingSystemSpec",
            ),
            (with("/versions/kubelet", json!("")), "InvalidKubeletVersion"),
            (with("/versions/kubelet", json!("hunter2")), "InvalidKubeletVersion"),
        ];
        for (error, reason) in cases {
            assert_eq!(error.reason(), reason);
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let annotations = json!({"v1.kubelet-config.machine-controller.kubermatic.io/MaxPods": "many"});
        let error = Pool::read(&machine_deployment(good(), annotations)).unwrap_err();
        assert_eq!(error.reason(), "InvalidAnnotation");
        assert!(error.to_string().contains("MaxPods"), "{error}");
        let long = format!("{}=1", "a".repeat(2000));
        for pairs in ["cpu", "=1", "cpu=", "c pu=1", long.as_str()] {
            let annotations =
                json!({"v1.kubelet-config.machine-controller.kubermatic.io/KubeReserved": pairs});
            let error = Pool::read(&machine_deployment(good(), annotations)).unwrap_err();
            assert_eq!(error.reason(), "InvalidAnnotation", "{pairs}");
        }
    }

    #[test]
    fn flatcar_has_ignition_unless_told_otherwise_and_others_never() {
        let pool = |os: &str, spec: Value| {
            let mut machine = good();
            let provider = machine.pointer_mut("/providerSpec/value").unwrap();
            provider["operatingSystem"] = json!(os);
            provider["operatingSystemSpec"] = spec;
            Pool::read(&machine_deployment(machine, json!({})))
        };
        for (os, spec, utility) in [
            ("flatcar", Value::Null, "ignition"),
            ("flatcar", json!({"provisioningUtility": ""}), "ignition"),
            ("flatcar", json!({"provisioningUtility": "ignition"}), "ignition"),
            ("flatcar", json!({"provisioningUtility": "cloud-init"}), "cloud-init"),
            ("ubuntu", json!({"provisioningUtility": "ignition"}), "cloud-init"),
            ("rhel", Value::Null, "cloud-init"),
        ] {
            assert_eq!(pool(os, spec).unwrap().provisioning_utility().to_string(), utility, "{os}");
        }
        let error = pool("flatcar", json!({"provisioningUtility": "ansible"})).unwrap_err().to_string();
        assert!(error.contains("provisioningUtility: expected cloud-init or ignition"), "{error}");
        let flags =
            json!({"disableAutoUpdate": true, "disableLocksmithD": true, "disableUpdateEngine": true});
        let os = pool("flatcar", flags).unwrap().os;
        assert!(os.disable_auto_update && os.disable_locksmith_d && os.disable_update_engine);
    }

    #[test]
    fn short_versions_are_versions() {
        assert_eq!(parse_version("1.34").unwrap().to_string(), "1.34.0");
        assert_eq!(parse_version("v1.34-rc.1").unwrap().to_string(), "1.34.0-rc.1");
        assert!(parse_version("1").is_err());
    }
}
