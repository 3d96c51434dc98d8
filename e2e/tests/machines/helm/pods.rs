//! The pods of a release.

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

/// Selects the pods of releases of the chart.
pub const OURS: &str = "app.kubernetes.io/part-of=operating-system-manager";

/// The pods of services, with how often their containers were started again.
///
/// # Errors
/// What the API server says.
pub async fn alive(client: &Client, namespace: &str) -> Result<BTreeMap<String, i32>> {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let pods = pods.list(&ListParams::default().labels(OURS)).await?;
    let stays = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let restarts = |pod: &Pod| {
        let status = pod.status.as_ref();
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        containers
            .into_iter()
            .flatten()
            .map(|container| container.restart_count)
            .sum()
    };
    Ok(stays.map(|pod| (pod.name_any(), restarts(pod))).collect())
}
