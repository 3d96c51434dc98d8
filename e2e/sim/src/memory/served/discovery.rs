//! Which kinds there are, as kubectl and kube ask for it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::kinds::{self, Kind};
use super::definition;
use crate::memory::State;

/// What `kubectl version` prints. It ends with what this is.
const VERSION: &str = "v1.34.0-in-memory";

const AUTHORIZATION: &str = "authorization.k8s.io";

/// The document at this path. `None`: there is none.
pub(super) fn document(path: &str, state: &State) -> Option<Value> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    Some(match segments.as_slice() {
        ["version"] => json!({"major": "1", "minor": "34", "gitVersion": VERSION, "platform": "in memory"}),
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"]}),
        ["apis"] => {
            let groups: Vec<Value> = groups().into_iter().map(group).collect();
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
        }
        ["apis", name] => {
            let found = groups().into_iter().find(|(known, _)| known == name)?;
            let mut group = group(found);
            json_patch::merge(&mut group, &json!({"kind": "APIGroup", "apiVersion": "v1"}));
            group
        }
        ["api", "v1"] => resources("", "v1", state)?,
        ["apis", group, version] => resources(group, version, state)?,
        _ => return None,
    })
}

/// Groups but that of the core, with their only version.
fn groups() -> BTreeSet<(&'static str, &'static str)> {
    kinds::all()
        .map(|kind| (kind.group, kind.version))
        .chain([(AUTHORIZATION, "v1")])
        .filter(|(group, _)| !group.is_empty())
        .collect()
}

fn group((name, version): (&str, &str)) -> Value {
    let version = json!({"groupVersion": format!("{name}/{version}"), "version": version});
    json!({"name": name, "versions": [version], "preferredVersion": version})
}

fn resources(group: &str, version: &str, state: &State) -> Option<Value> {
    let kinds = kinds::all().filter(|kind| (kind.group, kind.version) == (group, version));
    let mut resources: Vec<Value> = kinds.flat_map(|kind| resource(kind, state)).collect();
    if (group, version) == (AUTHORIZATION, "v1") {
        resources.push(
            json!({"name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview",
            "namespaced": false, "kind": "SelfSubjectAccessReview", "verbs": ["create"]}),
        );
    }
    let api_version = match group {
        "" => version.to_owned(),
        group => format!("{group}/{version}"),
    };
    let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources});
    (!resources_of(&list).is_empty()).then_some(list)
}

fn resources_of(list: &Value) -> &[Value] {
    list.get("resources")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// A kind, and its subresources.
fn resource(kind: &Kind, state: &State) -> Vec<Value> {
    let names = definition(kind, state).and_then(|definition| definition.pointer("/spec/names"));
    let of = |key: &str| {
        names
            .and_then(|names| names.get(key))
            .cloned()
            .unwrap_or_default()
    };
    let mut main = json!({"name": kind.plural, "singularName": kind.kind.to_lowercase(), "kind": kind.kind,
        "namespaced": kind.namespaced, "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"]});
    json_patch::merge(
        &mut main,
        &match names {
            Some(_) => json!({"shortNames": of("shortNames"), "categories": of("categories")}),
            None => json!({"shortNames": short_names(kind.plural)}),
        },
    );
    let sub = |name: &str, kind_of: &str, verb: &str| {
        json!({"name": format!("{}/{name}", kind.plural), "singularName": "", "kind": kind_of,
            "namespaced": kind.namespaced, "verbs": [verb]})
    };
    let mut all = vec![main];
    if kind.custom {
        all.push(sub("status", kind.kind, "patch"));
    }
    if kind.plural == "serviceaccounts" {
        all.push(sub("token", "TokenRequest", "create"));
    }
    all
}

fn short_names(plural: &str) -> &'static [&'static str] {
    match plural {
        "namespaces" => &["ns"],
        "configmaps" => &["cm"],
        "serviceaccounts" => &["sa"],
        "events" => &["ev"],
        "nodes" => &["no"],
        "pods" => &["po"],
        "deployments" => &["deploy"],
        "certificatesigningrequests" => &["csr"],
        kinds::DEFINITIONS => &["crd", "crds"],
        _ => &[],
    }
}
