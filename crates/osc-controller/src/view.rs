//! What this controller keeps of the objects that it watches: what decisions need, not the objects.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use osm_api::condition;
use osm_api::config::{MachineDeploymentRef, OperatingSystemConfig, OperatingSystemConfigStatus, ProfileRef};
use osm_api::profile::{AcceptedProfile, OperatingSystemProfile, ProvisioningUtility};
use osm_api::{MachineDeployment, names, pool};

/// An OperatingSystemConfig without its content.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigView {
    /// Metadata; managed fields are left out.
    pub metadata: ObjectMeta,
    /// Digest of the content as its writer gave it.
    pub digest: Option<String>,
    /// The pool.
    pub machine_deployment: Option<MachineDeploymentRef>,
    /// The profile.
    pub profile: Option<ProfileRef>,
    /// Status.
    pub status: OperatingSystemConfigStatus,
}

impl ConfigView {
    /// Drops the content.
    pub fn of(config: OperatingSystemConfig) -> Self {
        let mut metadata = config.metadata;
        metadata.managed_fields = None;
        Self {
            metadata,
            digest: config.spec.digest,
            machine_deployment: config.spec.machine_deployment,
            profile: config.spec.profile,
            status: config.status.unwrap_or_default(),
        }
    }

    /// What other controllers, and people, write.
    pub fn of_others(&self) -> impl PartialEq {
        let published = condition::find(&self.status.conditions, condition::PUBLISHED).cloned();
        (self.metadata.uid.clone(), self.metadata.generation, published, self.status.published.clone())
    }

    /// uid of the MachineDeployment that it was made for.
    pub fn pool_uid(&self) -> Option<&str> {
        self.machine_deployment.as_ref().map(|md| md.uid.as_str())
    }

    /// uid of the cluster that it was made for.
    pub fn made_in(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(names::CLUSTER_UID).map(String::as_str)
    }

    /// Whether the Go implementation made it, and we have not rendered it yet.
    pub fn is_of_the_go_implementation(&self) -> bool {
        let annotated = |annotations: &std::collections::BTreeMap<String, String>| {
            names::GO_CONFIG_ANNOTATIONS.iter().any(|name| annotations.contains_key(*name))
        };
        self.machine_deployment.is_none() && self.metadata.annotations.as_ref().is_some_and(annotated)
    }

    /// Whether its pool has been declared gone.
    pub fn is_retired(&self) -> bool {
        self.status.retired.as_ref().is_some_and(|retired| Some(retired.uid.as_str()) == self.pool_uid())
    }

    /// Whether secret-syncer has undone everything for the retired pool.
    pub fn is_undone(&self) -> bool {
        self.is_retired()
            && condition::find(&self.status.conditions, condition::PUBLISHED)
                .is_some_and(|published| published.reason == condition::REASON_UNDONE)
    }
}

/// An OperatingSystemProfile as far as rendering needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileView {
    /// `metadata.generation`.
    pub generation: i64,
    /// Generation that osp-controller has judged.
    pub judged: i64,
    /// The last good profile.
    pub accepted: Option<AcceptedProfile>,
    /// Why the newest generation is not accepted.
    pub refusal: Option<String>,
}

impl ProfileView {
    /// Drops the spec: only what was accepted counts.
    pub fn of(profile: OperatingSystemProfile) -> Self {
        let status = profile.status.unwrap_or_default();
        let refusal = condition::find(&status.conditions, condition::ACCEPTED)
            .filter(|accepted| accepted.status != "True")
            .map(|accepted| accepted.message.clone());
        Self {
            generation: profile.metadata.generation.unwrap_or(0),
            judged: status.observed_generation.unwrap_or(0),
            accepted: status.accepted,
            refusal,
        }
    }
}

/// Drops what nobody here reads.
pub fn trim(mut md: MachineDeployment) -> MachineDeployment {
    md.metadata.managed_fields = None;
    md.annotations_mut().remove("kubectl.kubernetes.io/last-applied-configuration");
    md
}

/// Name of the OperatingSystemConfig that a MachineDeployment claims.
pub fn claimed(md: &MachineDeployment) -> String {
    names::config_name(&md.name_any(), &md.namespace().unwrap_or_default())
}

/// Namespace and name of the profile that a MachineDeployment asks for: by annotation, else the default of its
/// operating system and provisioning utility. `None`: the operating system can't be read.
pub fn wanted_profile(md: &MachineDeployment, default_namespace: &str) -> Option<(String, String)> {
    let namespace = pool::annotation(md, names::PROFILE_NAMESPACE).unwrap_or(default_namespace).to_owned();
    let name = pool::annotation(md, names::PROFILE).map(str::to_owned).or_else(|| {
        let provider = md.spec.template.pointer("/spec/providerSpec/value")?;
        let system = provider.get("operatingSystem")?.as_str()?;
        let utility = provider.pointer("/operatingSystemSpec/provisioningUtility");
        // Which it is matters on Flatcar alone, whose default is Ignition.
        let cloud_init = utility.is_some_and(|utility| utility == ProvisioningUtility::CloudInit.as_str());
        let utility = if cloud_init { ProvisioningUtility::CloudInit } else { ProvisioningUtility::Ignition };
        Some(osm_render::default_name(system, utility))
    })?;
    Some((namespace, name))
}

/// Reference to a MachineDeployment, for Events.
pub fn reference(md: &MachineDeployment) -> ObjectReference {
    kube::Resource::object_ref(md, &())
}

/// When an object was created, at the API server's resolution of one second.
pub fn created(meta: &ObjectMeta) -> Timestamp {
    meta.creation_timestamp.as_ref().map_or(Timestamp::MAX, |time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_pool_that_names_no_profile_gets_that_of_its_system_and_utility() {
        let wanted = |annotations: Value, system: &str, spec: Value| {
            let provider = json!({"operatingSystem": system, "operatingSystemSpec": spec});
            let md = json!({
                "metadata": {"annotations": annotations},
                "spec": {"template": {"spec": {"providerSpec": {"value": provider}}}},
            });
            wanted_profile(&serde_json::from_value(md).unwrap(), "here")
        };
        let name = |system, spec| wanted(Value::Null, system, spec).unwrap().1;
        let utility = |utility: &str| json!({"provisioningUtility": utility});
        assert_eq!(name("ubuntu", Value::Null), "osp-ubuntu");
        assert_eq!(name("ubuntu", utility("cloud-init")), "osp-ubuntu");
        for spec in [Value::Null, json!({}), utility(""), utility("ignition")] {
            assert_eq!(name("flatcar", spec), "osp-flatcar");
        }
        assert_eq!(name("flatcar", utility("cloud-init")), "osp-flatcar-cloud-init");
        assert_eq!(name("windows", utility("cloud-init")), "osp-windows");
        let annotations = json!({names::PROFILE: "mine", names::PROFILE_NAMESPACE: "there"});
        let named = wanted(annotations, "flatcar", utility("cloud-init"));
        assert_eq!(named, Some(("there".to_owned(), "mine".to_owned())));
    }
}
