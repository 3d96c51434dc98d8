//! The CustomResourceDefinitions of this version, as `crds/` has them and `osp-controller upgrade-crds` applies them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, ResourceExt};
use semver::Version;
use serde_json::Value;

use crate::{OperatingSystemConfig, OperatingSystemProfile};

/// Value of [`PART_LABEL`], and the field manager with which definitions are applied.
pub const NAME: &str = "operating-system-manager";

/// Label with the version of a definition. Definitions of other programs may carry it too, so [`PART_LABEL`] marks ours.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// Label that marks our definitions. Its value is [`NAME`].
pub const PART_LABEL: &str = "app.kubernetes.io/name";

/// The definition of OperatingSystemProfiles as `crds/` has it, in YAML. Services read the definitions from these texts, because the code
/// that generates them from the types would take 0.4 MB of the memory of each service.
pub const PROFILES: &str =
    include_str!("../../../crds/operatingsystemprofiles.operatingsystemmanager.k8c.io.yaml");

/// The definition of OperatingSystemConfigs, as [`PROFILES`].
pub const CONFIGS: &str =
    include_str!("../../../crds/operatingsystemconfigs.operatingsystemmanager.k8c.io.yaml");

/// A definition in YAML, such as [`PROFILES`]. `Null`: the text is no YAML.
pub fn parse(definition: &str) -> Value {
    serde_saphyr::from_str::<Option<Value>>(definition)
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// Both definitions as the types define them, labelled with this version.
pub fn all() -> [CustomResourceDefinition; 2] {
    [OperatingSystemProfile::crd(), OperatingSystemConfig::crd()].map(|mut definition| {
        let labels = definition.labels_mut();
        labels.insert(PART_LABEL.to_owned(), NAME.to_owned());
        labels.insert(VERSION_LABEL.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        definition
    })
}

/// The version of one of our definitions, if it is newer than this program.
pub fn newer(there: &CustomResourceDefinition) -> Option<Version> {
    let labels = there.labels();
    let is_ours = labels.get(PART_LABEL).is_some_and(|part| part == NAME);
    let version = labels.get(VERSION_LABEL).filter(|_| is_ours)?;
    let this = Version::parse(env!("CARGO_PKG_VERSION")).ok()?;
    Version::parse(version).ok().filter(|version| *version > this)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_are_what_the_types_define() {
        let [profiles, configs] = all().map(|definition| serde_json::to_value(definition).unwrap());
        assert_eq!(parse(PROFILES), profiles);
        assert_eq!(parse(CONFIGS), configs);
    }

    #[test]
    fn only_newer_ones_of_ours_are_newer() {
        let of = |part: &str, version: &str| {
            let [mut definition, _] = all();
            definition
                .labels_mut()
                .insert(PART_LABEL.to_owned(), part.to_owned());
            definition
                .labels_mut()
                .insert(VERSION_LABEL.to_owned(), version.to_owned());
            newer(&definition).map(|version| version.to_string())
        };
        assert_eq!(of(NAME, "99.0.0").as_deref(), Some("99.0.0"));
        assert_eq!(of(NAME, "99.0.0-rc.1").as_deref(), Some("99.0.0-rc.1"));
        assert_eq!(of(NAME, concat!(env!("CARGO_PKG_VERSION"), "-rc.1")), None);
        assert_eq!(of(NAME, env!("CARGO_PKG_VERSION")), None);
        assert_eq!(of(NAME, "0.0.1"), None);
        assert_eq!(of(NAME, "not a version"), None);
        assert_eq!(of("another-program", "99.0.0"), None);
        assert_eq!(newer(&OperatingSystemProfile::crd()), None);
    }
}
