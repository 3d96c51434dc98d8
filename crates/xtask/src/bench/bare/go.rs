//! The writes of the Go implementation, by kind, order and size, with generated content.
//!
//! It adds a finalizer, creates a bootstrap token, a Secret with the kubeconfig of kubelets, the OperatingSystemConfig, and the Secrets
//! with both documents. On every change it deletes all of these but the token, and creates them again.

use osm_api::names::{BOOTSTRAP_TOKENS_NAMESPACE, CLOUD_INIT_SETTINGS, GROUP};
use osm_bare_client::pool::{POOL_NAME, REVISION, TOKEN_ID, WITH_FINALIZER, WITHOUT_FINALIZER};
use osm_bare_client::writes::{Change, Step, Template, Writes};
use serde_json::{Value, json};

use crate::bench::pools::NAMESPACE;

/// Bytes of the documents of Ubuntu on AWS.
const BOOTSTRAP_BYTES: usize = 4_647;
const PROVISIONING_BYTES: usize = 33_000;

/// Bytes of a kubeconfig with a CA certificate.
const KUBECONFIG_BYTES: usize = 2_200;

/// Files of the two stages in the OperatingSystemConfig, and the bytes of all of them together.
const BOOTSTRAP_FILES: (usize, usize) = (3, 3_400);
const PROVISIONING_FILES: (usize, usize) = (19, 23_000);

/// The requests for each change.
pub fn writes() -> Writes {
    let created = [
        vec![put(WITH_FINALIZER), create(&token()), create(&kubeconfig())],
        documents(),
    ];
    let rotated = [
        vec![delete(&kubeconfig())],
        deleted_documents(),
        vec![create(&kubeconfig())],
        documents(),
    ];
    let deleted = [
        vec![delete(&kubeconfig())],
        deleted_documents(),
        vec![put(WITHOUT_FINALIZER)],
    ];
    let rotated = rotated.concat();
    Writes(
        [
            (Change::Created, created.concat()),
            (Change::Rotated, rotated.clone()),
            (Change::Revision, rotated.clone()),
            (Change::Profile, rotated.clone()),
            (Change::Settings, rotated),
            (Change::Deleted, deleted.concat()),
        ]
        .into(),
    )
}

fn documents() -> Vec<Step> {
    vec![
        create(&config()),
        create(&document("provisioning", PROVISIONING_BYTES)),
        create(&document("bootstrap", BOOTSTRAP_BYTES)),
    ]
}

fn deleted_documents() -> Vec<Step> {
    vec![
        delete(&config()),
        delete(&document("provisioning", PROVISIONING_BYTES)),
        delete(&document("bootstrap", BOOTSTRAP_BYTES)),
    ]
}

fn token() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-@token-id@", "namespace": BOOTSTRAP_TOKENS_NAMESPACE,
            "labels": {"machinedeployment.k8s.io/name": format!("{NAMESPACE}-@name@")}},
        "stringData": {"description": "bootstrap token for @name@", "token-id": "@token-id@",
            "token-secret": "0123456789abcdef", "expiration": "2099-01-01T00:00:00Z",
            "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:machine-controller:default-node-token"}})
}

fn kubeconfig() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": format!("{NAMESPACE}-@name@-kubelet-bootstrap-config"), "namespace": CLOUD_INIT_SETTINGS},
        "stringData": {"kubeconfig": text(KUBECONFIG_BYTES)}})
}

fn document(stage: &str, bytes: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
        "metadata": {"name": format!("@name@-{NAMESPACE}-{stage}-config"), "namespace": CLOUD_INIT_SETTINGS,
            "annotations": annotations()},
        "stringData": {"cloud-config": text(bytes)}})
}

fn config() -> Value {
    json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": "OperatingSystemConfig",
    "metadata": {"name": format!("@name@-{NAMESPACE}-config"), "namespace": NAMESPACE, "annotations": annotations()},
    "spec": {
        "osName": "ubuntu", "osVersion": "24.04", "provisioningUtility": "cloud-init",
        "cloudProvider": {"name": "aws", "spec": {"region": "eu-central-1", "instanceType": "t3.large",
            "securityGroupIDs": ["sg-0123456789abcdef0"], "diskSize": 50}},
        "bootstrapConfig": {"files": files(BOOTSTRAP_FILES), "userSSHKeys": [text(100)],
            "modules": {"runcmd": ["systemctl restart bootstrap.service", "systemctl daemon-reload"]}},
        "provisioningConfig": {"files": files(PROVISIONING_FILES), "userSSHKeys": [text(100)]},
    }})
}

fn annotations() -> Value {
    json!({"k8c.io/machine-deployment-revision": "@revision@", "k8c.io/osp-version": "v1.11.2",
        "k8c.io/mdannotations-hash": "bf61b23b".repeat(8)})
}

fn files((count, bytes): (usize, usize)) -> Vec<Value> {
    let file = |i| {
        json!({"path": format!("/opt/bin/file-{i}.sh"), "permissions": 755,
            "content": {"inline": {"encoding": "b64", "data": text(bytes / count)}}})
    };
    (0..count).map(file).collect()
}

/// Lines of a script.
fn text(bytes: usize) -> String {
    let mut text = String::new();
    for line in 0.. {
        if text.len() >= bytes {
            break;
        }
        text.push_str(&format!(
            "echo \"step {line}\" && install -m 0755 /tmp/step-{line} /opt/bin/step-{line}\n"
        ));
    }
    text.truncate(bytes);
    text
}

fn create(object: &Value) -> Step {
    step("create", "POST", &collection(object), &object.to_string(), object)
}

fn delete(object: &Value) -> Step {
    let uri = format!("{}/{}", collection(object), name(object));
    step("delete", "DELETE", &uri, "", object)
}

/// Writes the MachineDeployment, as it was last seen, with or without the finalizer.
fn put(object: &str) -> Step {
    let uri = format!("/apis/cluster.k8s.io/v1alpha1/namespaces/{NAMESPACE}/machinedeployments/@name@");
    let kind = json!({"kind": "MachineDeployment"});
    Step {
        body: Template::of("@object@", &[("@object@".to_owned(), object.to_owned())]),
        ..step("update", "PUT", &uri, "", &kind)
    }
}

fn step(verb: &str, method: &str, uri: &str, body: &str, object: &Value) -> Step {
    Step {
        kind: format!("{verb} {}", resource(object)),
        method: method.to_owned(),
        uri: template(uri),
        content_type: "application/json".to_owned(),
        body: template(body),
        object: 0,
        as_node: false,
    }
}

fn template(text: &str) -> Template {
    let places = [
        ("@name@", POOL_NAME),
        ("@revision@", REVISION),
        ("@token-id@", TOKEN_ID),
    ];
    Template::of(
        text,
        &places.map(|(place, name)| (place.to_owned(), name.to_owned())),
    )
}

fn resource(object: &Value) -> String {
    format!("{}s", field(object, "/kind").to_lowercase())
}

fn collection(object: &Value) -> String {
    let version = field(object, "/apiVersion");
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = field(object, "/metadata/namespace");
    format!("/{root}/{version}/namespaces/{namespace}/{}", resource(object))
}

fn name(object: &Value) -> &str {
    field(object, "/metadata/name")
}

fn field<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_has_as_many_writes_as_the_go_implementation_sends() {
        let writes = writes().0;
        let count = |change| writes.get(&change).map(Vec::len);
        let expected = [
            (Change::Created, 6),
            (Change::Rotated, 8),
            (Change::Revision, 8),
            (Change::Deleted, 5),
        ];
        for (change, number) in expected {
            assert_eq!(count(change), Some(number), "{change:?}");
        }
    }
}
