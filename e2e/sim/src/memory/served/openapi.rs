//! OpenAPI documents, as far as kubectl and the services read them: schemas of custom kinds, and that the
//! server checks fields itself.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::super::kinds::{self, Kind};
use super::definition;
use crate::memory::State;

/// The document at this path. `None`: there is none.
pub(super) fn document(path: &str, state: &State) -> Option<Value> {
    let rest = path.strip_prefix("/openapi/v3")?.trim_matches('/');
    if rest.is_empty() {
        let paths: BTreeSet<String> = kinds::all().map(group_path).collect();
        let all = paths.into_iter().map(|path| {
            let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
            (path, url)
        });
        return Some(json!({"paths": all.collect::<Map<_, _>>()}));
    }
    let kinds: Vec<&Kind> = kinds::all().filter(|kind| group_path(kind) == rest).collect();
    if kinds.is_empty() {
        return None;
    }
    let paths = kinds.iter().map(|kind| operations(kind));
    let schemas = kinds.iter().map(|kind| schema(kind, state));
    Some(
        json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "in memory"},
        "paths": paths.collect::<Map<_, _>>(), "components": {"schemas": schemas.collect::<Map<_, _>>()}}),
    )
}

fn group_path(kind: &Kind) -> String {
    match kind.group {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    }
}

fn names(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "kind": kind.kind})
}

/// kubectl leaves the validation to a server whose patches have the parameter `fieldValidation`.
fn operations(kind: &Kind) -> (String, Value) {
    let namespace = if kind.namespaced {
        "namespaces/{namespace}/"
    } else {
        ""
    };
    let path = format!("/{}/{namespace}{}/{{name}}", group_path(kind), kind.plural);
    let parameters = ["dryRun", "fieldValidation"]
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string"}}));
    let patch =
        json!({"parameters": parameters, "responses": {}, "x-kubernetes-group-version-kind": names(kind)});
    (path, json!({"patch": patch}))
}

fn schema(kind: &Kind, state: &State) -> (String, Value) {
    let name = format!("{}.{}.{}", kind.group, kind.version, kind.kind);
    let of_definition = definition(kind, state)
        .and_then(|definition| definition.pointer("/spec/versions/0/schema/openAPIV3Schema"))
        .cloned();
    let mut schema = of_definition.unwrap_or_else(|| json!({"type": "object"}));
    let text = json!({"type": "string"});
    let common = json!({"properties": {"apiVersion": text, "kind": text, "metadata": {"type": "object"}},
        "x-kubernetes-group-version-kind": [names(kind)]});
    json_patch::merge(&mut schema, &common);
    (name.trim_start_matches('.').to_owned(), schema)
}
