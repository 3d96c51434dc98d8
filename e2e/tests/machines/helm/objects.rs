//! Lists all objects of a cluster.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use osm_api::names::{CLOUD_INIT_SETTINGS, GROUP};
use osm_lab::cluster::Cluster;

/// What comes and goes by itself.
const EVENTS: [&str; 2] = ["events", "events.events.k8s.io"];

/// An object: kind, namespace, name.
pub type Object = (String, String, String);

/// All objects of all kinds that can be listed, but for events.
pub async fn all(cluster: &Cluster) -> Result<BTreeSet<Object>> {
    let kinds = cluster
        .kubectl(&["api-resources", "--verbs=list", "--output=name"])
        .await?;
    let kinds: Vec<&str> = kinds
        .split_whitespace()
        .filter(|kind| !EVENTS.contains(kind))
        .collect();
    let columns = "--output=custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
    let text = cluster
        .kubectl(&[
            "get",
            &kinds.join(","),
            "--all-namespaces",
            "--no-headers",
            columns,
        ])
        .await?;
    let object = |line: &str| match line.split_whitespace().collect::<Vec<_>>().as_slice() {
        [kind, namespace, name] => Ok(((*kind).to_owned(), (*namespace).to_owned(), (*name).to_owned())),
        _ => bail!("kubectl prints {line:?}"),
    };
    text.lines().map(object).collect()
}

/// Whether an object may be left by a release that was in `namespace`: definitions with what is theirs, what existing machines and those
/// that are booting need, and what Kubernetes puts into every namespace.
pub fn may_stay((kind, namespace, name): &Object, release: &str) -> bool {
    match kind.as_str() {
        "CustomResourceDefinition" | "APIService" => name.ends_with(GROUP),
        // The node's, which is made when the kubelet thinks of it. Those of our replicas go with them.
        "Lease" => namespace == "kube-node-lease",
        "OperatingSystemProfile" | "OperatingSystemConfig" => namespace == release,
        "Namespace" => name == release || name == CLOUD_INIT_SETTINGS,
        "ServiceAccount" | "Secret" | "Role" | "RoleBinding" if namespace == CLOUD_INIT_SETTINGS => true,
        "ServiceAccount" => namespace == release && name == "default",
        "ConfigMap" => {
            name == "kube-root-ca.crt" && (namespace == release || namespace == CLOUD_INIT_SETTINGS)
        }
        _ => false,
    }
}
