//! What the API server demands of the metadata of every object, and of labels that end up on Nodes.

use osm_api::names::{NAME_RULE, NAMESPACE_RULE, is_dns_label, is_dns_subdomain};
use osm_api::{MachineDeployment, labels};
use serde_json::{Map, Value};

use crate::origin::Origin;
use crate::problem::Problem;

/// The most bytes of all annotations of an object together (Kubernetes, `TotalAnnotationSizeLimitB`).
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Where a MachineDeployment has labels of the objects that machine-controller creates for it: MachineSets with their Machines, and Nodes.
const LABELS_OF_TEMPLATE: [&str; 2] = ["spec.template.metadata", "spec.template.spec.metadata"];

/// Reports what the API server would refuse in the metadata of an object of this kind. What has the wrong type is reported when the object is
/// decoded.
pub fn check(kind: &str, object: &Value, origin: &Origin) -> Vec<Problem> {
    let mut found = Checks {
        origin,
        problems: Vec::new(),
    };
    let text = |field: &str| {
        object
            .get("metadata")?
            .get(field)?
            .as_str()
            .filter(|text| !text.is_empty())
    };
    match text("name") {
        Some(name) => found.check("name", "metadata.name", is_dns_subdomain(name), NAME_RULE),
        // The API server makes up the rest, or the type is wrong.
        None if text("generateName").is_some()
            || object
                .pointer("/metadata/name")
                .is_some_and(|name| !is_empty(name)) => {}
        None => {
            let message = format!("this {kind} has no metadata.name; give it one");
            let problem = Problem::error("name", origin.place("metadata"), message);
            found.problems.push(problem);
        }
    }
    if let Some(namespace) = text("namespace") {
        let ok = is_dns_label(namespace);
        found.check("name", "metadata.namespace", ok, NAMESPACE_RULE);
    }
    found.labels(object, "metadata");
    let annotations = texts(object, "metadata", "annotations");
    for (key, _) in annotations.clone() {
        let ok = labels::is_key(&key.to_ascii_lowercase());
        found.check(
            "label",
            &format!("metadata.annotations.{key}"),
            ok,
            labels::KEY_RULE,
        );
    }
    let bytes: usize = annotations.map(|(key, text)| key.len() + text.len()).sum();
    let (ok, rule) = (bytes <= MAX_ANNOTATIONS, "must have at most 256 KiB together");
    found.check("label", "metadata.annotations", ok, rule);
    found.problems
}

/// Reports labels that machine-controller can't write to the objects that it creates for a MachineDeployment, because the API server would
/// refuse these objects.
pub fn check_template(md: &MachineDeployment, origin: &Origin) -> Vec<Problem> {
    let mut found = Checks {
        origin,
        problems: Vec::new(),
    };
    let object = serde_json::json!({"spec": {"template": md.spec.template}});
    for path in LABELS_OF_TEMPLATE {
        found.labels(&object, path);
    }
    found.problems
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_str() == Some("")
}

struct Checks<'o> {
    origin: &'o Origin,
    problems: Vec<Problem>,
}

impl Checks<'_> {
    fn check(&mut self, rule: &'static str, path: &str, ok: bool, demand: &str) {
        if !ok {
            let problem = Problem::error(rule, self.origin.place(path), format!("{path}: {demand}"));
            self.problems.push(problem);
        }
    }

    fn labels(&mut self, object: &Value, path: &str) {
        for (key, value) in texts(object, path, "labels") {
            let path = format!("{path}.labels.{key}");
            self.check("label", &path, labels::is_key(key), labels::KEY_RULE);
            self.check("label", &path, labels::is_value(value), labels::VALUE_RULE);
        }
    }
}

/// The texts in a map of the metadata at a path.
fn texts<'v>(
    object: &'v Value,
    path: &str,
    field: &str,
) -> impl Iterator<Item = (&'v String, &'v str)> + Clone {
    let metadata = path.split('.').try_fold(object, |value, name| value.get(name));
    let map = metadata.and_then(|metadata| metadata.get(field)?.as_object());
    map.into_iter()
        .flat_map(Map::iter)
        .filter_map(|(key, value)| Some((key, value.as_str()?)))
}
