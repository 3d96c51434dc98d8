//! Approves the certificates with which kubelets serve logs and metrics. Kubernetes signs these certificates, but does not decide which
//! names a node may have.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Patch, PatchParams};
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

const SIGNER: &str = "kubernetes.io/kubelet-serving";

/// Pause after an approval that the API server refused.
const RETRY: Duration = Duration::from_secs(1);

/// Approves every request of a node for a serving certificate until it is dropped, so that the API server can reach kubelets.
///
/// machine-controller also compares the names and addresses with those of the Machine. There are no Machines here, and the nodes are those of
/// the test. The signer still requires the node's own name as the subject.
pub async fn approve_serving_certificates(client: Client) {
    let requests = Api::<CertificateSigningRequest>::all(client.clone());
    let config = watcher::Config::default().fields(&format!("spec.signerName={SIGNER}"));
    Controller::new(requests, config)
        .run(
            async |request, client| approve(&request, &client).await,
            |request, why, _| {
                tracing::debug!(request = request.name_any(), %why, "serving certificate not approved");
                Action::requeue(RETRY)
            },
            Arc::new(client),
        )
        .for_each(|_| ready(()))
        .await;
}

async fn approve(request: &CertificateSigningRequest, client: &Client) -> Result<Action, kube::Error> {
    let user = request.spec.username.as_deref().unwrap_or_default();
    let conditions = request
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    let is_decided = conditions.is_some_and(|conditions| !conditions.is_empty());
    if is_decided || !user.starts_with("system:node:") {
        return Ok(Action::await_change());
    }
    let approval = json!({
        "metadata": {"resourceVersion": request.resource_version()},
        "status": {"conditions": [{
            "type": "Approved", "status": "True", "reason": "ServingCertificateOfNode", "message": "a node of the test asks for it",
        }]},
    });
    Api::<CertificateSigningRequest>::all(client.clone())
        .patch_approval(
            &request.name_any(),
            &PatchParams::default(),
            &Patch::Merge(approval),
        )
        .await?;
    Ok(Action::await_change())
}
