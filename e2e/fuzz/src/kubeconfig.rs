//! A kubeconfig: of a worker cluster, or in `kube-public/cluster-info`. The same text is read as the registry credentials of a Secret.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use osm_api::cluster_endpoint::Discovered;
use osm_api::config::{LateBoundKind, LateBoundSource};
use secret_syncer::model::source::{SourceData, value_of};
use serde_json::{Value, json};

use crate::{bounds, canary};

/// Each reads it, or refuses it without repeating a value, runs nothing and opens no file.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let canary_in_input = canary::is_in(text);
    read(text, canary_in_input);
    let Ok(document) = serde_json::from_str::<Value>(text) else {
        return;
    };
    // A message may repeat the name of a context, a cluster or a user.
    let is_value = |planted: &Value| without_values(planted) == without_values(&document);
    if let Some(planted) = canary::plant(&document, text).filter(is_value)
        && !canary_in_input
    {
        read(&planted.to_string(), false);
    }
}

fn without_values(document: &Value) -> Value {
    let mut names = document.clone();
    for (list, value) in [("clusters", "cluster"), ("users", "user")] {
        let items = names.get_mut(list).and_then(Value::as_array_mut);
        for item in items.into_iter().flatten().filter_map(Value::as_object_mut) {
            item.remove(value);
        }
    }
    names
}

fn read(text: &str, canary_in_input: bool) {
    let config = bounds::within("a kubeconfig", || {
        osm_runtime::kubeconfig::of_foreign(text).now_or_never()
    });
    assert!(config.is_some(), "it waits for something");
    match config {
        None => {}
        Some(Ok(config)) => {
            let auth = &config.auth_info;
            let reaches_out = auth.exec.is_some() || auth.token_file.is_some() || auth.client_key.is_some();
            assert!(!reaches_out, "a program or a file");
        }
        Some(Err(error)) if canary_in_input => assert!(!error.to_string().is_empty()),
        Some(Err(error)) => canary::check(&format!("{error:#}")),
    }
    let map = ConfigMap {
        data: Some(BTreeMap::from([("kubeconfig".to_owned(), text.to_owned())])),
        ..ConfigMap::default()
    };
    let found = bounds::within("cluster-info", || Discovered::from_cluster_info(&map));
    assert!(found.api_servers.len() <= 1, "more than the first cluster");
    registry(text);
}

fn registry(text: &str) {
    let secret = Secret {
        data: Some(BTreeMap::from([(
            ".dockerconfigjson".to_owned(),
            ByteString(text.into()),
        )])),
        ..Secret::default()
    };
    let source = LateBoundSource {
        namespace: "n".to_owned(),
        name: "s".to_owned(),
        key: "docker.io".to_owned(),
    };
    let data = bounds::within("registry credentials", || SourceData::of_secret(secret));
    let value = |kind| value_of(kind, &source, &data);
    let both = (
        value(LateBoundKind::RegistryUsername).is_ok(),
        value(LateBoundKind::RegistryPassword).is_ok(),
    );
    assert_eq!(both.0, both.1, "half of the credentials");
}

/// Good ones, what may not be in one of another cluster, and credentials in both forms.
pub fn seeds() -> Vec<String> {
    let with = |cluster: Value, user: Value| {
        json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "n"}}]})
        .to_string()
    };
    let server = "https://api.example:6443";
    let yaml = "apiVersion: v1\nkind: Config\nclusters:\n- name: ''\n  cluster: {server: 'https://a.example:6443', \
                certificate-authority-data: QUFB}\n";
    vec![
        yaml.to_owned(),
        with(json!({"server": server, "insecure-skip-tls-verify": true, "tls-server-name": "a"}), json!({"token": "t"})),
        with(
            json!({"server": server, "certificate-authority-data": "QUFB", "proxy-url": "http://p.example:1", "disable-compression": true}),
            json!({"client-certificate-data": "QUFB", "client-key-data": "QUFB", "username": "a", "password": "b", "as": "c", "as-groups": ["d"]}),
        ),
        with(json!({"server": server, "certificate-authority": "/etc/passwd"}), json!({"tokenFile": "/etc/passwd"})),
        with(
            json!({"server": server}),
            json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "true", "args": ["a"], "env": [{"name": "A", "value": "b"}]},
                "auth-provider": {"name": "gcp", "config": {"a": "b"}}}),
        ),
        json!({"auths": {"https://index.docker.io/v1/": {"auth": "dTpwOnE="}, "quay.example": {"username": "a", "password": "b"}}}).to_string(),
        json!({"auths": {"docker.io": {"username": "a", "password": "b", "auth": "!"}}}).to_string(),
    ]
}
