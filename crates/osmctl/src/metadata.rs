//! Checks what the API server demands of the metadata of every object, and of labels that end up on Nodes.

use osm_api::names::{NAME_RULE, NAMESPACE_RULE, is_dns_label, is_dns_subdomain};
use osm_api::{MachineDeployment, labels};
use serde_json::{Map, Value};

use crate::origin::Origin;
use crate::problem::Problem;

/// Where a MachineDeployment has labels of the objects that machine-controller creates for it: MachineSets
/// with their Machines, and Nodes.
const LABELS_OF_TEMPLATE: [&str; 2] = ["spec.template.metadata", "spec.template.spec.metadata"];

/// Reports what the API server would refuse in the metadata of an object of this kind. What has the wrong
/// type is reported when the object is decoded.
pub fn check(kind: &str, object: &Value, origin: &Origin) -> Vec<Problem> {
    let text = |field| {
        let value = object.get("metadata")?.get(field)?;
        value.as_str().filter(|text| !text.is_empty())
    };
    let has_another_type = || {
        object
            .pointer("/metadata/name")
            .is_some_and(|name| !name.is_string() && !name.is_null())
    };
    let mut problems = Vec::new();
    match text("name") {
        Some(name) => problems.extend(demand(
            "name",
            "metadata.name",
            is_dns_subdomain(name),
            NAME_RULE,
            origin,
        )),
        // The API server makes up the rest.
        None if text("generateName").is_some() || has_another_type() => {}
        None => {
            let message = format!("this {kind} has no metadata.name; give it one");
            problems.push(Problem::error("name", origin.place("metadata"), message));
        }
    }
    if let Some(namespace) = text("namespace") {
        let ok = is_dns_label(namespace);
        problems.extend(demand("name", "metadata.namespace", ok, NAMESPACE_RULE, origin));
    }
    problems.extend(check_labels(object, "metadata", origin));
    problems
}

/// Reports labels that machine-controller can't write to the objects that it creates for a MachineDeployment,
/// because the API server would refuse these objects.
pub fn check_template(md: &MachineDeployment, origin: &Origin) -> Vec<Problem> {
    let object = serde_json::json!({"spec": {"template": md.spec.template}});
    let paths = LABELS_OF_TEMPLATE.into_iter();
    paths
        .flat_map(|path| check_labels(&object, path, origin))
        .collect()
}

fn check_labels(object: &Value, path: &str, origin: &Origin) -> Vec<Problem> {
    let metadata = path.split('.').try_fold(object, |value, name| value.get(name));
    let labels = metadata.and_then(|metadata| metadata.get("labels")?.as_object());
    let mut problems = Vec::new();
    for (key, value) in labels.into_iter().flat_map(Map::iter) {
        let path = format!("{path}.labels.{key}");
        let is_value = value.as_str().is_none_or(labels::is_value);
        problems.extend(demand(
            "label",
            &path,
            labels::is_key(key),
            labels::KEY_RULE,
            origin,
        ));
        problems.extend(demand("label", &path, is_value, labels::VALUE_RULE, origin));
    }
    problems
}

/// The problem of a part that does not meet a demand.
fn demand(rule: &'static str, path: &str, is_met: bool, demand: &str, origin: &Origin) -> Option<Problem> {
    (!is_met).then(|| Problem::error(rule, origin.place(path), format!("{path}: {demand}")))
}
