//! Creates the copy of a CustomOperatingSystemProfile, and keeps it up to date. Pure.
//!
//! The copy is an OperatingSystemProfile with the same name and namespace. It refers to its source as its
//! owner, so that Kubernetes garbage-collects it.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use osm_api::{
    CustomOperatingSystemProfile, OperatingSystemProfile, OperatingSystemProfileSpec, Reason, names,
};
use osm_runtime::object::Unreadable;

use crate::default_profile::is_deleted;

/// Value of the label [`names::CUSTOM_PROFILE`].
const LABEL_VALUE: &str = "true";

/// A CustomOperatingSystemProfile, as its watch keeps it.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomProfile {
    pub about: ObjectReference,
    /// The spec, or one line per mistake.
    pub spec: Result<OperatingSystemProfileSpec, Vec<String>>,
    /// A source that is being deleted leaves its copy to the garbage collection.
    is_deleted: bool,
}

impl CustomProfile {
    pub fn new(object: CustomOperatingSystemProfile) -> Self {
        Self {
            about: object.object_ref(&()),
            is_deleted: object.metadata.deletion_timestamp.is_some(),
            spec: object.spec.decode(),
        }
    }

    /// A custom profile that can't be decoded.
    pub fn unreadable(unreadable: &Unreadable) -> Self {
        let mut about = ObjectReference {
            api_version: Some(CustomOperatingSystemProfile::api_version(&()).into_owned()),
            kind: Some(CustomOperatingSystemProfile::kind(&()).into_owned()),
            ..ObjectReference::default()
        };
        let metadata = &unreadable.metadata;
        about.name.clone_from(&metadata.name);
        about.namespace.clone_from(&metadata.namespace);
        about.uid.clone_from(&metadata.uid);
        Self {
            about,
            is_deleted: metadata.deletion_timestamp.is_some(),
            spec: Err(vec![unreadable.problem.clone()]),
        }
    }

    /// `namespace/name`.
    pub fn key(&self) -> String {
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        format!("{}/{}", part(&self.about.namespace), part(&self.about.name))
    }

    /// A reference for the garbage collection. It does not block the deletion of the source, which would need
    /// another permission.
    fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: CustomOperatingSystemProfile::api_version(&()).into_owned(),
            kind: CustomOperatingSystemProfile::kind(&()).into_owned(),
            name: self.about.name.clone().unwrap_or_default(),
            uid: self.about.uid.clone().unwrap_or_default(),
            ..OwnerReference::default()
        }
    }
}

/// What keeps the copy up to date.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing: the copy is up to date.
    Keep,
    Create(OperatingSystemProfile),
    /// The copy differs. This has the metadata of the stored one, with its uid and resourceVersion.
    Update(OperatingSystemProfile),
}

/// Why a custom profile is not copied. An earlier copy stays as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// osp-controller installs a default profile of this name, or may do so after a change of the settings.
    #[error("{name} is the name of a default profile; create the custom profile under another name")]
    DefaultName { name: String },
    /// Another author wrote the OperatingSystemProfile of this name.
    #[error(
        "the OperatingSystemProfile {name} exists and is not a copy of this custom profile; delete one of the two, and create it under another name if you need both"
    )]
    NameTaken { name: String },
    /// The spec is not that of a profile.
    #[error("the custom profile is invalid and is not copied: {mistakes}; correct it")]
    Invalid {
        /// Paths and rules, without values.
        mistakes: String,
    },
    /// The rule of OperatingSystemProfiles, which the definition of custom profiles may lack.
    #[error(
        "the spec has changed, but spec.version is still {version}; give it a new version; until then the OperatingSystemProfile \
         keeps its spec"
    )]
    VersionUnchanged {
        /// Version of the source and of the copy.
        version: String,
    },
}

impl Problem {
    /// The reason of the Event and of the metric.
    pub fn reason(&self) -> Reason {
        match self {
            Self::DefaultName { .. } | Self::NameTaken { .. } => Reason::CustomProfileNameTaken,
            Self::Invalid { .. } => Reason::CustomProfileInvalid,
            Self::VersionUnchanged { .. } => Reason::CustomProfileVersionUnchanged,
        }
    }
}

/// What to do for the copy of `source`; `None`: nothing until a deletion is complete. `stored`: the
/// OperatingSystemProfile of the same name. `is_default`: whether there is a default profile of this name,
/// enabled or not.
///
/// # Errors
/// What its author must correct.
pub fn copy(
    source: &CustomProfile,
    stored: Option<&OperatingSystemProfile>,
    is_default: bool,
) -> Option<Result<Step, Problem>> {
    let is_awaited = source.is_deleted || stored.is_some_and(is_deleted);
    (!is_awaited).then(|| step(source, stored, is_default))
}

fn step(
    source: &CustomProfile,
    stored: Option<&OperatingSystemProfile>,
    is_default: bool,
) -> Result<Step, Problem> {
    let name = source.about.name.clone().unwrap_or_default();
    if is_default {
        return Err(Problem::DefaultName { name });
    }
    if stored.is_some_and(|stored| !is_copy(stored)) {
        return Err(Problem::NameTaken { name });
    }
    let spec = source.spec.as_ref().map_err(|mistakes| Problem::Invalid {
        mistakes: mistakes.join("; "),
    })?;
    let Some(stored) = stored else {
        let created = OperatingSystemProfile::new(&name, spec.clone());
        return Ok(Step::Create(with_metadata(created, source)));
    };
    if stored.spec != *spec && stored.spec.version == spec.version {
        let version = spec.version.clone();
        return Err(Problem::VersionUnchanged { version });
    }
    let mut updated = stored.clone();
    updated.spec = spec.clone();
    let updated = with_metadata(updated, source);
    Ok(if updated == *stored {
        Step::Keep
    } else {
        Step::Update(OperatingSystemProfile {
            status: None,
            ..updated
        })
    })
}

/// Whether osp-controller created this profile as a copy.
pub fn is_copy(stored: &OperatingSystemProfile) -> bool {
    let label = stored.labels().get(names::CUSTOM_PROFILE);
    label.is_some_and(|value| value == LABEL_VALUE)
}

/// The label of a copy, and the reference to this source instead of one to its predecessor.
fn with_metadata(mut copy: OperatingSystemProfile, source: &CustomProfile) -> OperatingSystemProfile {
    copy.labels_mut()
        .insert(names::CUSTOM_PROFILE.to_owned(), LABEL_VALUE.to_owned());
    let owner = source.owner_reference();
    let owners = copy.owner_references_mut();
    if !owners.contains(&owner) {
        owners.retain(|other| (&other.api_version, &other.kind) != (&owner.api_version, &owner.kind));
        owners.push(owner);
    }
    copy
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    use super::*;
    use crate::plan::tests::profile;
    use osm_runtime::object;

    fn source(version: &str) -> CustomProfile {
        let object = json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "CustomOperatingSystemProfile",
            "metadata": {"name": "mine", "namespace": "team", "uid": "source"}, "spec": profile(version),
        });
        CustomProfile::new(serde_json::from_value(object).unwrap())
    }

    /// The copy as the API server stores it, with what other programs add.
    fn stored(version: &str) -> OperatingSystemProfile {
        let Some(Ok(Step::Create(mut copy))) = copy(&source(version), None, false) else {
            panic!()
        };
        copy.metadata.uid = Some("copy".to_owned());
        copy.metadata.resource_version = Some("7".to_owned());
        copy.labels_mut().insert("theirs".to_owned(), "kept".to_owned());
        copy.status = Some(osm_api::OperatingSystemProfileStatus::default());
        copy
    }

    fn updated(source: &CustomProfile, stored: &OperatingSystemProfile) -> OperatingSystemProfile {
        match copy(source, Some(stored), false) {
            Some(Ok(Step::Update(updated))) => updated,
            other => panic!("{other:?}"),
        }
    }

    fn problem(source: &CustomProfile, stored: Option<&OperatingSystemProfile>, is_default: bool) -> Problem {
        copy(source, stored, is_default).unwrap().unwrap_err()
    }

    #[test]
    fn one_that_can_not_be_read_is_a_problem() {
        let deep = format!(
            r#"{{"metadata": {{"name": "mine", "namespace": "team", "uid": "u"}}, "spec": {{"x": {}{}}}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        );
        let unreadable = object::decode::<CustomOperatingSystemProfile>(&deep)
            .unwrap()
            .unwrap_err();
        let custom = CustomProfile::unreadable(&unreadable);
        assert_eq!(
            (custom.key().as_str(), custom.about.uid.as_deref()),
            ("team/mine", Some("u"))
        );
        let problem = problem(&custom, None, false).to_string();
        assert!(
            problem.contains("spec.x[0]") && problem.contains("nested too deeply"),
            "{problem}"
        );
    }

    #[test]
    fn a_missing_copy_is_created_with_its_owner() {
        let created = stored("v1.0.0");
        assert_eq!(
            (created.name_any(), &created.spec),
            ("mine".to_owned(), &profile("v1.0.0"))
        );
        assert_eq!(
            serde_json::to_value(created.owner_references()).unwrap(),
            json!([{"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "CustomOperatingSystemProfile",
                "name": "mine", "uid": "source"}])
        );
        assert_eq!(
            copy(&source("v1.0.0"), Some(&created), false),
            Some(Ok(Step::Keep))
        );
    }

    #[test]
    fn another_version_is_copied_and_foreign_metadata_stay() {
        for version in ["v0.9.0", "v2.0.0"] {
            let updated = updated(&source(version), &stored("v1.0.0"));
            assert_eq!((updated.spec, updated.status), (profile(version), None));
            assert_eq!(updated.metadata, stored("v1.0.0").metadata);
        }
    }

    #[test]
    fn a_recreated_source_replaces_its_predecessor_as_owner() {
        let mut recreated = source("v1.0.0");
        recreated.about.uid = Some("recreated".to_owned());
        let mut before = stored("v1.0.0");
        let other = OwnerReference {
            kind: "Other".to_owned(),
            ..OwnerReference::default()
        };
        before.owner_references_mut().push(other.clone());
        assert_eq!(
            updated(&recreated, &before).owner_references(),
            [other, recreated.owner_reference()]
        );
    }

    #[test]
    fn an_edit_without_a_new_version_changes_nothing() {
        let mut edited = source("v1.0.0");
        edited.spec.as_mut().unwrap().os_version = "26.04".to_owned();
        let problem = problem(&edited, Some(&stored("v1.0.0")), false);
        assert_eq!(problem.reason(), Reason::CustomProfileVersionUnchanged);
        assert!(problem.to_string().contains("v1.0.0"), "{problem}");
    }

    #[test]
    fn profiles_of_other_authors_and_names_of_default_profiles_are_left_alone() {
        let name = || "mine".to_owned();
        let mut foreign = stored("v1.0.0");
        foreign.labels_mut().remove(names::CUSTOM_PROFILE);
        assert_eq!(
            problem(&source("v2.0.0"), Some(&foreign), false),
            Problem::NameTaken { name: name() }
        );
        for stored in [None, Some(&foreign), Some(&stored("v1.0.0"))] {
            assert_eq!(
                problem(&source("v2.0.0"), stored, true),
                Problem::DefaultName { name: name() }
            );
        }
    }

    #[test]
    fn an_invalid_source_leaves_its_copy() {
        let mut invalid = source("v2.0.0");
        invalid.spec = Err(vec!["spec.osName: a".to_owned(), "spec.version: b".to_owned()]);
        for stored in [None, Some(&stored("v1.0.0"))] {
            let problem = problem(&invalid, stored, false);
            assert_eq!(problem.reason(), Reason::CustomProfileInvalid);
            let text = problem.to_string();
            assert!(text.contains("spec.osName: a; spec.version: b"), "{text}");
        }
    }

    #[test]
    fn a_deletion_is_awaited() {
        let at = Time(Timestamp::UNIX_EPOCH);
        let (mut gone, mut going) = (source("v1.0.0"), stored("v0.9.0"));
        gone.is_deleted = true;
        going.metadata.deletion_timestamp = Some(at);
        assert_eq!(copy(&gone, None, false), None);
        assert_eq!(copy(&source("v1.0.0"), Some(&going), false), None);
    }
}
