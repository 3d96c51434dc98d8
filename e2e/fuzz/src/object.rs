//! What an API server sends: a page of a list, a line of a watch, or one object, as JSON.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use osm_api::config::OperatingSystemConfigStatus;
use osm_api::content::ContentView;
use osm_api::profile::OperatingSystemProfileStatus;
use osm_api::{MachineDeployment, OperatingSystemConfig, OperatingSystemProfile, gzip};
use osm_runtime::object;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{bounds, canary, pipeline};

/// Each object is decoded by itself, or reported without repeating a value; its other parts are still read.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let canary_in_input = canary::is_in(text);
    all_kinds(text, canary_in_input);
    let document = serde_json::from_str::<Value>(text).ok();
    if let Some(planted) = document.and_then(|document| canary::plant(&document, text))
        && !canary_in_input
    {
        all_kinds(&planted.to_string(), false);
    }
}

fn all_kinds(text: &str, canary_in_input: bool) {
    decode::<MachineDeployment, Value>(text, canary_in_input);
    decode::<OperatingSystemProfile, OperatingSystemProfileStatus>(text, canary_in_input);
    decode::<CertificateSigningRequest, Value>(text, canary_in_input);
    decode::<Secret, Value>(text, canary_in_input);
    decode::<ConfigMap, Value>(text, canary_in_input);
    let config = decode::<OperatingSystemConfig, OperatingSystemConfigStatus>(text, canary_in_input);
    let Some(config) = config else { return };
    match bounds::within("a stored content", || ContentView::of(&config).content()) {
        Ok(content) => pipeline::documents(&content),
        Err(error) => check(&error.to_string(), canary_in_input),
    }
}

fn decode<K: DeserializeOwned, S: DeserializeOwned + Default>(
    text: &str,
    canary_in_input: bool,
) -> Option<K> {
    match bounds::within("decoding", || object::decode::<K>(text)).ok()? {
        Ok(object) => Some(object),
        Err(unreadable) => {
            assert!(unreadable.metadata.name.is_some(), "an object without a name");
            check(&unreadable.problem.to_string(), canary_in_input);
            let _: S = bounds::within("a part", || unreadable.part("status"));
            None
        }
    }
}

fn check(message: &str, canary_in_input: bool) {
    assert!(!message.is_empty(), "an error without a message");
    if !canary_in_input {
        canary::check(message);
    }
}

/// One of each kind, in each form.
pub fn seeds() -> Vec<String> {
    let metadata = |name: &str| {
        json!({"name": name, "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 1,
            "labels": {"a": "b"}, "annotations": {"c": "d"}, "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": {}}}]})
    };
    let packed = gzip::USUAL.base64("{}");
    let osm = "operatingsystemmanager.k8c.io/v1alpha1";
    let rendered = json!({"digest": "d", "revision": "1", "osName": "ubuntu", "cloudProvider": "aws",
        "provisioningUtility": "cloud-init", "provisioning": packed, "bootstrap": packed,
        "lateBound": [{"id": "api/token", "kind": "ApiToken"}]});
    let condition = json!({"type": "Rendered", "status": "True", "reason": "Rendered", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1});
    let objects = [
        json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "metadata": metadata("pool"),
            "spec": {"template": {"spec": {"versions": {"kubelet": "1.34.2"}, "providerSpec": {"value": pipeline::provider_spec()}}}}}),
        json!({"apiVersion": osm, "kind": "OperatingSystemProfile", "metadata": metadata("profile"), "spec": pipeline::small(),
            "status": {"accepted": {"version": "v1.0.0", "digest": "d", "spec": pipeline::small()}}}),
        json!({"apiVersion": osm, "kind": "OperatingSystemConfig", "metadata": metadata("config"),
            "spec": {"poolRef": {"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment", "namespace": "n", "name": "p", "uid": "u"}},
            "status": {"conditions": [condition], "rendered": rendered}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata("secret"), "type": "Opaque", "immutable": true,
            "data": {"a": "QUFB"}}),
        json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": metadata("csr"),
            "spec": {"request": "QUFB", "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "usages": ["client auth"],
                "groups": ["g"], "username": "u", "extra": {"e": ["f"]}}, "status": {}}),
    ];
    let page =
        json!({"kind": "List", "metadata": {"resourceVersion": "7", "continue": "t"}, "items": objects});
    let lines = objects
        .iter()
        .zip(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]);
    let lines = lines.map(|(object, kind)| json!({"type": kind, "object": object}).to_string());
    let broken = json!({"metadata": metadata("deep"), "spec": {"osName": "none", "units": 1}, "status": {"conditions": 1}});
    lines.chain([page.to_string(), broken.to_string()]).collect()
}
