//! Decides how a default profile is installed, and restored after someone has changed it. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use osm_api::settings::DefaultProfiles;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec, names};

/// Value of the label [`names::DEFAULT_PROFILE`].
const LABEL_VALUE: &str = "true";

/// Version that a default profile has for a moment while it is restored, see [`restore`].
pub(crate) const INTERIM_VERSION: &str = "v0.0.0-restoring";

/// What brings a default profile to its desired state.
#[derive(Clone, Debug, PartialEq)]
pub enum Install {
    Create(OperatingSystemProfile),
    /// The profile differs from the default.
    Restore(Restore),
}

/// How a default profile is restored.
#[derive(Clone, Debug, PartialEq)]
pub struct Restore {
    /// The default profile, with the uid, the resourceVersion and the other metadata of the stored one.
    pub profile: OperatingSystemProfile,
    /// A version to write first, because the spec may change only together with its version.
    pub interim_version: Option<String>,
    /// The note of an Event. `None` if the stored profile is the default of another release: no user's work
    /// is lost then.
    pub notice: Option<String>,
}

/// What to do for the profile of this name; `None` if there is nothing to do. `default`: the spec that the
/// profile must have.
pub fn install(
    name: &str,
    stored: Option<&OperatingSystemProfile>,
    default: Option<&OperatingSystemProfileSpec>,
) -> Option<Install> {
    let default = default?;
    let Some(stored) = stored else {
        let mut profile = OperatingSystemProfile::new(name, default.clone());
        label(&mut profile.metadata);
        return Some(Install::Create(profile));
    };
    // A profile that is being deleted is created again once it is gone.
    if is_deleted(stored) {
        return None;
    }
    restore(stored, default).map(Install::Restore)
}

/// Whether the profile is being deleted.
pub fn is_deleted(stored: &OperatingSystemProfile) -> bool {
    stored.metadata.deletion_timestamp.is_some()
}

/// Compares specs as typed values. The API server may have filled in defaults. But the schema and the type
/// have the same fields and the same defaults, so a spec that was written compares equal to the spec that is
/// read back.
fn restore(stored: &OperatingSystemProfile, default: &OperatingSystemProfileSpec) -> Option<Restore> {
    let is_same_spec = stored.spec == *default;
    if is_same_spec && is_labelled(&stored.metadata) {
        return None;
    }
    // The CustomResourceDefinition allows a change of the spec only together with its version. A different
    // spec may still have the version of the default, if it was stored while the definition was the upstream
    // OSM's, which has no such rule. Two writes with another version in between satisfy the rule, and the
    // profile and its status never disappear.
    let interim_version =
        (!is_same_spec && stored.spec.version == default.version).then(|| INTERIM_VERSION.to_owned());
    let mut profile = OperatingSystemProfile {
        metadata: stored.metadata.clone(),
        spec: default.clone(),
        status: None,
    };
    label(&mut profile.metadata);
    let notice = if is_same_spec {
        Some(label_notice(stored))
    } else {
        replacement_notice(stored, default)
    };
    Some(Restore {
        profile,
        interim_version,
        notice,
    })
}

fn label_notice(stored: &OperatingSystemProfile) -> String {
    format!(
        "{} is a default profile: osp-controller restored its label {}; to change it, extend or copy it under another name",
        stored.name_any(),
        names::DEFAULT_PROFILE
    )
}

fn replacement_notice(
    stored: &OperatingSystemProfile,
    default: &OperatingSystemProfileSpec,
) -> Option<String> {
    // The version contains a digest of the spec. If it matches, this is the unchanged default profile of
    // another release.
    if osm_render::blessed_version(&stored.spec) == stored.spec.version {
        return None;
    }
    Some(format!(
        "{} is a default profile: osp-controller replaced version {} with {}; to change it, extend or copy it under another name",
        stored.name_any(),
        stored.spec.version,
        default.version
    ))
}

pub(crate) fn is_labelled(metadata: &ObjectMeta) -> bool {
    let labels = metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(names::DEFAULT_PROFILE))
        .is_some_and(|value| value == LABEL_VALUE)
}

pub(crate) fn label(metadata: &mut ObjectMeta) {
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(names::DEFAULT_PROFILE.to_owned(), LABEL_VALUE.to_owned());
}

/// The default profile of this name, unless the settings disable it.
pub(crate) fn enabled(
    defaults: &[(String, OperatingSystemProfileSpec)],
    name: &str,
    settings: &DefaultProfiles,
) -> Option<OperatingSystemProfileSpec> {
    let (_, spec) = defaults.iter().find(|(default, _)| default == name)?;
    (settings.enabled && !settings.disabled.contains(&spec.os_name)).then(|| spec.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::profile;
    use osm_api::profile::OperatingSystem::{Flatcar, Ubuntu};

    #[test]
    fn settings_disable_all_defaults_or_those_of_a_system() {
        let defaults = [("osp-ubuntu".to_owned(), profile("v1.0.0"))];
        let is_enabled = |name, enabled_at_all, disabled: &[_]| {
            let settings = DefaultProfiles {
                enabled: enabled_at_all,
                disabled: disabled.to_vec(),
            };
            enabled(&defaults, name, &settings).is_some()
        };
        assert!(is_enabled("osp-ubuntu", true, &[]));
        assert!(is_enabled("osp-ubuntu", true, &[Flatcar]));
        assert!(!is_enabled("osp-ubuntu", true, &[Flatcar, Ubuntu]));
        assert!(!is_enabled("osp-ubuntu", false, &[]));
        assert!(!is_enabled("mine", true, &[]));
    }
}
