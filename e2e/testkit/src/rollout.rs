//! Stands in for the controller of Deployments and for the nodes, on API servers without nodes: every
//! Deployment is rolled out at once.

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// How often new and changed Deployments are looked for.
const INTERVAL: Duration = Duration::from_millis(100);

/// Reports of each Deployment that is new or has changed that all its replicas are available. It goes on
/// until it is dropped.
///
/// # Errors
/// When Deployments can't be listed.
pub async fn roll_out(client: Client) -> Result<Infallible> {
    let every = ListParams::default();
    loop {
        for deployment in Api::<Deployment>::all(client.clone()).list(&every).await? {
            let (name, namespace) = (deployment.name_any(), deployment.namespace().unwrap_or_default());
            let generation = deployment.metadata.generation;
            if deployment.status.and_then(|status| status.observed_generation) == generation {
                continue;
            }
            let replicas = deployment.spec.and_then(|spec| spec.replicas).unwrap_or(1);
            // Helm 4 waits for this reason.
            let condition =
                |type_: &str| json!({"type": type_, "status": "True", "reason": "NewReplicaSetAvailable"});
            let status = json!({"status": {"observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": replicas, "availableReplicas": replicas,
                "conditions": [condition("Available"), condition("Progressing")]}});
            let api = Api::<Deployment>::namespaced(client.clone(), &namespace);
            // It may be gone already.
            let _ = api
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
                .await;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
