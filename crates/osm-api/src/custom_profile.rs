//! The CustomOperatingSystemProfile of KKP: the schema of an OperatingSystemProfile under another kind. KKP
//! installs its definition.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::profile::OperatingSystemProfileSpec;
use crate::strict;

/// A profile that a user of KKP writes. It is undecoded, so that the mistakes of an invalid one can be
/// reported.
#[derive(CustomResource, Serialize, Deserialize, Clone, Debug)]
#[kube(
    group = "operatingsystemmanager.k8c.io",
    version = "v1alpha1",
    kind = "CustomOperatingSystemProfile",
    plural = "customoperatingsystemprofiles",
    namespaced,
    schema = "disabled"
)]
pub struct CustomOperatingSystemProfileSpec(pub Value);

impl CustomOperatingSystemProfileSpec {
    /// The spec of a profile.
    ///
    /// # Errors
    /// One line per mistake, `spec.path: what is wrong`. No line repeats a value.
    pub fn decode(self) -> Result<OperatingSystemProfileSpec, Vec<String>> {
        let below_spec = |line: String| match line.strip_prefix(strict::DOCUMENT) {
            Some(problem) => format!("spec{problem}"),
            None => format!("spec.{line}"),
        };
        strict::decode(self.0).map_err(|lines| lines.into_iter().map(below_spec).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec() -> Value {
        json!({
            "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0", "supportedCloudProviders": [{"name": "aws"}],
        })
    }

    #[test]
    fn an_object_of_kkp_is_read_as_a_profile() {
        let object: CustomOperatingSystemProfile = serde_json::from_value(json!({
            "apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "CustomOperatingSystemProfile",
            "metadata": {"name": "mine", "namespace": "kube-system"}, "spec": spec(),
        }))
        .unwrap();
        let decoded = object.spec.decode().unwrap();
        assert_eq!(decoded, serde_json::from_value(spec()).unwrap());
    }

    #[test]
    fn mistakes_are_reported_with_their_paths_and_without_values() {
        let mut wrong = spec();
        wrong["osName"] = json!("hunter2");
        for (wrong, start) in [(wrong, "spec.osName: "), (json!(["hunter2"]), "spec: ")] {
            let lines = CustomOperatingSystemProfileSpec(wrong).decode().unwrap_err();
            assert!(
                lines[0].starts_with(start) && !lines[0].contains("hunter2"),
                "{lines:#?}"
            );
        }
    }
}
