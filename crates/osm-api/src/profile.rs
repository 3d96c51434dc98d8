//! The OperatingSystemProfile custom resource: a template for one operating system.
//!
//! Manifests of the upstream OSM apply unchanged: every field that it did not have is optional.

// `kube` takes `type_` once for every printer column.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::files_and_units::{DropIn, File, FileContent, InlineContent, Unit};
use crate::preserved::preserved_object;
pub use crate::profile_config::{
    Commands, ContainerRuntime, ContainerRuntimeName, ProfileConfig, ProfileFile, ProfileUnit, SysctlValue,
};

/// Largest resolved profile, and largest content of an OperatingSystemConfig, in bytes of JSON. etcd refuses
/// objects above 1.5 MiB, and a profile's status holds a copy of its content.
pub const MAX_CONTENT_BYTES: usize = 512 * 1024;

/// Bytes that the API server needs in etcd for a text that is JSON: its encoder writes `<`, `>`, `&` and the
/// two line separators of Unicode as `\uXXXX`. What it can't store would be written again and again.
pub fn stored_json_bytes(json: &str) -> usize {
    let longer = json.chars().map(|c| match c {
        '<' | '>' | '&' => 5,
        '\u{2028}' | '\u{2029}' => 3,
        _ => 0,
    });
    json.len() + longer.sum::<usize>()
}

/// The templates from which the configuration of every pool that uses this profile is rendered.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "operatingsystemmanager.k8c.io",
    version = "v1alpha1",
    kind = "OperatingSystemProfile",
    plural = "operatingsystemprofiles",
    shortname = "osp",
    category = "osm",
    namespaced,
    status = "OperatingSystemProfileStatus",
    doc = "OperatingSystemProfile is a template from which the configuration of new worker nodes is rendered.",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "True while pools can use an accepted version."
    ),
    printcolumn(name = "OS", type_ = "string", json_path = ".spec.osName"),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Accepted\")].reason",
        description = "Accepted, or the reason why the newest edit is refused."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Engine",
        type_ = "string",
        json_path = ".spec.templateEngine",
        priority = 1
    ),
    printcolumn(
        name = "In-Use",
        type_ = "string",
        json_path = ".status.accepted.version",
        description = "The accepted version, which pools use.",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.status==\"False\")].message",
        description = "Why the newest edit is refused. It is empty if there is no problem.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "!has(oldSelf.version) || self == oldSelf || self.version != oldSelf.version",
    "a profile's spec changes only together with spec.version: give the changed profile a new version"
))]
pub struct OperatingSystemProfileSpec {
    /// Operating system of the pools that this profile is for.
    pub os_name: OperatingSystem,
    /// Version of the operating system. It is for information only.
    pub os_version: String,
    /// Version of this profile, `v` and a semantic version. Every change of the spec needs a new one.
    #[schemars(regex(
        pattern = r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$"
    ))]
    pub version: String,
    /// Cloud providers that this profile is for.
    pub supported_cloud_providers: Vec<SupportedCloudProvider>,
    /// Content of the document that the cloud passes to a new machine. It fetches and applies the
    /// provisioning document.
    #[serde(default)]
    pub bootstrap_config: ProfileConfig,
    /// Content of the document that makes the machine a worker node.
    #[serde(default)]
    pub provisioning_config: ProfileConfig,
    /// The program on the machine that reads both documents.
    #[serde(default)]
    pub provisioning_utility: ProvisioningUtility,
    /// Language of the templates. The default is Go's text/template.
    #[serde(default)]
    pub template_engine: TemplateEngine,
    /// Name of the profile that this one extends: one in the same namespace, or else in the namespace of the
    /// installation. This profile adds to it. Fields whose names start with `replace` or `remove` replace or
    /// remove parts of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<String>,
}

/// An operating system, spelled as machine-controller does.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::EnumIter, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[allow(missing_docs)]
pub enum OperatingSystem {
    Flatcar,
    Rhel,
    Ubuntu,
    Amzn2,
    RockyLinux,
    CentOs,
}

impl OperatingSystem {
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Whether a profile for `self` fits a pool of `pool`: rhel, rockylinux and centos fit one another.
    pub fn fits(self, pool: Self) -> bool {
        let rhel_like = |os| matches!(os, Self::Rhel | Self::RockyLinux | Self::CentOs);
        self == pool || (rhel_like(self) && rhel_like(pool))
    }
}

/// A cloud provider, spelled as machine-controller does.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
#[derive(strum::Display, strum::EnumIter, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[allow(missing_docs)]
pub enum CloudProvider {
    Alibaba,
    Anexia,
    Aws,
    Azure,
    Baremetal,
    Digitalocean,
    Edge,
    Equinixmetal,
    External,
    Fake,
    Gce,
    Hetzner,
    Kubevirt,
    Linode,
    Nutanix,
    Opennebula,
    Openstack,
    Packet,
    Scaleway,
    #[serde(rename = "vmware-cloud-director")]
    #[strum(serialize = "vmware-cloud-director")]
    VmwareCloudDirector,
    Vsphere,
    Vultr,
}

impl CloudProvider {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The program on the machine that reads both documents.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::EnumIter, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ProvisioningUtility {
    /// cloud-init.
    #[default]
    CloudInit,
    /// Ignition.
    Ignition,
}

impl ProvisioningUtility {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Language of a profile's templates.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TemplateEngine {
    /// Go's text/template with sprig, as in every profile of the upstream OSM.
    #[default]
    GoTemplate,
    /// Handlebars: files, units and module strings are templates.
    Handlebars,
    /// No templates: everything is taken verbatim.
    None,
}

/// A cloud provider that a profile supports.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct SupportedCloudProvider {
    /// Name of the cloud provider.
    pub name: CloudProvider,
    /// Not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "preserved_object")]
    pub spec: Option<Value>,
}

/// The result of the validation by osp-controller.
// Tools such as Flux take an object that reports nothing for one that is up to date. The default tells them
// that it is not.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("default" = {"observedGeneration": -1}))]
pub struct OperatingSystemProfileStatus {
    /// Generation of the spec that the conditions refer to; -1 before osp-controller has validated the
    /// profile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted` and `Ready`, owned by osp-controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The last profile that was accepted. A refused edit does not change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<AcceptedProfile>,
}

/// A profile that osp-controller accepted, as it is rendered.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AcceptedProfile {
    /// `spec.version` of the profile, and those of the profiles that it extends: `v1.0.0 on osp-ubuntu
    /// v1.3.2`.
    pub version: String,
    /// SHA-256 of `spec`, in 64 hex characters.
    pub digest: String,
    /// Language of the templates.
    pub template_engine: TemplateEngine,
    /// Version of the template library that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_version: Option<String>,
    /// The profiles that it extends, the nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parents: Vec<ParentProfile>,
    /// The resolved profile.
    pub spec: AcceptedSpec,
}

/// A profile that an accepted profile extends.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct ParentProfile {
    /// Namespace of the profile.
    pub namespace: String,
    /// Name of the profile.
    pub name: String,
    /// `spec.version` of the profile.
    pub version: String,
    /// SHA-256 of its spec, in 64 hex characters.
    pub digest: String,
}

/// The part of a resolved profile that rendering reads. Its schema is left open, so that a status never fails
/// validation for what a later version adds.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(transparent)]
pub struct AcceptedSpec(pub OperatingSystemProfileSpec);

impl JsonSchema for AcceptedSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AcceptedSpec".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        preserved_object(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_as_the_server_stores_them() {
        assert_eq!(stored_json_bytes("a\\n<ä&\u{2028}"), 1 + 2 + 6 + 2 + 6 + 6);
    }

    #[test]
    fn names_in_messages_are_names_in_manifests() {
        use strum::IntoEnumIterator;
        fn check<T: IntoEnumIterator + Serialize + std::fmt::Display>(as_str: fn(T) -> &'static str) {
            for value in T::iter() {
                assert_eq!(serde_json::to_value(&value).unwrap(), value.to_string());
                assert_eq!(value.to_string(), as_str(value));
            }
        }
        check(OperatingSystem::as_str);
        check(CloudProvider::as_str);
        check(ProvisioningUtility::as_str);
    }
}
