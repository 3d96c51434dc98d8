//! What this controller keeps of the objects that it watches: what decisions need, and no credential.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use osm_api::config::{
    LateBound, MachineDeploymentRef, OperatingSystemConfig, OperatingSystemConfigStatus, Rendered,
};
use osm_api::profile::CloudProvider;
use osm_api::{condition, digest, names};

/// An OperatingSystemConfig without its content.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigView {
    /// Name.
    pub name: String,
    /// uid.
    pub uid: String,
    /// resourceVersion, for writes of the status that must not hit another state or a successor.
    pub resource_version: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// uid of the cluster that it was made for; absent on objects of the Go implementation.
    pub made_in: Option<String>,
    /// The pool; absent on objects of the Go implementation.
    pub machine_deployment: Option<MachineDeploymentRef>,
    /// Whether its machines are of provider `edge`, for which there is a script.
    pub is_edge: bool,
    /// What has to be filled in.
    pub late_bound: Vec<LateBound>,
    /// Status.
    pub status: OperatingSystemConfigStatus,
    /// For Events.
    pub reference: ObjectReference,
}

impl ConfigView {
    /// Drops the content.
    pub fn of(config: &OperatingSystemConfig) -> Self {
        Self {
            name: config.name_any(),
            uid: config.uid().unwrap_or_default(),
            resource_version: config.resource_version().unwrap_or_default(),
            generation: config.metadata.generation.unwrap_or(0),
            made_in: config.annotations().get(names::CLUSTER_UID).cloned(),
            machine_deployment: config.spec.machine_deployment.clone(),
            is_edge: config
                .spec
                .cloud_provider
                .as_ref()
                .is_some_and(|cloud| cloud.name == CloudProvider::Edge),
            late_bound: config.spec.late_bound.clone(),
            status: config.status.clone().unwrap_or_default(),
            reference: config.object_ref(&()),
        }
    }

    /// What other controllers, and people, write.
    pub fn of_others(&self) -> impl PartialEq {
        let status = &self.status;
        (self.uid.clone(), self.generation, status.rendered.clone(), status.retired.clone())
    }

    /// What osc-controller vouches for, if it is what stands there.
    pub fn vouched(&self) -> Option<&Rendered> {
        self.status.rendered.as_ref().filter(|rendered| rendered.generation == self.generation)
    }

    /// Whether osc-controller knows a pool to which it belongs.
    pub fn is_claimed(&self) -> bool {
        condition::find(&self.status.conditions, condition::RENDERED).is_some()
    }

    /// Whether its pool is gone.
    pub fn is_retired(&self) -> bool {
        let uid = self.machine_deployment.as_ref().map(|md| md.uid.as_str());
        self.status.retired.as_ref().is_some_and(|retired| Some(retired.uid.as_str()) == uid)
    }

    /// Whether it already says that everything is undone.
    pub fn is_undone(&self) -> bool {
        condition::find(&self.status.conditions, condition::PUBLISHED)
            .is_some_and(|published| published.reason == condition::REASON_UNDONE)
    }

    /// `uid/generation`, as recorded on the bootstrap Secret.
    pub fn published_from(&self) -> String {
        format!("{}/{}", self.uid, self.generation)
    }
}

/// Metadata that every view has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// Name.
    pub name: String,
    /// uid.
    pub uid: String,
    /// resourceVersion, for writes that must not hit a newer state.
    pub resource_version: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Meta {
    fn of(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            labels: meta.labels.clone().unwrap_or_default(),
            annotations: meta.annotations.clone().unwrap_or_default(),
        }
    }

    /// Pool that the object was made for.
    pub fn pool(&self) -> Option<&str> {
        self.labels.get(names::POOL).map(String::as_str)
    }

    /// Name of the OperatingSystemConfig that the object was made for.
    pub fn config(&self) -> Option<&str> {
        self.annotation(names::CONFIG)
    }

    /// An annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.get(key).map(String::as_str)
    }

    /// An annotation that is a time.
    pub fn time(&self, key: &str) -> Option<Timestamp> {
        self.annotation(key)?.parse().ok()
    }
}

/// A Secret of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SecretView {
    /// Metadata.
    pub meta: Meta,
    /// SHA-256 of the document or script that is all that stands in it, 64 hex characters; kept in memory only.
    pub content: Option<String>,
    /// Whether its data can't be changed.
    pub immutable: bool,
    /// The HMAC key, only on the Secret that holds it.
    pub key: Option<crate::key::DigestKey>,
}

impl SecretView {
    /// Reduces a Secret to what decisions need.
    pub fn of(secret: &Secret) -> Self {
        let meta = Meta::of(&secret.metadata);
        let data = secret.data.as_ref();
        let is_key = meta.labels.get(names::ROLE).map(String::as_str) == Some(ROLE_KEY);
        let key = data
            .filter(|_| is_key)
            .and_then(|data| data.get(KEY))
            .and_then(|key| crate::key::DigestKey::of(&key.0));
        Self {
            content: data
                .filter(|data| data.len() == 1)
                .and_then(|data| data.get(names::CLOUD_CONFIG_KEY).or(data.get(names::EDGE_SCRIPT_KEY)))
                .map(|document| digest::sha256_hex(&document.0)),
            immutable: secret.immutable.unwrap_or(false),
            key,
            meta,
        }
    }

    /// Whether it is for this purpose ([`ROLE_BOOTSTRAP`], [`ROLE_PROVISIONING`], [`ROLE_EDGE_SCRIPT`]).
    pub fn is(&self, role: &str) -> bool {
        self.meta.labels.get(names::ROLE).map(String::as_str) == Some(role)
    }
}

/// Value of the label [`names::ROLE`] on bootstrap Secrets.
pub const ROLE_BOOTSTRAP: &str = "bootstrap";
/// Value of the label [`names::ROLE`] on provisioning Secrets.
pub const ROLE_PROVISIONING: &str = "provisioning";
/// Value of the label [`names::ROLE`] on Secrets with the script of an edge pool.
pub const ROLE_EDGE_SCRIPT: &str = "edge-script";
/// Value of the label [`names::ROLE`] on the Secret with the HMAC key.
pub const ROLE_KEY: &str = "digest-key";
/// Value of the label [`names::ROLE`] on a pool's ServiceAccount, Role and RoleBinding.
pub const ROLE_IDENTITY: &str = "identity";
/// Value of the label [`names::ROLE`] on bootstrap tokens.
pub const ROLE_BOOTSTRAP_TOKEN: &str = "bootstrap-token";
/// Key in the Secret with the HMAC key.
pub const KEY: &str = "key";

/// A ServiceAccount.
pub fn account(account: &ServiceAccount) -> Meta {
    Meta::of(&account.metadata)
}

/// A Role of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleView {
    /// Metadata.
    pub meta: Meta,
    /// Names of the Secrets that it opens; `None`: it says anything else than it should.
    pub secrets: Option<Vec<String>>,
}

impl RoleView {
    /// Reduces a Role to what decisions need.
    pub fn of(role: &Role) -> Self {
        let names = match role.rules.as_deref() {
            Some([rule]) => rule.resource_names.clone(),
            _ => None,
        };
        let secrets = names.filter(|names| role.rules == Some(vec![crate::apply::rule(names)]));
        Self { meta: Meta::of(&role.metadata), secrets }
    }
}

/// A RoleBinding of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BindingView {
    /// Metadata.
    pub meta: Meta,
    /// Whether it binds the pool's Role to the pool's ServiceAccount and nothing else.
    pub good: bool,
}

impl BindingView {
    /// Reduces a RoleBinding to what decisions need.
    pub fn of(binding: &RoleBinding) -> Self {
        let name = binding.name_any();
        let good = binding.role_ref == crate::apply::role_ref(&name)
            && binding.subjects == Some(vec![crate::apply::subject(&name)]);
        Self { meta: Meta::of(&binding.metadata), good }
    }
}
