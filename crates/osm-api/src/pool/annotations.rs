//! Annotations of a pool: where they are read, and where users put them by mistake.

use std::collections::BTreeMap;

use serde_json::Value;

use super::PoolError;
use crate::machine_deployment::MachineDeployment;
use crate::names::{self, KUBELET_CONFIG};

/// An annotation of a MachineDeployment that selects something.
pub struct PoolAnnotation {
    /// Its key.
    pub key: &'static str,
    /// What it selects.
    pub meaning: &'static str,
    /// A valid value.
    pub example: &'static str,
}

/// The annotations that only the MachineDeployment itself can carry. Those with kubelet settings are
/// [`KUBELET_ANNOTATIONS`](super::KUBELET_ANNOTATIONS).
pub const OF_POOLS: [PoolAnnotation; 3] = [
    PoolAnnotation {
        key: names::PROFILE,
        meaning: "Name of the OperatingSystemProfile. The default is osp- and the operating system.",
        example: "osp-ubuntu",
    },
    PoolAnnotation {
        key: names::PROFILE_NAMESPACE,
        meaning: "Namespace of the OperatingSystemProfile. The default is the namespace of the installation.",
        example: "team",
    },
    PoolAnnotation {
        key: names::SETTINGS,
        meaning: "Settings of this pool, a part of the settings document in YAML. fromConfigMap names a ConfigMap with more.",
        example: "pauseImage: registry.example.com/pause:3.10",
    },
];

type Annotations = BTreeMap<String, String>;

/// Kubelet settings of a MachineDeployment and of its template.
pub(super) fn of_kubelet(md: &MachineDeployment) -> Result<Annotations, PoolError> {
    let is_ours = |key: &str| key.starts_with(names::KUBELET_CONFIG_PREFIX);
    let mut found: Annotations = entries(&md.spec.template, "/metadata/annotations");
    found.retain(|key, _| is_ours(key));
    for (key, value) in md
        .metadata
        .annotations
        .iter()
        .flatten()
        .filter(|(key, _)| is_ours(key))
    {
        if found
            .insert(key.clone(), value.clone())
            .is_some_and(|of_template| of_template != *value)
        {
            return Err(PoolError::InvalidAnnotation {
                key: key.clone(),
                problem: "is set on the MachineDeployment and, with another value, on its spec.template; remove one"
                    .to_owned(),
            });
        }
    }
    Ok(found)
}

/// One line for everything that looks like an annotation of ours but has no effect.
pub(super) fn misplaced(md: &MachineDeployment) -> Vec<String> {
    let own = md.metadata.annotations.clone().unwrap_or_default();
    let template = entries(&md.spec.template, "/metadata/annotations");
    let kubelet = |key: &str| key.contains(KUBELET_CONFIG);
    let of_pools = |key: &str| OF_POOLS.iter().any(|known| known.key == key) || kubelet(key);
    let mut warnings = Vec::new();
    for key in own.keys().chain(template.keys()) {
        if kubelet(key) && !key.starts_with(names::KUBELET_CONFIG_PREFIX) {
            warnings.push(format!(
                "annotation {key} has no effect; its prefix must be {}",
                names::KUBELET_CONFIG_PREFIX
            ));
        }
    }
    let elsewhere = [
        ("annotation", "spec.template", template),
        (
            "annotation",
            "spec.template.spec",
            entries(&md.spec.template, "/spec/metadata/annotations"),
        ),
        (
            "label",
            "the MachineDeployment",
            md.metadata.labels.clone().unwrap_or_default(),
        ),
        (
            "label",
            "spec.template",
            entries(&md.spec.template, "/metadata/labels"),
        ),
        (
            "label",
            "spec.template.spec",
            entries(&md.spec.template, "/spec/metadata/labels"),
        ),
    ];
    for (i, (kind, place, entries)) in elsewhere.iter().enumerate() {
        // Kubelet settings are also read from the template.
        let misplaced = |key: &&String| of_pools(key) && !(i == 0 && kubelet(key));
        for key in entries.keys().filter(misplaced) {
            let advice = "set it as an annotation of the MachineDeployment";
            warnings.push(format!("{kind} {key} of {place} has no effect; {advice}"));
        }
    }
    warnings
}

fn entries(template: &Value, pointer: &str) -> Annotations {
    let entries = template
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    entries
        .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn machine_deployment(own: Value, template: Value, machine: Value) -> MachineDeployment {
        serde_json::from_value(json!({
            "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "metadata": own,
            "spec": {"template": {"metadata": template, "spec": {"metadata": machine}}},
        }))
        .unwrap()
    }

    fn key(name: &str) -> String {
        format!("{}{name}", names::KUBELET_CONFIG_PREFIX)
    }

    #[test]
    fn kubelet_settings_are_read_from_both_places_and_must_agree() {
        let (pods, files) = (key("MaxPods"), key("ContainerLogMaxFiles"));
        let own = json!({"annotations": {pods.clone(): "50", "other": "x"}});
        let md = machine_deployment(
            own.clone(),
            json!({"annotations": {files.clone(): "7"}}),
            json!({}),
        );
        let found = of_kubelet(&md).unwrap();
        assert_eq!(
            found,
            Annotations::from([(pods.clone(), "50".into()), (files, "7".into())])
        );
        assert_eq!(misplaced(&md), [""; 0]);
        let agreeing = machine_deployment(
            own.clone(),
            json!({"annotations": {pods.clone(): "50"}}),
            json!({}),
        );
        assert_eq!(of_kubelet(&agreeing).unwrap().len(), 1);
        let other = machine_deployment(own, json!({"annotations": {pods.clone(): "60"}}), json!({}));
        let error = of_kubelet(&other).unwrap_err().to_string();
        assert!(error.contains(&pods) && error.contains("remove one"), "{error}");
    }

    #[test]
    fn what_has_no_effect_is_reported() {
        let near = "kubelet-config.machine-controller.kubermatic.io/MaxPods";
        let md = machine_deployment(
            json!({"annotations": {near: "50"}, "labels": {names::PROFILE: "x"}}),
            json!({"annotations": {names::SETTINGS: "{}", key("MaxPods"): "1"}}),
            json!({"annotations": {key("MaxPods"): "1", "mine": "x"}, "labels": {"mine": "x"}}),
        );
        let warnings = misplaced(&md);
        assert_eq!(warnings.len(), 4, "{warnings:#?}");
        for (warning, part) in warnings.iter().zip([
            near.to_owned(),
            format!("annotation {} of spec.template ", names::SETTINGS),
            format!("annotation {} of spec.template.spec ", key("MaxPods")),
            format!("label {} of the MachineDeployment ", names::PROFILE),
        ]) {
            assert!(warning.contains(&part), "{warning}");
        }
    }
}
