//! The OperatingSystemConfig custom resource: the rendered instance of a profile, one per MachineDeployment.
//!
//! The spec says which pool it is for, and `status.rendered` holds the documents. The form of the upstream
//! OSM stays valid, and is read until osc-controller converts it, so every field is optional.
//! [`crate::content`] knows which field holds what.

// `kube` takes `type_` once for every printer column.
#![allow(clippy::duplicated_attributes)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::pool_ref::PoolRef;
use crate::preserved::preserved_object;
use crate::profile::{CloudProvider, File, OperatingSystem, ProvisioningUtility, TemplateEngine, Unit};

/// The pool that the object is for. The other fields are those of objects that the upstream OSM has written.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "operatingsystemmanager.k8c.io",
    version = "v1alpha1",
    kind = "OperatingSystemConfig",
    plural = "operatingsystemconfigs",
    shortname = "osc",
    category = "osm",
    namespaced,
    status = "OperatingSystemConfigStatus",
    doc = "OperatingSystemConfig is the rendered configuration of the nodes of one MachineDeployment.",
    derive = "PartialEq",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "True while new machines can boot with what is published."
    ),
    printcolumn(
        name = "Profile",
        type_ = "string",
        json_path = ".status.profile.name",
        description = "The profile that the pool asks for."
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.rendered.profile.version",
        description = "The version of the profile that was rendered last."
    ),
    printcolumn(name = "Revision", type_ = "string", json_path = ".status.rendered.revision"),
    printcolumn(
        name = "Rendered",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Rendered\")].reason",
        description = "Rendered, or the reason why the newest content is not rendered."
    ),
    printcolumn(
        name = "Published",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Published\")].reason",
        description = "Published, or the reason why the newest content is not published."
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Expires",
        type_ = "string",
        json_path = ".status.published.credentialExpirationTime",
        priority = 1
    ),
    printcolumn(
        name = "Content",
        type_ = "string",
        json_path = ".status.rendered.contentID",
        description = "Label operatingsystemmanager.k8c.io/content of Nodes that booted with it.",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.status==\"False\")].message",
        description = "What the pool waits for. It is empty if there is no problem.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = (
    "!has(oldSelf.poolRef) || has(self.poolRef) && self.poolRef == oldSelf.poolRef",
    "an OperatingSystemConfig belongs to one pool and cannot move; osc-controller creates another object for another pool"
))]
pub struct OperatingSystemConfigSpec {
    /// The object that defines the pool. It never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool_ref: Option<PoolRef>,
    /// Operating system of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_name: Option<OperatingSystem>,
    /// Version of the operating system that the profile names. It is for information only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub os_version: String,
    /// Cloud provider of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_provider: Option<CloudProviderRef>,
    /// Content of the document that the cloud passes to a new machine.
    #[serde(default, skip_serializing_if = "StageConfig::is_empty")]
    pub bootstrap_config: StageConfig,
    /// Content of the document that makes the machine a worker node.
    #[serde(default, skip_serializing_if = "StageConfig::is_empty")]
    pub provisioning_config: StageConfig,
    /// The program on the machine that reads both documents.
    #[serde(default, skip_serializing_if = "is_default")]
    pub provisioning_utility: ProvisioningUtility,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Cloud provider of a pool.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct CloudProviderRef {
    /// Name of the cloud provider.
    pub name: CloudProvider,
    /// Exists for objects of the upstream OSM. It can hold cloud credentials, so osc-controller never writes
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "preserved_object")]
    pub spec: Option<Value>,
}

/// One rendered stage.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct StageConfig {
    /// systemd units on the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<Unit>,
    /// Files on the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    /// SSH public keys of the default user, one line for each key.
    #[serde(default, rename = "userSSHKeys", skip_serializing_if = "Vec::is_empty")]
    pub user_ssh_keys: Vec<String>,
    /// Further cloud-init modules, by their names in a cloud-config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "preserved_object")]
    pub modules: Option<Value>,
}

impl StageConfig {
    pub fn is_empty(&self) -> bool {
        is_default(self)
    }
}

/// The profile behind an OperatingSystemConfig.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileRef {
    /// Namespace of the profile.
    pub namespace: String,
    /// Name of the profile.
    pub name: String,
    /// Version of the accepted profile, with the versions of the profiles that it extends.
    pub version: String,
    /// Digest of the accepted profile.
    pub digest: String,
    /// Language of its templates.
    #[serde(default)]
    pub template_engine: TemplateEngine,
}

/// The value that a marker in the content means.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct LateBound {
    /// Name that the marker carries, such as `api/token`.
    pub id: String,
    /// Where the value comes from.
    pub kind: LateBoundKind,
    /// The object that holds the value, for kinds that read an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<LateBoundSource>,
}

/// Where a late-bound value comes from.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LateBoundKind {
    /// Token with which the node reads the pool's Secrets.
    APIToken,
    /// Token with which the kubelet requests its client certificate.
    KubeletToken,
    /// Name of the provisioning Secret.
    ProvisioningSecretName,
    /// Key of the provisioning Secret whose value is the document, compressed by gzip. If no document of the
    /// pool refers to it, the document is not compressed, and its key is `cloud-config`.
    ProvisioningKey,
    /// SHA-256 of the provisioning document, 64 hex characters.
    ProvisioningDigest,
    /// Name of the Secret with the kubeconfig with which the kubelet requests its client certificate.
    KubeconfigSecretName,
    /// Id of the pool, 20 hex characters.
    PoolID,
    /// Id of the content, as [`Stored::content_id`].
    ContentID,
    /// User name for a registry, from a Secret.
    RegistryUsername,
    /// Password for a registry, from a Secret.
    RegistryPassword,
    /// URL of the proxy with the user name and password of a Secret.
    ProxyURL,
    /// A key of a Secret.
    SecretKey,
    /// A key of a Secret that the profile names.
    ProfileSecretKey,
    /// A key of a ConfigMap.
    ConfigMapKey,
    /// A field of the `operatingSystemSpec` of the pool's own MachineDeployment.
    OperatingSystemSpecField,
}

/// The object that holds a late-bound value.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LateBoundSource {
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Key in the object. For registry credentials it is the host of the registry, and for the proxy its URL.
    pub key: String,
}

/// What osc-controller and secret-syncer report. It holds digests and references, and never a credential.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct OperatingSystemConfigStatus {
    /// `Rendered` and `Current` are owned by osc-controller, `Published` and `Ready` by secret-syncer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// The profile that the pool asks for, even if the pool cannot be rendered. Owned by osc-controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<RequestedProfile>,
    /// What may be published. Owned by osc-controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendered: Option<Stored>,
    /// What the Secrets hold. Owned by secret-syncer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
    /// The pool is gone, and everything created for it is to be deleted. Owned by osc-controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retired: Option<Retired>,
}

/// The profile that a pool asks for. It may not exist.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct RequestedProfile {
    /// Namespace of the profile.
    pub namespace: String,
    /// Name of the profile.
    pub name: String,
}

/// What osc-controller has rendered: the documents of the pool, and what they are for. One write carries all
/// of it.
// As one value, a server-side apply also removes what other clients have added to it.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-map-type" = "atomic"))]
pub struct Stored {
    /// SHA-256 of the documents, of what their markers mean and of the revision, in 64 hex characters.
    pub digest: String,
    /// First 16 hex characters of the SHA-256 of the documents and of what their markers mean, which is the
    /// value of the label `operatingsystemmanager.k8c.io/content` of Nodes that booted with it.
    #[serde(default, rename = "contentID", skip_serializing_if = "Option::is_none")]
    pub content_id: Option<String>,
    /// Revision of the MachineDeployment. It is absent before machine-controller sets the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// SHA-256 of the part of `spec.template` that the documents were rendered from. It does not depend on
    /// credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_digest: Option<String>,
    /// Generation of the MachineDeployment when it was first rendered with this template. A lower one shows
    /// that etcd was restored since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_generation: Option<i64>,
    /// The profile that the documents were rendered from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileRef>,
    /// SHA-256 of the settings document that they were rendered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_digest: Option<String>,
    /// Address of the API server that they were rendered with, such as `https://host:port`. It stays while
    /// the cluster names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<String>,
    /// Sizes of the documents, with every late-bound value at its largest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data_bytes: Option<UserDataBytes>,
    /// Operating system of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os_name: Option<OperatingSystem>,
    /// Name of the cloud provider of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_provider: Option<CloudProvider>,
    /// The program on the machine that reads both documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning_utility: Option<ProvisioningUtility>,
    /// The document that the cloud passes to a new machine: JSON with files and units, compressed with gzip,
    /// in Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<String>,
    /// The document that makes the machine a worker node, in the same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioning: Option<String>,
    /// The value that each marker in the documents represents. secret-syncer replaces the markers with these
    /// values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub late_bound_values: Vec<LateBound>,
    /// Kubeconfig with which kubelets of the pool request their client certificates, with a marker instead of
    /// the token. It is present if a machine fetches it from a Secret, whose name is the late-bound value of
    /// kind `KubeconfigSecretName`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_kubeconfig: Option<String>,
    /// Whether machines fetch a token after the bootstrap document. secret-syncer then also publishes a
    /// Secret with a kubeconfig.
    #[serde(default, skip_serializing_if = "is_default")]
    pub needs_kubeconfig_secret: bool,
}

/// Sizes in bytes.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserDataBytes {
    /// Size of the bootstrap document, as the cloud counts it.
    pub bootstrap: i64,
    /// Size of the provisioning document.
    pub provisioning: i64,
}

/// What secret-syncer has published.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// `rendered.digest` of the content.
    pub digest: String,
    /// Revision on the bootstrap Secret.
    pub revision: String,
    /// Name of the bootstrap Secret in `cloud-init-settings`.
    pub bootstrap_secret: String,
    /// Name of the provisioning Secret in `cloud-init-settings`.
    pub provisioning_secret: String,
    /// When the first of the pool's credentials expires, in RFC 3339. They are renewed long before.
    pub credential_expiration_time: String,
}

/// A pool that is gone.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct Retired {
    /// uid of the MachineDeployment.
    pub uid: String,
    /// `metadata.generation` of the OperatingSystemConfig when the pool was found to be gone.
    pub generation: i64,
}
