//! Writes the status of WorkerClusters.

use kube::Api;
use kube::api::{Patch, PatchParams};
use osm_api::condition;
use osm_api::names::WORKER_CLUSTER as NAME;
use osm_api::worker_cluster::WorkerCluster;
use serde_json::json;

use super::registration::WorkerClusterView;
use crate::status;

/// Owns `status.clusterUID`, whichever service writes it.
const UID_MANAGER: &str = "operating-system-manager-cluster-uid";

/// Records the uid of the cluster, unless the WorkerCluster has changed meanwhile: another service may have
/// recorded one.
///
/// # Errors
/// Those of the request.
pub async fn pin(
    api: &Api<WorkerCluster>,
    view: &WorkerClusterView,
    uid: &str,
) -> Result<WorkerCluster, kube::Error> {
    let patch = json!({
        "metadata": {"resourceVersion": view.resource_version},
        "status": {"clusterUID": uid},
    });
    let params = PatchParams {
        field_manager: Some(UID_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    api.patch_status(NAME, &params, &Patch::Merge(patch)).await
}

/// Writes the condition of this service, unless it stands there already. Returns the object if it was written.
///
/// # Errors
/// Those of the request.
pub async fn report(
    api: &Api<WorkerCluster>,
    manager: &str,
    view: &WorkerClusterView,
    verdict: &condition::Verdict,
    now: jiff::Timestamp,
) -> Result<Option<WorkerCluster>, kube::Error> {
    let known = condition::find(&view.conditions, verdict.type_);
    if known.is_some_and(|known| verdict.is_reported_by(known)) {
        return Ok(None);
    }
    let condition = verdict.condition(&view.conditions, view.generation, now);
    let status = json!({"conditions": [condition]});
    status::apply(api, manager, NAME, &view.resource_version, &status).await
}
