//! The finalizer that the upstream OSM puts on MachineDeployments. Once that no longer runs, deletions hang.
//!
//! It is removed where the installation asks for that (`--remove-upstream-finalizers`). Otherwise an Event
//! explains what to do.

use std::sync::Arc;

use kube::api::{Patch, PatchParams};
use osm_api::{MachineDeployment, PoolRef, Reason, names};
use osm_runtime::request::failed;
use osm_runtime::{Api, Error, error};
use serde_json::json;

use crate::context::Context;
use crate::gather::{Gathered, PoolPresence};
use crate::view::PoolView;

/// The finalizer on a MachineDeployment that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Finalizer {
    pub pool: PoolRef,
    /// Position in `metadata.finalizers`.
    pub index: usize,
}

impl Finalizer {
    pub fn advice(&self) -> String {
        let PoolRef { namespace, name, .. } = &self.pool;
        format!(
            "deletion waits for the finalizer {} of the upstream Operating System Manager. If it no \
             longer runs, start osc-controller with --remove-upstream-finalizers, or run `kubectl patch \
             machinedeployments.cluster.k8s.io -n {namespace} {name} --type json -p \
             '[{{\"op\": \"remove\", \"path\": \"/metadata/finalizers/{}\"}}]'`",
            names::GO_FINALIZER,
            self.index
        )
    }
}

/// The finalizers of the claimants that only this controller removes.
pub fn left_behind(gathered: &Gathered) -> Vec<Finalizer> {
    // Never write to what is perhaps the wrong cluster.
    let is_elsewhere = gathered.other_cluster.is_some() || gathered.presence == PoolPresence::OtherCluster;
    if is_elsewhere || !gathered.finalizers_are_left {
        return Vec::new();
    }
    let of_claimant = |claimant: &Arc<PoolView>| {
        Some(Finalizer {
            pool: claimant.pool_ref.clone(),
            index: claimant.go_finalizer_of_deleted?,
        })
    };
    gathered.claimants.iter().filter_map(of_claimant).collect()
}

/// Removes each of these where the installation asks for that, else emits one Event about it.
///
/// It is the last step of a reconcile: a webhook for MachineDeployments, such as that of machine-controller,
/// can delay or refuse the request, and must not delay the status.
///
/// # Errors
/// The first request that failed; the finalizers after it stay.
pub async fn release(context: &Context, finalizers: &[Finalizer]) -> Result<(), Error> {
    for finalizer in finalizers {
        if context.cluster.installation.go_finalizers {
            remove(context, finalizer).await?;
        } else if context.memory.report_finalizer(&finalizer.pool.uid) {
            let PoolRef { namespace, name, .. } = &finalizer.pool;
            let advice = finalizer.advice();
            tracing::warn!(namespace, machine_deployment = name, "{advice}");
            let (about, reason) = ((&finalizer.pool).into(), Reason::FinalizerLeftBehind);
            context
                .cluster
                .worker
                .events
                .warning(&about, reason, &advice)
                .await;
        }
    }
    Ok(())
}

async fn remove(context: &Context, finalizer: &Finalizer) -> Result<(), Error> {
    const WHAT: &str = "removing a finalizer of the upstream OSM";
    let PoolRef {
        namespace, name, uid, ..
    } = &finalizer.pool;
    let api: Api<MachineDeployment> = Api::namespaced(context.cluster.worker.client.clone(), namespace);
    // A JSON patch of this one item leaves everything else in the object as it is, also fields that are
    // unknown here.
    let place = format!("/metadata/finalizers/{}", finalizer.index);
    let patch = serde_json::from_value(json!([
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": place, "value": names::GO_FINALIZER},
        {"op": "remove", "path": place},
    ]));
    let patch = patch.map_err(|error| failed(WHAT)(kube::Error::SerdeError(error)))?;
    match api
        .patch(name, &PatchParams::default(), &Patch::<()>::Json(patch))
        .await
    {
        Ok(_) => {
            tracing::info!(
                namespace,
                machine_deployment = name,
                finalizer = names::GO_FINALIZER,
                "removed from a MachineDeployment that is being deleted"
            );
            Ok(())
        }
        Err(error) if error::is_code(&error, 404) => Ok(()),
        // A `test` failed: the finalizers are no longer those that were seen.
        Err(error) if error::is_code(&error, 422) => Err(Error::Conflict { what: WHAT }),
        Err(error) => Err(failed(WHAT)(error)),
    }
}
