//! The CustomResourceDefinitions of this version, as `crds/` and the chart have them.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResourceExt, ResourceExt};
use serde_json::Value;

use crate::config::OperatingSystemConfig;
use crate::profile::OperatingSystemProfile;
use crate::worker_cluster::WorkerCluster;

/// The definition of OperatingSystemProfiles as `crds/` has it, in YAML. Services read the definitions from
/// these texts, because the code that generates them from the types would take 0.4 MB of the memory of each
/// service.
pub const PROFILES: &str =
    include_str!("../../../crds/operatingsystemprofiles.operatingsystemmanager.k8c.io.yaml");

/// The definition of OperatingSystemConfigs, as [`PROFILES`].
pub const CONFIGS: &str =
    include_str!("../../../crds/operatingsystemconfigs.operatingsystemmanager.k8c.io.yaml");

/// The definition of WorkerClusters, as [`PROFILES`].
pub const WORKER_CLUSTERS: &str =
    include_str!("../../../crds/workerclusters.operatingsystemmanager.k8c.io.yaml");

/// A definition in YAML, such as [`PROFILES`]. `Null`: the text is no YAML.
pub fn parse(definition: &str) -> Value {
    serde_saphyr::from_str::<Option<Value>>(definition)
        .ok()
        .flatten()
        .unwrap_or_default()
}

/// All definitions as the types define them, labelled with this version.
pub fn all() -> [CustomResourceDefinition; 3] {
    let defined = [
        OperatingSystemProfile::crd(),
        OperatingSystemConfig::crd(),
        WorkerCluster::crd(),
    ];
    defined.map(|mut definition| {
        let labels = definition.labels_mut();
        for (label, value) in [
            ("app.kubernetes.io/name", "operating-system-manager"),
            ("app.kubernetes.io/version", env!("CARGO_PKG_VERSION")),
        ] {
            labels.insert(label.to_owned(), value.to_owned());
        }
        definition
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_are_what_the_types_define() {
        let defined = all().map(|definition| serde_json::to_value(definition).unwrap());
        assert_eq!([PROFILES, CONFIGS, WORKER_CLUSTERS].map(parse), defined);
    }
}
