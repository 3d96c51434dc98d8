//! Annotations of a pool: where they are read, and where users put them by mistake.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::error::PoolError;
use super::kubelet_annotations::KUBELET_ANNOTATIONS;
use crate::machine_deployment::MachineDeployment;
use crate::names::{self, KUBELET_CONFIG, KUBELET_FEATURE_GATES, KUBELET_FLAGS};
use crate::strict;

/// The annotations that only the MachineDeployment itself can carry. Those with kubelet settings are
/// [`super::KUBELET_ANNOTATIONS`].
const OF_POOLS: [&str; 3] = [names::PROFILE, names::PROFILE_NAMESPACE, names::SETTINGS];

type Annotations = BTreeMap<String, String>;

/// Kubelet settings of a MachineDeployment and of its template. One without a value is as good as absent.
pub(super) fn of_kubelet(md: &MachineDeployment) -> Result<Annotations, PoolError> {
    let is_ours = |key: &str| key.starts_with(names::KUBELET_CONFIG_PREFIX);
    let is_set = |value: &str| !value.trim().is_empty();
    let mut found = Annotations::new();
    for (key, value) in entries(&md.spec.template, "/metadata/annotations") {
        match value.as_str() {
            _ if !is_ours(&key) || value.is_null() => {}
            Some(text) if is_set(text) => drop(found.insert(key, text.to_owned())),
            Some(_) => {}
            None => {
                let problem = strict::no_text(value);
                return Err(PoolError::annotation(
                    &key,
                    &format!("{problem}; it is an annotation of spec.template"),
                ));
            }
        }
    }
    let own = md.metadata.annotations.iter().flatten();
    for (key, value) in own.filter(|(key, value)| is_ours(key) && is_set(value)) {
        let of_template = found.insert(key.clone(), value.clone());
        if of_template.is_some_and(|of_template| of_template != *value) {
            let problem =
                "is set on the MachineDeployment and, with another value, on its spec.template; remove one";
            return Err(PoolError::annotation(key, problem));
        }
    }
    Ok(found)
}

/// One line for everything that looks like an annotation of ours but has no effect.
pub(super) fn misplaced(md: &MachineDeployment) -> Vec<String> {
    let own = md.metadata.annotations.clone().unwrap_or_default();
    let template = entries(&md.spec.template, "/metadata/annotations");
    let machine = entries(&md.spec.template, "/spec/metadata/annotations");
    let both: BTreeSet<&String> = own.keys().chain(template.keys()).collect();
    let mut warnings: Vec<String> = both.into_iter().filter_map(|key| without_effect(key)).collect();
    let of_pools = |key: &&String| OF_POOLS.contains(&key.as_str());
    let of_template = template.keys().filter(of_pools).map(|key| (key, "spec.template"));
    let of_machine = machine
        .keys()
        .filter(|key| of_pools(key) || key.contains(KUBELET_CONFIG));
    for (key, place) in of_template.chain(of_machine.map(|key| (key, "spec.template.spec"))) {
        warnings.push(format!(
            "annotation {key} of {place} has no effect; set it as an annotation of the MachineDeployment"
        ));
    }
    warnings
}

/// Why an annotation in the name of machine-controller's kubelet settings has no effect, although it is where
/// these are read.
fn without_effect(key: &str) -> Option<String> {
    let advice = match key.strip_prefix(names::KUBELET_CONFIG_PREFIX) {
        Some(name) if KUBELET_ANNOTATIONS.iter().any(|known| known.name == name) => return None,
        Some(_) => "set kubelet.configuration in the settings of the pool".to_owned(),
        None if key.contains(KUBELET_FEATURE_GATES) => {
            "set kubelet.featureGates in the settings of the pool".to_owned()
        }
        None if key.contains(KUBELET_FLAGS) => {
            "set kubelet.configuration in the settings of the pool".to_owned()
        }
        None if key.contains(KUBELET_CONFIG) => {
            format!("its prefix must be {}", names::KUBELET_CONFIG_PREFIX)
        }
        None => return None,
    };
    Some(format!("annotation {key} has no effect; {advice}"))
}

/// The API server checks the types of annotations and labels of an object, but not of its template.
fn entries<'a>(template: &'a Value, pointer: &str) -> BTreeMap<String, &'a Value> {
    let entries = template
        .pointer(pointer)
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    entries.map(|(key, value)| (key.clone(), value)).collect()
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
        let expected = Annotations::from([(pods.clone(), "50".into()), (files, "7".into())]);
        assert_eq!(found, expected);
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
    fn the_page_lists_the_annotations_and_where_they_are_read() {
        let page = include_str!("../../../../docs/annotations.md");
        let where_read = "Kubelet settings are read from the annotations of the MachineDeployment and of its `spec.template`; both must agree.
All other annotations are read from the MachineDeployment only.";
        assert!(page.contains(where_read));
        for annotation in KUBELET_ANNOTATIONS {
            let text = format!("`{}`", annotation.name);
            assert!(page.contains(&text), "{}", annotation.name);
            assert!(page.contains(annotation.example), "{}", annotation.name);
        }
        for name in OF_POOLS {
            assert!(page.contains(name), "{name}");
        }
    }

    #[test]
    fn what_has_no_effect_is_reported() {
        let near = "kubelet-config.machine-controller.kubermatic.io/MaxPods";
        let (gate, flag) = (
            "v1.kubelet-featuregates.machine-controller.kubermatic.io/ImageVolume",
            "v1.kubelet-flags.machine-controller.kubermatic.io/ExternalCloudProvider",
        );
        let md = machine_deployment(
            json!({"annotations": {near: "50", gate: "true", key("PodsPerCore"): "5"}}),
            json!({"annotations": {names::SETTINGS: "{}", key("MaxPods"): "1", key("PodsPerCore"): "6", flag: "true"}}),
            json!({"annotations": {key("MaxPods"): "1", names::PROFILE: "x", "mine": "x"}}),
        );
        let warnings = misplaced(&md);
        assert_eq!(warnings.len(), 7, "{warnings:#?}");
        for (warning, part) in warnings.iter().zip([
            near.to_owned(),
            format!(
                "annotation {} has no effect; set kubelet.configuration in",
                key("PodsPerCore")
            ),
            format!("annotation {gate} has no effect; set kubelet.featureGates in"),
            format!("annotation {flag} has no effect; set kubelet.configuration in"),
            format!("annotation {} of spec.template ", names::SETTINGS),
            format!("annotation {} of spec.template.spec ", names::PROFILE),
            format!("annotation {} of spec.template.spec ", key("MaxPods")),
        ]) {
            assert!(warning.contains(&part), "{warning}");
        }
    }
}
