//! What a migration restores an object from.

use serde_json::{Value, json};

use super::kinds;
use crate::cluster::Object;

/// Type of a Secret with a token.
pub const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";

/// What the migration restores an object from: without what the API server or a controller adds.
pub fn restorable(object: &Object) -> Value {
    let mut value = object.value.clone();
    if let Some(fields) = value.as_object_mut() {
        fields.shift_remove("status");
    }
    if let Some(metadata) = value.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        // An owner that is created again has another uid, and the garbage collector would delete what refers to the old one.
        for field in [
            "creationTimestamp",
            "generation",
            "managedFields",
            "ownerReferences",
            "resourceVersion",
            "selfLink",
            "uid",
        ] {
            metadata.shift_remove(field);
        }
        // For the same reason, kube-controller-manager would delete a token.
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.shift_remove("kubernetes.io/service-account.uid");
        }
    }
    if object.kind == kinds::SERVICE
        && let Some(spec) = value.pointer_mut("/spec").and_then(Value::as_object_mut)
    {
        for field in ["clusterIP", "clusterIPs"] {
            spec.shift_remove(field);
        }
    }
    value
}

/// Whether kube-controller-manager writes a token into a Secret.
pub fn is_token(secret: &Object) -> bool {
    secret.kind == kinds::SECRET && secret.text("/type") == TOKEN_TYPE
}

/// The Secret of a token without the token: kube-controller-manager writes a new one into it.
pub fn as_token(mut secret: Object) -> Object {
    if let Some(fields) = secret.value.as_object_mut() {
        fields.shift_remove("data");
        fields.insert("type".to_owned(), json!(TOKEN_TYPE));
    }
    secret
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restored_object_lacks_what_the_api_server_adds() {
        let service = Object::new(
            kinds::SERVICE,
            json!({"metadata": {"name": "s", "uid": "u", "resourceVersion": "1", "managedFields": [], "labels": {"a": "b"},
                "ownerReferences": [{"uid": "v"}],
                "annotations": {"kubernetes.io/service-account.name": "a", "kubernetes.io/service-account.uid": "w"}},
                "spec": {"clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"], "ports": []}, "status": {}}),
        );
        assert_eq!(
            restorable(&service),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "labels": {"a": "b"},
                "annotations": {"kubernetes.io/service-account.name": "a"}}, "spec": {"ports": []}})
        );
    }
}
