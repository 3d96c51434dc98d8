//! Deployments, pods and Leases of the services, with the fields that show what runs and why it does not.

use osm_api::names::{REPLICA_OF, STANDBY_OF};
use serde_json::{Value, json};

use super::mask;
use crate::cluster::Services;
use crate::credentials::{self, MASK};

/// Fields of an environment variable that refer to a value. What they refer to is not read.
const REFERENCE: &str = "valueFrom";

/// All Deployments, pods and Leases.
pub fn json(services: &Services) -> Value {
    let deployments: Vec<Value> = services.deployments.iter().map(deployment).collect();
    let pods: Vec<Value> = services.pods.iter().map(pod).collect();
    let leases: Vec<Value> = services.leases.iter().map(lease).collect();
    json!({"deployments": deployments, "pods": pods, "leases": leases})
}

/// A Lease of a replica. A replica on standby leaves all objects to those that are ready.
fn lease(object: &Value) -> Value {
    let label = |key| object.pointer("/metadata/labels")?.get(key)?.as_str();
    json!({
        "name": at(object, "/metadata/name"),
        "service": label(REPLICA_OF).or(label(STANDBY_OF)),
        "standby": label(STANDBY_OF).is_some(),
        "renewTime": at(object, "/spec/renewTime"),
        "leaseDurationSeconds": at(object, "/spec/leaseDurationSeconds"),
    })
}

fn deployment(object: &Value) -> Value {
    json!({
        "name": at(object, "/metadata/name"),
        "chart": at(object, "/metadata/labels/helm.sh~1chart"),
        "version": at(object, "/metadata/labels/app.kubernetes.io~1version"),
        "replicas": at(object, "/spec/replicas"),
        "readyReplicas": at(object, "/status/readyReplicas"),
        "updatedReplicas": at(object, "/status/updatedReplicas"),
        "conditions": hidden(object, "/status/conditions", mask::own),
        "containers": each(object, "/spec/template/spec/containers", container),
    })
}

fn container(object: &Value) -> Value {
    json!({
        "name": at(object, "/name"),
        "image": hidden(object, "/image", credentials::hide_forms),
        "args": hidden(object, "/args", mask::foreign),
        "env": each(object, "/env", variable),
        "resources": at(object, "/resources"),
    })
}

/// A value may be a credential, such as the URL of a proxy.
fn variable(object: &Value) -> Value {
    match object.get(REFERENCE) {
        Some(reference) => json!({"name": at(object, "/name"), REFERENCE: reference}),
        None => json!({"name": at(object, "/name"), "value": MASK}),
    }
}

fn pod(object: &Value) -> Value {
    let status = |container: &Value| {
        json!({
            "name": at(container, "/name"),
            "image": hidden(container, "/image", credentials::hide_forms),
            "imageID": hidden(container, "/imageID", credentials::hide_forms),
            "ready": at(container, "/ready"),
            "restartCount": at(container, "/restartCount"),
            "state": hidden(container, "/state", mask::own),
            "lastState": hidden(container, "/lastState", mask::own),
        })
    };
    json!({
        "name": at(object, "/metadata/name"),
        "created": at(object, "/metadata/creationTimestamp"),
        "phase": at(object, "/status/phase"),
        "reason": at(object, "/status/reason"),
        "conditions": hidden(object, "/status/conditions", mask::own),
        "containers": each(object, "/status/containerStatuses", status),
    })
}

fn at(object: &Value, path: &str) -> Value {
    object.pointer(path).cloned().unwrap_or_default()
}

/// Texts that others write. A name of an image is no URL, but may look like a field of a credential.
fn hidden(object: &Value, path: &str, hide: fn(&str) -> String) -> Value {
    mask::values(at(object, path), hide)
}

fn each(object: &Value, path: &str, shown: impl Fn(&Value) -> Value) -> Vec<Value> {
    let items = object.pointer(path).and_then(Value::as_array);
    items.into_iter().flatten().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_variables_and_credentials_in_arguments_are_hidden_and_references_stay() {
        let container = json!({"name": "c", "image": "registry.example/secret-syncer@sha256:00", "args": ["--token=hunter2", "--proxy=http://u:hunter2@proxy"],
            "env": [{"name": "A", "value": "hunter2"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "proxy", "key": "url"}}}]});
        let services = Services {
            deployments: vec![
                json!({"metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": [container]}}}}),
            ],
            ..Services::default()
        };
        let text = json(&services).to_string();
        assert!(!text.contains("hunter2"), "{text}");
        for part in [
            "registry.example/secret-syncer@sha256:00",
            "\"key\":\"url\"",
            "\"name\":\"A\"",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
