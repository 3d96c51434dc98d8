//! A pool: what rendering needs to know of a MachineDeployment, checked.

use std::collections::BTreeMap;

use semver::Version;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::machine_deployment::MachineDeployment;
use crate::profile::{CloudProvider, OperatingSystem, ProvisioningUtility};
use crate::provider_spec::{self, Network, OperatingSystemSpec, ProviderSpec};
use crate::reason::Reason;
use crate::{digest, names, node_name, strict};

mod annotations;
mod error;
mod kubelet_annotations;

pub use error::PoolError;
pub use kubelet_annotations::{KUBELET_ANNOTATIONS, KubeletAnnotation, KubeletSettings};

/// A pool of machines, independent of where it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Name of the pool's object.
    pub name: String,
    /// Namespace of the pool's object.
    pub namespace: String,
    /// Operating system of its machines.
    pub operating_system: OperatingSystem,
    pub cloud_provider: CloudProvider,
    pub kubelet_version: Version,
    /// SSH public keys, trimmed, each once, in order.
    pub ssh_public_keys: Vec<String>,
    pub network: Network,
    /// Settings of the operating system.
    pub os: OperatingSystemSpec,
    /// Replaces `/etc/kubernetes/cloud-config`.
    pub overwrite_cloud_config: Option<String>,
    pub kubelet: KubeletSettings,
    /// Annotations and labels of the MachineDeployment that have no effect where they are, and a name that
    /// its node can't have.
    pub warnings: Vec<String>,
}

/// The part of `spec.template` that is read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Template {
    spec: MachineSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct MachineSpec {
    provider_spec: WrappedProviderSpec,
    versions: Versions,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct WrappedProviderSpec {
    value: Option<Map<String, Value>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Versions {
    kubelet: String,
}

const PROVIDER_SPEC: &str = "spec.template.spec.providerSpec.value";
const KUBELET_VERSION: &str = "spec.template.spec.versions.kubelet";

impl Template {
    fn read(md: &MachineDeployment) -> Result<Self, PoolError> {
        strict::decode(md.spec.template.clone()).map_err(|lines| {
            let line = lines.into_iter().next().unwrap_or_default();
            let path = match line.split_once(": ") {
                Some((path, _)) if path != strict::DOCUMENT => format!("spec.template.{path}"),
                _ => "spec.template".to_owned(),
            };
            let reason = if path.starts_with("spec.template.spec.versions") {
                Reason::KubeletVersionInvalid
            } else {
                Reason::ProviderSpecInvalid
            };
            let problem = line.split_once(": ").map_or("", |(_, problem)| problem);
            PoolError::at(reason, &path, problem)
        })
    }
}

impl Pool {
    /// Reads a MachineDeployment.
    ///
    /// # Errors
    /// The first thing that makes it unusable; no message repeats a value.
    pub fn read(md: &MachineDeployment) -> Result<Self, PoolError> {
        let (name, namespace) = (
            md.metadata.name.clone().unwrap_or_default(),
            md.metadata.namespace.clone().unwrap_or_default(),
        );
        check_name(&name, &namespace, cloud_provider(md))?;
        for key in [names::REVISION, names::PROFILE_NAMESPACE, names::PROFILE] {
            short_annotation(md, key)?;
        }
        let MachineSpec {
            provider_spec,
            versions,
        } = Template::read(md)?.spec;
        let invalid = |problem: &str| PoolError::at(Reason::ProviderSpecInvalid, PROVIDER_SPEC, problem);
        let value = provider_spec.value.ok_or_else(|| {
            let is_old = md.spec.template.pointer("/spec/providerConfig").is_some();
            invalid(if is_old {
                "is missing; rename spec.template.spec.providerConfig, as it was called before 2019, to providerSpec"
            } else {
                "is missing; set the cloud provider and the operating system there"
            })
        })?;
        let value = provider_spec::canonical(&Value::Object(value));
        let provider: ProviderSpec = strict::decode(value).map_err(|lines| invalid(&is_invalid(&lines)))?;
        let unknown = |reason, field: &str, problem: &str| {
            PoolError::at(reason, &format!("{PROVIDER_SPEC}.{field}"), problem)
        };
        let operating_system =
            serde_json::from_value(Value::String(provider.operating_system)).map_err(|_| {
                let problem = "is unknown; use one of flatcar, rhel, ubuntu, amzn2, rockylinux";
                unknown(Reason::UnknownOperatingSystem, "operatingSystem", problem)
            })?;
        let cloud_provider = provider.cloud_provider.parse().map_err(|_| {
            let problem = "is unknown; use a name that machine-controller supports";
            unknown(Reason::UnknownCloudProvider, "cloudProvider", problem)
        })?;
        let mut os = provider.operating_system_spec;
        provider_spec::retain_own(operating_system, &mut os);
        let os = strict::decode(Value::Object(os)).map_err(|lines| {
            let reason = Reason::OperatingSystemSpecInvalid;
            unknown(reason, "operatingSystemSpec", &is_invalid(&lines))
        })?;
        let mut network = provider.network.unwrap_or_default();
        network.dns.servers.retain(|server| !server.is_empty());
        let of_version = |problem| PoolError::at(Reason::KubeletVersionInvalid, KUBELET_VERSION, problem);
        if versions.kubelet.is_empty() {
            return Err(of_version(
                "is missing; set it to the version of the kubelet, such as 1.34.2",
            ));
        }
        let kubelet_version = parse_version(&versions.kubelet)
            .ok_or_else(|| of_version("is not a version such as 1.34.2; correct it"))?;
        let ssh_public_keys =
            distinct(provider.ssh_public_keys).map_err(|line| invalid(&is_invalid(&[line])))?;
        let mut warnings = annotations::misplaced(md);
        warnings.extend(node_name::warning(cloud_provider, &name));
        Ok(Self {
            name,
            namespace,
            operating_system,
            cloud_provider,
            kubelet_version,
            ssh_public_keys,
            network,
            os,
            overwrite_cloud_config: provider.overwrite_cloud_config.filter(|text| !text.is_empty()),
            kubelet: KubeletSettings::read(&annotations::of_kubelet(md)?)?,
            warnings,
        })
    }

    /// The program that applies user data on its machines.
    pub fn provisioning_utility(&self) -> ProvisioningUtility {
        utility_of(self.operating_system, self.os.provisioning_utility)
    }
}

fn is_invalid(lines: &[String]) -> String {
    format!("is invalid: {}", lines.join("; "))
}

/// Fields of the provider spec that rendering reads.
const RENDERED_FIELDS: [&str; 6] = [
    "cloudProvider",
    "network",
    "operatingSystem",
    "operatingSystemSpec",
    "overwriteCloudConfig",
    "sshPublicKeys",
];

/// Fields of the operating system's spec that never become part of a config, because they open something.
pub const SECRET_FIELDS: [&str; 2] = ["rhelSubscriptionManagerPassword", "rhelActivationKey"];

/// Start of a [`template_digest`]. A release that reads other fields has another one: its digests do not show
/// an edit of the template.
const TEMPLATE_DIGEST: &str = "v1:";

/// Whether two template digests belong to different templates. Digests with different starts can't be
/// compared.
pub fn template_differs(digest: &str, other: &str) -> bool {
    let comparable = [digest, other]
        .iter()
        .all(|digest| digest.starts_with(TEMPLATE_DIGEST));
    comparable && digest != other
}

/// `v1:` and SHA-256 of what rendering reads of a MachineDeployment's `spec.template`. The credentials of the
/// cloud and of a subscription are not part of it: someone who can read the digest and knows the rest could
/// guess them.
pub fn template_digest(md: &MachineDeployment) -> String {
    let machine = md.spec.template.get("spec").unwrap_or(&Value::Null);
    let provider = provider(md);
    let field = |name: &'static str| Some((name, provider.get(name)?.clone()));
    let mut read: BTreeMap<&str, Value> = RENDERED_FIELDS.into_iter().filter_map(field).collect();
    let system = read.get_mut("operatingSystemSpec").and_then(Value::as_object_mut);
    for (name, value) in system.into_iter().flatten() {
        let is_reference = value.is_object() && value.get("value").is_none();
        if SECRET_FIELDS.contains(&name.as_str()) && !is_reference {
            // Rendering depends only on whether the field is set, so keep a boolean instead of the
            // credential.
            let text = value.get("value").unwrap_or(value).as_str();
            *value = Value::Bool(text.is_some_and(|text| !text.is_empty()));
        }
    }
    let kubelet = machine.pointer("/versions/kubelet").cloned();
    read.extend(kubelet.map(|version| ("kubelet", version)));
    // A JSON tree always has a digest.
    let digest = digest::of(&read).unwrap_or_default();
    format!("{TEMPLATE_DIGEST}{digest}")
}

/// The provider spec of a MachineDeployment in its canonical form; null if there is none.
fn provider(md: &MachineDeployment) -> Value {
    let value = md.spec.template.pointer("/spec/providerSpec/value");
    value.map_or(Value::Null, provider_spec::canonical)
}

/// Cloud provider that a MachineDeployment names, even where nothing else of it can be read as a [`Pool`].
pub fn cloud_provider(md: &MachineDeployment) -> Option<CloudProvider> {
    let value = md.spec.template.pointer("/spec/providerSpec/value")?;
    provider_spec::cloud_provider(value)?.parse().ok()
}

/// Operating system and provisioning utility that a MachineDeployment names, even where nothing else of it
/// can be read as a [`Pool`].
pub fn system(md: &MachineDeployment) -> Option<(OperatingSystem, ProvisioningUtility)> {
    let provider = provider(md);
    let system = serde_json::from_value(provider.get("operatingSystem")?.clone()).ok()?;
    let named = provider.pointer("/operatingSystemSpec/provisioningUtility");
    let named = named.and_then(|name| serde_json::from_value(name.clone()).ok());
    Some((system, utility_of(system, named)))
}

/// The program that applies user data. It is always cloud-init but on Flatcar, where it is Ignition unless
/// another is named.
fn utility_of(system: OperatingSystem, named: Option<ProvisioningUtility>) -> ProvisioningUtility {
    match system {
        OperatingSystem::Flatcar => named.unwrap_or(ProvisioningUtility::Ignition),
        _ => ProvisioningUtility::CloudInit,
    }
}

/// The texts in a MachineDeployment's `operatingSystemSpec`, by field: each is given plain, or as an object's
/// `value`. Late-bound values of kind
/// [`OperatingSystemSpecField`](crate::config::LateBoundKind::OperatingSystemSpecField) come from here.
pub fn operating_system_spec_texts(md: &MachineDeployment) -> BTreeMap<String, String> {
    let provider = provider(md);
    let spec = provider.get("operatingSystemSpec");
    let fields = spec.and_then(Value::as_object).into_iter().flatten();
    let text = |value: &Value| value.get("value").unwrap_or(value).as_str().map(str::to_owned);
    fields
        .filter_map(|(field, value)| Some((field.clone(), text(value)?)))
        .collect()
}

/// Whether the Secrets that other programs find by the name of a MachineDeployment can exist.
///
/// # Errors
/// The name is too long.
pub fn check_name(name: &str, namespace: &str, cloud: Option<CloudProvider>) -> Result<(), PoolError> {
    let (what, secret) = match cloud {
        Some(CloudProvider::Edge) => ("script", names::edge_script_secret_name(name, namespace)),
        _ => ("bootstrap", names::bootstrap_secret_name(name, namespace)),
    };
    let excess = secret.len().saturating_sub(names::MAX_NAME);
    if excess == 0 {
        return Ok(());
    }
    Err(PoolError {
        reason: Reason::NameTooLong,
        path: "metadata.name".to_owned(),
        message: format!(
            "name too long: the {what} Secret would have a name of {} characters, but {} is the limit; shorten the name of the \
             MachineDeployment by {excess}",
            secret.len(),
            names::MAX_NAME
        ),
    })
}

/// An annotation with the name of an object or the revision, which have a longest value.
///
/// # Errors
/// It is longer.
pub fn short_annotation<'a>(md: &'a MachineDeployment, key: &str) -> Result<Option<&'a str>, PoolError> {
    let found = annotation(md, key);
    if found.is_some_and(|text| text.len() > names::MAX_NAME) {
        Err(PoolError::annotation(key, "must have at most 253 characters"))
    } else {
        Ok(found)
    }
}

/// Revision that machine-controller stamped on a MachineDeployment.
pub fn revision(md: &MachineDeployment) -> Option<&str> {
    annotation(md, names::REVISION)
}

/// An annotation that is neither absent nor empty.
pub fn annotation<'a>(md: &'a MachineDeployment, key: &str) -> Option<&'a str> {
    md.metadata
        .annotations
        .as_ref()?
        .get(key)
        .map(String::as_str)
        .filter(|value| !value.is_empty())
}

/// Accepts `v1.34.2`, `1.34.2` and `1.34`, as machine-controller does.
fn parse_version(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (core, rest) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let patch = if core.matches('.').count() == 1 { ".0" } else { "" };
    Version::parse(&format!("{core}{patch}{rest}")).ok()
}

/// The keys without surrounding blanks, each once. A second line would be a second key, perhaps with options.
/// To sshd a tab is a blank, but not to every program that installs keys.
fn distinct(keys: Vec<String>) -> Result<Vec<String>, String> {
    let mut seen: Vec<String> = Vec::new();
    for (i, key) in keys.iter().map(|key| key.trim().replace('\t', " ")).enumerate() {
        if key.contains(char::is_control) {
            return Err(format!(
                "sshPublicKeys[{i}]: must be one line, without control characters"
            ));
        }
        if !key.is_empty() && !seen.contains(&key) {
            seen.push(key);
        }
    }
    Ok(seen)
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
                "sshPublicKeys": ["ssh-ed25519 AAA a\n", "ssh-ed25519\tAAA\ta", " "],
                "cloudProvider": "aws", "cloudProviderSpec": {"secretAccessKey": "hunter2"},
                "operatingSystem": "ubuntu", "operatingSystemSpec": {"distUpgradeOnBoot": true, "other": 1},
                "network": {"ipFamily": ""},
            }},
        })
    }

    #[test]
    fn the_template_digest_depends_on_what_is_rendered_and_on_no_credential() {
        let of = |change: &dyn Fn(&mut Value)| {
            let mut spec = good();
            let value = spec.pointer_mut("/providerSpec/value").unwrap();
            value["operatingSystemSpec"] =
                json!({"rhelSubscriptionManagerPassword": "a", "rhelActivationKey": {"value": "a"}});
            change(&mut spec);
            template_digest(&machine_deployment(spec, json!({})))
        };
        let with = |pointer: &str, to: Value| {
            of(&|spec: &mut Value| *spec.pointer_mut(pointer).unwrap() = to.clone())
        };
        let (before, value) = (of(&|_| ()), "/providerSpec/value/operatingSystemSpec");
        assert!(before.starts_with("v1:") && before.len() == 67);
        let secret = json!({"secretAccessKey": "hunter3"});
        assert_eq!(with("/providerSpec/value/cloudProviderSpec", secret), before);
        let subscribed = |password: Value, key: Value| json!({"rhelSubscriptionManagerPassword": password, "rhelActivationKey": key});
        let reference = json!({"secretKeyRef": {"name": "a"}});
        assert_eq!(with(value, subscribed(json!({"value": "b"}), json!("b"))), before);
        for (pointer, other) in [
            ("/versions/kubelet", json!("v1.34.3")),
            ("/providerSpec/value/sshPublicKeys", json!([])),
            ("/providerSpec/value/network", json!({"ipFamily": "IPv6"})),
            (value, subscribed(json!(""), json!("a"))),
            (value, json!({"rhelActivationKey": "a"})),
            (value, subscribed(reference, json!("a"))),
        ] {
            assert!(template_differs(&with(pointer, other), &before));
        }
        assert!(!template_differs(&before, "0123"), "a digest of other fields");
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
        assert_eq!(pool.kubelet.kube_reserved.unwrap()["memory"], "200Mi");
        assert_eq!(pool.kubelet.eviction_hard.unwrap()["memory.available"], "100Mi");
    }

    /// A place in the template and what is there, and the reason and the message, which begins with
    /// `spec.template.`.
    const REFUSED: &str = r#"
/spec/versions/kubelet 1.34 => KubeletVersionInvalid spec.versions.kubelet is a number; put it in quotes
/spec/versions/kubelet ["1.34.2"] => KubeletVersionInvalid spec.versions.kubelet is a list, expected a string
/spec/versions/kubelet {"hunter2": 1} => KubeletVersionInvalid spec.versions.kubelet is a map, expected a string
/spec/versions/kubelet null => KubeletVersionInvalid spec.versions.kubelet is missing; set it to the version
/spec/versions/kubelet "" => KubeletVersionInvalid spec.versions.kubelet is missing; set it to the version
/spec/versions/kubelet "hunter2" => KubeletVersionInvalid spec.versions.kubelet is not a version such as 1.34.2; correct it
/spec/versions "hunter2" => KubeletVersionInvalid spec.versions is a string, expected a map
/spec "hunter2" => ProviderSpecInvalid spec is a string, expected a map
/spec null => ProviderSpecInvalid spec.providerSpec.value is missing; set the cloud provider and the operating system there
/spec/providerSpec [] => ProviderSpecInvalid spec.providerSpec is a list, expected a map
/spec/providerSpec/value null => ProviderSpecInvalid spec.providerSpec.value is missing; set
/spec/providerSpec/value "hunter2" => ProviderSpecInvalid spec.providerSpec.value is a string, expected a map
/spec/providerSpec/value {"cloudProvidr": "hunter2"} => ProviderSpecInvalid spec.providerSpec.value is invalid: cloudProvidr: unknown
/spec/providerSpec/value/cloudProvider 5 => ProviderSpecInvalid spec.providerSpec.value is invalid: cloudProvider: is a number; put it
/spec/providerSpec/value/cloudProvider "hunter2" => UnknownCloudProvider spec.providerSpec.value.cloudProvider is unknown
/spec/providerSpec/value/operatingSystem {} => ProviderSpecInvalid spec.providerSpec.value is invalid: operatingSystem: is a map, expected
/spec/providerSpec/value/operatingSystem "hunter2" => UnknownOperatingSystem spec.providerSpec.value.operatingSystem is unknown
/spec/providerSpec/value/sshPublicKeys "a" => ProviderSpecInvalid spec.providerSpec.value is invalid: sshPublicKeys: is a string, expected a list
/spec/providerSpec/value/sshPublicKeys [true] => ProviderSpecInvalid spec.providerSpec.value is invalid: sshPublicKeys[0]: is a boolean; put
/spec/providerSpec/value/sshPublicKeys ["a", "hunter2\nb"] => ProviderSpecInvalid spec.providerSpec.value is invalid: sshPublicKeys[1]: must
/spec/providerSpec/value/network "hunter2" => ProviderSpecInvalid spec.providerSpec.value is invalid: network: is a string, expected a map
/spec/providerSpec/value/network {"cidr": 1, "dns": {"servers": [8.8]}} => ProviderSpecInvalid spec.providerSpec.value is invalid: network.cidr: is a number; put it in quotes; network.dns.servers[0]: is a number
/spec/providerSpec/value/operatingSystemSpec "hunter2" => ProviderSpecInvalid spec.providerSpec.value is invalid: operatingSystemSpec: is
/spec/providerSpec/value/operatingSystemSpec/distUpgradeOnBoot "hunter2" => OperatingSystemSpecInvalid spec.providerSpec.value.operatingSystemSpec is invalid: distUpgradeOnBoot: is a string, expected a boolean
/spec/providerSpec/value {"cloudProvider": "aws", "operatingSystem": "rhel", "operatingSystemSpec": {"rhelOrganizationName": 1234567, "rhelActivationKey": {"value": 5}}} => OperatingSystemSpecInvalid spec.providerSpec.value.operatingSystemSpec is invalid: rhelOrganizationName: is a number; put it in quotes; rhelActivationKey: is a number; put it in quotes
/spec/providerSpec/value {"cloudProvider": "aws", "operatingSystem": "flatcar", "operatingSystemSpec": {"provisioningUtility": "ansible"}} => OperatingSystemSpecInvalid spec.providerSpec.value.operatingSystemSpec is invalid: provisioningUtility: expected `cloud-init` or `ignition`
"#;

    #[test]
    fn each_mistake_has_its_reason_and_its_path_and_keeps_values_to_itself() {
        for case in REFUSED.trim().lines() {
            let (place, expected) = case.split_once(" => ").unwrap();
            let (path, value) = place.split_once(' ').unwrap();
            let mut md = machine_deployment(good(), json!({}));
            *md.spec.template.pointer_mut(path).unwrap() = serde_json::from_str(value).unwrap();
            let error = Pool::read(&md).unwrap_err();
            let message = error.to_string();
            let below = message.strip_prefix("spec.template.").unwrap();
            assert!(message.starts_with(&error.path), "{error:?}");
            let found = format!("{} {below}", error.reason());
            let is_good = found.starts_with(expected) && !found.contains("hunter2");
            assert!(is_good, "{case}: {found}");
        }
        for (template, problem) in [
            (json!("text"), " is a string, expected a map"),
            (json!(null), " is empty, expected a map"),
        ] {
            let md = serde_json::from_value(json!({"metadata": {}, "spec": {"template": template}})).unwrap();
            let error = Pool::read(&md).unwrap_err().to_string();
            assert!(error.starts_with(&format!("spec.template{problem}")), "{error}");
        }
        let key = format!("{}MaxPods", names::KUBELET_CONFIG_PREFIX);
        let mut md = machine_deployment(good(), json!({}));
        md.spec.template["metadata"] = json!({"annotations": {key.clone(): 50}});
        let problem = "is a number; put it in quotes; it is an annotation of spec.template";
        let error = Pool::read(&md).unwrap_err().to_string();
        assert_eq!(error, format!("annotation {key}: {problem}"));
    }

    #[test]
    fn an_annotation_that_the_kubelet_would_exit_over_is_refused() {
        /// Annotations: each a name and its value, separated by semicolons.
        fn read(annotations: &str) -> Result<Pool, PoolError> {
            let annotations = annotations.split(';').map(|one| one.split_once(' ').unwrap());
            let annotations: serde_json::Map<String, Value> = annotations
                .map(|(name, value)| (format!("{}{name}", names::KUBELET_CONFIG_PREFIX), json!(value)))
                .collect();
            Pool::read(&machine_deployment(good(), annotations.into()))
        }
        for annotations in [
            "SystemReserved cpu=200m,memory=1.5Gi,ephemeral-storage=1G,pid=1000",
            "EvictionHard memory.available<100Mi,nodefs.available<10%,imagefs.inodesFree<5%",
            "ContainerLogMaxSize 100Mi;ContainerLogMaxFiles 2",
            "MaxPods 0",
            "ImageGCHighThresholdPercent 100;ImageGCLowThresholdPercent 0",
            "ImageGCHighThresholdPercent 81",
            "ImageMinimumGCAge 0;ImageMaximumGCAge 1h30m",
            "ImageMaximumGCAge 0s",
            "PodsPerCore 77",
        ] {
            read(annotations).unwrap_or_else(|error| panic!("{annotations}: {error}"));
        }
        let equal = "ImageGCHighThresholdPercent 77;ImageGCLowThresholdPercent 77";
        // The last of the annotations is the one that the message names. The rules themselves are tested in
        // kubelet_value.
        for (annotations, problem) in [
            ("SystemReserved cpu=a77", "cpu: must be a quantity"),
            ("KubeReserved storage=77", "storage: can't be reserved"),
            ("KubeReserved cpu 77", "must be a list such as cpu=200m"),
            ("KubeReserved =77", "must be a list such as cpu=200m"),
            ("KubeReserved cpu=", "must be a list such as cpu=200m"),
            ("KubeReserved c pu=77", "must be a list such as cpu=200m"),
            ("EvictionHard memory.free<77", "is not an eviction signal"),
            ("ContainerLogMaxSize 77MB", "must be a size"),
            ("ContainerLogMaxFiles 1", "must be a whole number from 2"),
            ("MaxPods -77", "must be a whole number from 0"),
            ("MaxPods 7.7", "must be a whole number from 0"),
            ("ImageGCHighThresholdPercent 177", "from 0 to 100"),
            ("ImageGCLowThresholdPercent -77", "from 0 to 100"),
            ("ImageGCHighThresholdPercent 77", "below"),
            (equal, "below"),
            ("ImageMinimumGCAge 77 minutes", "must be a duration"),
            ("ImageMinimumGCAge -77s", "must be a duration"),
            ("ImageMaximumGCAge 77s", "longer than"),
        ] {
            let error = read(annotations).unwrap_err();
            assert_eq!(error.reason(), "AnnotationInvalid");
            let message = error.to_string();
            let (name, _) = annotations.rsplit(';').next().unwrap().split_once(' ').unwrap();
            assert!(message.contains(&format!("/{name}: ")), "{message}");
            assert!(message.contains(problem), "{message}");
            assert!(!message.contains("77"), "the value is repeated: {message}");
        }
        assert!(read(&format!("KubeReserved {}=1", "a".repeat(2000))).is_err());
    }

    #[test]
    fn flatcar_has_ignition_by_default_and_others_never() {
        let pool = |os: &str, spec: Value| {
            let mut machine = good();
            let provider = machine.pointer_mut("/providerSpec/value").unwrap();
            provider["operatingSystem"] = json!(os);
            provider["operatingSystemSpec"] = spec;
            Pool::read(&machine_deployment(machine, json!({})))
        };
        let of_empty = json!({"provisioningUtility": ""});
        let [ignition, cloud_init] =
            ["ignition", "cloud-init"].map(|name| json!({"provisioningUtility": name}));
        for (os, spec, utility) in [
            ("flatcar", Value::Null, "ignition"),
            ("flatcar", of_empty, "ignition"),
            ("flatcar", ignition.clone(), "ignition"),
            ("flatcar", cloud_init, "cloud-init"),
            ("ubuntu", ignition, "cloud-init"),
            ("rhel", Value::Null, "cloud-init"),
        ] {
            let found = pool(os, spec).unwrap().provisioning_utility().to_string();
            assert_eq!(found, utility, "{os}");
        }
        let flags =
            json!({"disableAutoUpdate": true, "disableLocksmithD": true, "disableUpdateEngine": true});
        let os = pool("flatcar", flags).unwrap().os;
        assert!(os.disable_auto_update && os.disable_locksmith_d && os.disable_update_engine);
    }

    /// A provider spec with a value in every place, also in those of other systems.
    fn everything(os: &str, cloud: &str) -> Value {
        let reference = json!({"value": "v", "secretKeyRef": {"namespace": "n", "name": "s", "key": "k"},
            "configMapKeyRef": {"namespace": "n", "name": "c", "key": "k"}});
        json!({
            "sshPublicKeys": ["ssh-ed25519 AAA a", "ssh-ed25519 BBB b"], "caPublicKey": "ssh-rsa AAA",
            "cloudProvider": cloud, "cloudProviderSpec": {"a": {"b": [null, "c"]}}, "operatingSystem": os,
            "network": {"cidr": "192.0.2.7/24", "gateway": "192.0.2.1", "dns": {"servers": ["192.0.2.2", "192.0.2.3"]}, "ipFamily": "IPv4"},
            "overwriteCloudConfig": "[Global]",
            "operatingSystemSpec": {
                "distUpgradeOnBoot": true, "disableAutoUpdate": true, "disableLocksmithD": true, "disableUpdateEngine": true,
                "provisioningUtility": "cloud-init", "attachSubscription": true, "rhelUseSatelliteServer": true,
                "rhelSatelliteServer": "satellite.example", "rhelSubscriptionManagerUser": "me", "rhsmOfflineToken": "t",
                "rhelSubscriptionManagerPassword": reference, "rhelOrganizationName": {"value": "o"}, "rhelActivationKey": reference,
            },
        })
    }

    fn with_provider(provider: &Value) -> MachineDeployment {
        let spec = json!({"versions": {"kubelet": "1.34.2"}, "providerSpec": {"value": provider}});
        machine_deployment(spec, json!({}))
    }

    /// Pointers to every field and item below a value.
    fn places(value: &Value, at: &str, found: &mut Vec<String>) {
        let below: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
            Value::Array(items) => (0..).map(|i: usize| i.to_string()).zip(items).collect(),
            _ => Vec::new(),
        };
        for (name, value) in below {
            let place = format!("{at}/{name}");
            found.push(place.clone());
            places(value, &place, found);
        }
    }

    fn without(provider: &Value, place: &str) -> Value {
        let mut provider = provider.clone();
        let (parent, name) = place.rsplit_once('/').unwrap();
        match provider.pointer_mut(parent).unwrap() {
            Value::Object(fields) => drop(fields.remove(name)),
            Value::Array(items) => drop(items.remove(name.parse().unwrap())),
            _ => unreachable!(),
        }
        provider
    }

    fn with(provider: &Value, place: &str, value: Value) -> Value {
        let mut provider = provider.clone();
        *provider.pointer_mut(place).unwrap() = value;
        provider
    }

    #[test]
    fn what_is_null_or_empty_is_absent_in_every_place() {
        use strum::IntoEnumIterator;
        let systems = ["flatcar", "rhel", "ubuntu", "amzn2", "rockylinux", "centos"];
        for (os, cloud) in systems.iter().zip(CloudProvider::iter()) {
            let provider = everything(os, cloud.as_str());
            let mut all = Vec::new();
            places(&provider, "", &mut all);
            assert!(all.len() > 40);
            all.retain(|place| !["/cloudProvider", "/operatingSystem"].contains(&place.as_str()));
            for place in &all {
                let absent = with_provider(&without(&provider, place));
                let expected = Pool::read(&absent).unwrap();
                let null = with_provider(&with(&provider, place, Value::Null));
                assert_eq!(Pool::read(&null).as_ref(), Ok(&expected), "{os}: {place}");
                let wanted = operating_system_spec_texts(&absent);
                assert_eq!(operating_system_spec_texts(&null), wanted, "{os}: {place}");
                assert_eq!(system(&null), system(&absent), "{os}: {place}");
                if !place.ends_with(|c: char| c.is_ascii_digit()) {
                    assert_eq!(template_digest(&null), template_digest(&absent), "{os}: {place}");
                }
                let empty = match provider.pointer(place).unwrap() {
                    Value::String(_) => json!(""),
                    Value::Array(_) => json!([]),
                    Value::Object(_) => json!({}),
                    _ => continue,
                };
                let empty = with_provider(&with(&provider, place, empty));
                assert_eq!(Pool::read(&empty).as_ref(), Ok(&expected), "{os}: {place}");
            }
        }
    }

    #[test]
    fn fields_of_other_systems_are_not_judged() {
        for os in ["flatcar", "rhel", "ubuntu", "amzn2", "rockylinux", "centos"] {
            let provider = everything(os, "openstack");
            let own = match os {
                "flatcar" => "disableAutoUpdate disableLocksmithD disableUpdateEngine provisioningUtility",
                // What machine-controller does not read has no type here, either.
                "rhel" => {
                    "distUpgradeOnBoot attachSubscription rhelUseSatelliteServer rhelSatelliteServer rhelSubscriptionManagerUser \
                     rhelSubscriptionManagerPassword rhelOrganizationName rhelActivationKey"
                }
                _ => "distUpgradeOnBoot",
            };
            for (field, _) in provider["operatingSystemSpec"].as_object().unwrap() {
                let place = format!("/operatingSystemSpec/{field}");
                let wrong = Pool::read(&with_provider(&with(&provider, &place, json!([7]))));
                let absent = Pool::read(&with_provider(&without(&provider, &place)));
                if own.split(' ').any(|own| own == field) {
                    assert!(wrong.unwrap_err().to_string().contains(field), "{os}: {field}");
                } else {
                    assert_eq!(wrong, absent, "{os}: {field}");
                }
            }
        }
    }

    #[test]
    fn names_of_fields_are_read_in_any_case() {
        fn renamed(value: &Value, rename: &dyn Fn(&str) -> String) -> Value {
            match value {
                Value::Object(fields) => fields
                    .iter()
                    .map(|(name, value)| (rename(name), renamed(value, rename)))
                    .collect(),
                Value::Array(items) => items.iter().map(|item| renamed(item, rename)).collect(),
                scalar => scalar.clone(),
            }
        }
        for os in ["flatcar", "rhel", "ubuntu"] {
            let provider = everything(os, "edge");
            let md = with_provider(&provider);
            let pool = Pool::read(&md).unwrap();
            for rename in [
                str::to_uppercase as fn(&str) -> String,
                str::to_lowercase,
                |name| name.replace("ssh", "SSH"),
            ] {
                let other = with_provider(&renamed(&provider, &rename));
                assert_eq!(Pool::read(&other).as_ref(), Ok(&pool));
                assert_eq!(template_digest(&other), template_digest(&md));
                let expected = operating_system_spec_texts(&md);
                assert_eq!(operating_system_spec_texts(&other), expected);
                let wanted = (system(&md), cloud_provider(&md));
                assert_eq!((system(&other), cloud_provider(&other)), wanted);
                assert_eq!(crate::machine::cloud_of_template(&other.spec.template), "edge");
                let machine: crate::machine::MachineCloud =
                    serde_json::from_value(renamed(&provider, &rename)).unwrap();
                assert_eq!(machine.cloud_provider, "edge");
            }
        }
        let both = json!({"CloudProvider": "aws", "cloudProvider": "edge", "operatingSystem": "ubuntu"});
        let pool = Pool::read(&with_provider(&both)).unwrap();
        assert_eq!(pool.cloud_provider, CloudProvider::Edge);
        let unknown = json!({"cloudProvider": "aws", "operatingSystem": "ubuntu", "cloudProviders": 1});
        assert!(Pool::read(&with_provider(&unknown)).is_err());
    }

    #[test]
    fn a_kubelet_annotation_without_a_value_is_absent() {
        let plain = Pool::read(&machine_deployment(good(), json!({}))).unwrap();
        for row in KUBELET_ANNOTATIONS {
            for empty in [json!(""), json!(" "), Value::Null] {
                let annotations = json!({row.key(): empty});
                let mut md = machine_deployment(good(), json!({}));
                md.spec.template["metadata"] = json!({"annotations": annotations});
                assert_eq!(Pool::read(&md).as_ref(), Ok(&plain), "{}: {empty}", row.name);
                // A value in the other place counts.
                md.metadata.annotations = Some([(row.key(), row.example.to_owned())].into());
                let set = Pool::read(&md).unwrap();
                assert_ne!(set.kubelet, plain.kubelet);
                if let Some(empty) = empty.as_str() {
                    md.metadata.annotations = Some([(row.key(), empty.to_owned())].into());
                    assert_eq!(Pool::read(&md).as_ref(), Ok(&plain), "{}", row.name);
                    md.spec.template["metadata"] = json!({"annotations": {row.key(): row.example}});
                    assert_eq!(Pool::read(&md).as_ref(), Ok(&set), "{}", row.name);
                }
            }
        }
        let pairs = |text: &str| {
            let key = format!("{}KubeReserved", names::KUBELET_CONFIG_PREFIX);
            Pool::read(&machine_deployment(good(), json!({key: text}))).map(|pool| pool.kubelet.kube_reserved)
        };
        assert_eq!(pairs("cpu=1,").unwrap(), pairs("cpu=1").unwrap());
        assert_eq!(pairs(" , cpu=1,,").unwrap(), pairs("cpu=1").unwrap());
        assert_eq!(pairs(","), Ok(None));
    }

    #[test]
    fn short_versions_are_versions() {
        assert_eq!(parse_version("1.34").unwrap().to_string(), "1.34.0");
        assert_eq!(parse_version("v1.34-rc.1").unwrap().to_string(), "1.34.0-rc.1");
        assert_eq!(parse_version("1"), None);
    }
}
