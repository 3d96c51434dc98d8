//! Views of the watched objects. They keep what decisions need, and no credential.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use litemap::LiteMap;
use osm_api::config::{LateBound, OperatingSystemConfig, OperatingSystemConfigStatus, Published, Stored};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::profile::CloudProvider;
use osm_api::{PoolRef, condition};
use osm_runtime::object::Unreadable;

use crate::model::record::{RECORDED, content_digest, of_entries};

/// An OperatingSystemConfig without its content.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigView {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    /// Fences writes of the status, so that they hit neither another state nor a successor.
    pub resource_version: String,
    pub generation: i64,
    /// uid of the cluster that it was made for; absent on objects of the upstream OSM.
    pub made_in: Option<String>,
    /// The pool; absent on objects of the upstream OSM, and where the pool is another config's.
    pub machine_deployment: Option<PoolRef>,
    /// The config that has its pool. Another client has created this one, and would get what belongs to that
    /// pool.
    pub pool_is_of: Option<String>,
    /// Machines of provider `edge` are set up by a script.
    pub is_edge: bool,
    /// Its machines fetch a kubeconfig Secret.
    pub needs_kubeconfig_secret: bool,
    pub late_bound_values: Vec<LateBound>,
    /// Whether osc-controller knows the pool of this config.
    pub is_claimed: bool,
    /// Only the conditions that this controller owns, and of what is rendered only what identifies it.
    pub status: OperatingSystemConfigStatus,
    /// Why it can't be decoded. The other fields have what can be.
    pub unreadable: Option<String>,
}

impl ConfigView {
    pub fn of(config: &OperatingSystemConfig) -> Self {
        let (name, stored) = (config.name_any(), config.stored());
        let owner = config.pool().map(PoolRef::config_name);
        let pool_is_of = owner.filter(|owner| *owner != name);
        let pool = config.pool().filter(|_| pool_is_of.is_none());
        let status = config.status.as_ref();
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        let is_ours = |type_: &str| [condition::PUBLISHED, condition::READY].contains(&type_);
        let of_us = conditions.iter().filter(|condition| is_ours(&condition.type_));
        Self {
            namespace: config.namespace().unwrap_or_default(),
            uid: config.uid().unwrap_or_default(),
            resource_version: config.resource_version().unwrap_or_default(),
            generation: config.metadata.generation.unwrap_or(0),
            made_in: config.annotations().get(names::CLUSTER_UID).cloned(),
            machine_deployment: pool.cloned(),
            is_edge: stored.and_then(|stored| stored.cloud_provider) == Some(CloudProvider::Edge),
            needs_kubeconfig_secret: stored.is_some_and(|stored| stored.needs_kubeconfig_secret),
            late_bound_values: stored
                .map(|stored| stored.late_bound_values.clone())
                .unwrap_or_default(),
            pool_is_of,
            unreadable: None,
            is_claimed: condition::find(conditions, condition::RENDERED).is_some(),
            status: OperatingSystemConfigStatus {
                conditions: of_us.cloned().collect(),
                profile: None,
                rendered: stored.map(|stored| Stored {
                    digest: stored.digest.clone(),
                    revision: stored.revision.clone(),
                    ..Stored::default()
                }),
                published: status.and_then(|status| status.published.clone()),
                retired: status.and_then(|status| status.retired.clone()),
            },
            name,
        }
    }

    pub fn unreadable(unreadable: &Unreadable) -> Self {
        let mut config = OperatingSystemConfig::new("", unreadable.part("spec"));
        config.metadata = unreadable.metadata.clone();
        config.status = Some(unreadable.part("status"));
        Self {
            unreadable: Some(unreadable.problem.clone()),
            ..Self::of(&config)
        }
    }

    /// For Events. The config is in this namespace.
    pub fn reference(&self, namespace: &str) -> ObjectReference {
        ObjectReference {
            api_version: Some(OperatingSystemConfig::api_version(&()).into_owned()),
            kind: Some(OperatingSystemConfig::kind(&()).into_owned()),
            name: Some(self.name.clone()),
            namespace: Some(namespace.to_owned()),
            uid: Some(self.uid.clone()),
            resource_version: Some(self.resource_version.clone()),
            ..ObjectReference::default()
        }
    }

    /// What other writers change: osc-controller, and users.
    pub fn foreign_fields(&self) -> impl PartialEq {
        let status = &self.status;
        (
            self.uid.clone(),
            self.generation,
            status.rendered.clone(),
            status.retired.clone(),
        )
    }

    /// What may be published: what osc-controller rendered, of a pool that exists.
    pub fn to_publish(&self) -> Option<&Stored> {
        self.status.rendered.as_ref().filter(|_| !self.is_retired())
    }

    pub fn is_retired(&self) -> bool {
        let uid = self.machine_deployment.as_ref().map(|md| md.uid.as_str());
        self.status
            .retired
            .as_ref()
            .is_some_and(|retired| Some(retired.uid.as_str()) == uid)
    }

    /// Whether the condition already says that everything is deleted.
    pub fn is_torn_down(&self) -> bool {
        condition::find(&self.status.conditions, condition::PUBLISHED)
            .is_some_and(|published| condition::REASON_DELETED == *published.reason)
    }

    /// Identifies this config and its content: `uid/digest`.
    pub fn content_id(&self) -> String {
        let rendered = self.status.rendered.as_ref();
        let digest = rendered.map_or("", |rendered| rendered.digest.as_str());
        format!("{}/{digest}", self.uid)
    }
}

/// Labels or annotations. The keys are those of `READ`: the caches hold the metadata of every object of every
/// pool. A sorted list, since a BTreeMap of two pairs has room for eleven.
pub type Pairs = LiteMap<&'static str, String>;

/// Labels and annotations that are read besides [`RECORDED`], or compared with those of
/// [`Ownership`](crate::model::existing::Ownership).
const READ: [&str; 7] = [
    names::POOL,
    names::INSTALLATION,
    names::ROLE,
    names::CONFIG,
    names::OWNER,
    names::MANAGEMENT_CLUSTER_UID,
    names::KEEP_UNTIL,
];

fn read(all: Option<&BTreeMap<String, String>>) -> Pairs {
    let mut ours = names::only_ours(all);
    READ.iter()
        .chain(&RECORDED)
        .filter_map(|name| Some((*name, ours.remove(*name)?)))
        .collect()
}

/// Metadata that every view has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    pub name: String,
    pub uid: String,
    /// Fences writes, so that they don't hit a newer state.
    pub resource_version: String,
    pub labels: Pairs,
    pub annotations: Pairs,
}

impl Meta {
    /// What the status says of a pool whose bootstrap Secret this is; `None`: it lacks an annotation.
    pub fn published(&self, digest: &str) -> Option<Published> {
        Some(Published {
            digest: digest.to_owned(),
            revision: self.annotation(names::MACHINE_DEPLOYMENT_REVISION)?.to_owned(),
            bootstrap_secret: self.name.clone(),
            provisioning_secret: self.annotation(names::PROVISIONING_SECRET)?.to_owned(),
            credential_expiration_time: self.time(names::EXPIRES)?.to_string(),
        })
    }

    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone().unwrap_or_default(),
            labels: read(meta.labels.as_ref()),
            annotations: read(meta.annotations.as_ref()),
        }
    }

    /// Pool that the object was made for.
    pub fn pool(&self) -> Option<&str> {
        self.label(names::POOL)
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }

    /// Name of the OperatingSystemConfig that the object was made for.
    pub fn config(&self) -> Option<&str> {
        self.annotation(names::CONFIG)
    }

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
    pub meta: Meta,
    /// For a provisioning Secret: [`of_entries`].
    pub entries: String,
    /// Whether data and annotations are as they were written together, as the data says.
    pub is_intact: bool,
    pub immutable: bool,
}

impl SecretView {
    pub fn of(secret: &Secret) -> Self {
        let meta = Meta::of(&secret.metadata);
        let none = BTreeMap::new();
        let data = secret.data.as_ref().unwrap_or(&none);
        let is_provisioning = meta.name.starts_with(names::PROVISIONING_PREFIX);
        let digest = data.get(names::CONTENT_DIGEST_KEY);
        let is_intact = digest
            .is_some_and(|digest| digest.0 == content_digest(data, |name| meta.annotation(name)).as_bytes());
        Self {
            entries: if is_provisioning {
                of_entries(data)
            } else {
                String::new()
            },
            is_intact,
            immutable: secret.immutable.unwrap_or(false),
            meta,
        }
    }

    /// Whether it is for this purpose, such as [`PURPOSE_BOOTSTRAP`].
    pub fn is(&self, purpose: &str) -> bool {
        self.meta.label(names::ROLE) == Some(purpose)
    }
}

// Values of the label [`names::ROLE`].

pub const PURPOSE_BOOTSTRAP: &str = "bootstrap";
pub const PURPOSE_PROVISIONING: &str = "provisioning";
pub const PURPOSE_KUBECONFIG: &str = "kubeconfig";
pub const PURPOSE_EDGE_SCRIPT: &str = "edge-script";
/// Of the Secret that tokens of a pool are bound to which a version before 0.1.0 issued.
pub const PURPOSE_TOKEN_BINDING: &str = "token-binding";
/// Of a pool's ServiceAccount, Role and RoleBinding.
pub const PURPOSE_IDENTITY: &str = "identity";

pub fn account(account: &ServiceAccount) -> Meta {
    Meta::of(&account.metadata)
}

/// The most names of Secrets that are kept of a Role. The Role of a pool has fewer, and anyone who may edit
/// it could fill the memory.
const MOST_SECRETS: usize = 250;

/// A Role of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoleView {
    pub meta: Meta,
    /// Names of the Secrets that it opens; `None`: its rules are not of the form that we write.
    pub secrets: Option<Vec<String>>,
}

impl RoleView {
    pub fn of(role: &Role) -> Self {
        let names = match role.rules.as_deref() {
            Some([rule]) => rule.resource_names.clone(),
            _ => None,
        };
        let is_small = |names: &Vec<String>| {
            names.len() <= MOST_SECRETS && names.iter().all(|name| name.len() <= names::MAX_NAME)
        };
        let secrets = names
            .filter(is_small)
            .filter(|names| role.rules == Some(vec![rule(names)]));
        Self {
            meta: Meta::of(&role.metadata),
            secrets,
        }
    }
}

/// A RoleBinding of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BindingView {
    pub meta: Meta,
    /// Whether it binds the pool's Role to the pool's ServiceAccount and nothing else.
    pub good: bool,
}

impl BindingView {
    pub fn of(binding: &RoleBinding) -> Self {
        let name = binding.name_any();
        let good = binding.role_ref == role_ref(&name) && binding.subjects == Some(vec![subject(&name)]);
        Self {
            meta: Meta::of(&binding.metadata),
            good,
        }
    }
}

/// A pool's Role allows exactly this: to get these Secrets.
pub fn rule(secrets: &[String]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["secrets".to_owned()]),
        resource_names: Some(secrets.to_vec()),
        verbs: vec!["get".to_owned()],
        ..PolicyRule::default()
    }
}

/// A pool's RoleBinding refers to the Role of the same name.
pub fn role_ref(name: &str) -> RoleRef {
    RoleRef {
        api_group: "rbac.authorization.k8s.io".to_owned(),
        kind: "Role".to_owned(),
        name: name.to_owned(),
    }
}

/// A pool's RoleBinding binds the ServiceAccount of the same name.
pub fn subject(name: &str) -> Subject {
    Subject {
        api_group: None,
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: Some(CLOUD_INIT_SETTINGS.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_metadata_only_what_is_ours_is_kept_and_it_is_bounded() {
        let large = "x".repeat(100_000);
        let (most, own): (BTreeMap<_, _>, _) = (
            (0..1000).map(|i| (format!("k8c.io/{i:04}"), "x")).collect(),
            json!({names::CONFIG: "c", names::MACHINE_DEPLOYMENT_REVISION: "1", names::OWNER: large, "other": "x", "a/b": large}),
        );
        let meta = |annotations| {
            let meta =
                json!({"name": "n", "labels": {names::POOL: "p", "app": "x"}, "annotations": annotations});
            Meta::of(&serde_json::from_value(meta).unwrap())
        };
        let kept = meta(own);
        assert_eq!((kept.pool(), kept.config()), (Some("p"), Some("c")));
        assert_eq!((kept.labels.len(), kept.annotations.len()), (1, 2), "{kept:?}");
        assert!(meta(json!(most)).annotations.is_empty());
    }

    #[test]
    fn of_a_status_only_what_this_controller_reads_is_kept() {
        let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "Any", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let of = |conditions: &[&str]| {
            let conditions: Vec<_> = conditions.iter().map(|type_| condition(type_)).collect();
            let rendered =
                json!({"digest": "d", "revision": "1", "settingsDigest": "s", "apiServer": "https://a"});
            let status = json!({"conditions": conditions, "rendered": rendered});
            let config = json!({"metadata": {"name": "c", "uid": "u"}, "spec": {}, "status": status});
            ConfigView::of(&serde_json::from_value(config).unwrap())
        };
        let view = of(&["Rendered", "Published", "Other", "Ready"]);
        let kept = view
            .status
            .conditions
            .iter()
            .map(|condition| condition.type_.as_str());
        assert_eq!(kept.collect::<Vec<_>>(), ["Published", "Ready"]);
        let rendered = view.to_publish().unwrap();
        let identity = (rendered.digest.as_str(), rendered.revision.as_deref());
        assert_eq!((identity, &rendered.settings_digest), (("d", Some("1")), &None));
        assert!(view.is_claimed && !of(&["Published"]).is_claimed);
        let about = view.reference("n");
        assert_eq!(
            (about.kind.as_deref(), about.namespace.as_deref()),
            (Some("OperatingSystemConfig"), Some("n"))
        );
    }

    #[test]
    fn a_config_has_only_the_pool_that_its_name_belongs_to() {
        let of = |name: &str, namespace: &str| {
            let pool = json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
                "namespace": namespace, "name": "q", "uid": "u"});
            let config = json!({"metadata": {"name": name}, "spec": {"poolRef": pool}});
            ConfigView::of(&serde_json::from_value(config).unwrap())
        };
        let own = of("q-n-config", "n");
        assert!(own.machine_deployment.is_some() && own.pool_is_of.is_none());
        for (name, namespace) in [("evil", "n"), ("q-n-config", "../n"), ("p-n-config", "n")] {
            let other = of(name, namespace);
            assert_eq!(other.machine_deployment, None);
            assert_eq!(other.pool_is_of, Some(format!("q-{namespace}-config")));
        }
    }

    #[test]
    fn a_role_with_too_many_names_is_none_of_ours() {
        let role = |count: usize| {
            let names: Vec<String> = (0..count).map(|i| format!("osm-provisioning-{i}")).collect();
            RoleView::of(&Role {
                rules: Some(vec![rule(&names)]),
                ..Role::default()
            })
        };
        assert!(role(MOST_SECRETS).secrets.is_some());
        assert!(role(MOST_SECRETS + 1).secrets.is_none());
    }
}
