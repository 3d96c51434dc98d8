//! The finalizer that the Go implementation puts on MachineDeployments. Once that no longer runs, nobody removes it, and
//! their deletion hangs. It is removed here where the installation wants that; else people are told.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use osm_api::{MachineDeployment, names};
use osm_runtime::request::failed;
use osm_runtime::{RequestError, status};
use serde_json::json;

use crate::gather::{Fate, Gathered};
use crate::state::{State, lock};
use crate::view;

/// The Go implementation, where it still runs, needs less to remove its finalizer; nobody is told before.
pub const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// The finalizer on a MachineDeployment that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Finalizer {
    /// The MachineDeployment.
    pub about: ObjectReference,
    /// Where it stands in `metadata.finalizers`.
    pub index: usize,
    /// Whether to remove it; else people are told how to.
    pub remove: bool,
}

/// Those that have to be dealt with now, and when to look again for others. Pure.
pub fn left_behind(gathered: &Gathered) -> (Vec<Finalizer>, Option<Duration>) {
    // What may be another cluster than it should be is not written to.
    if gathered.elsewhere.is_some() || gathered.fate == Fate::OtherCluster {
        return (Vec::new(), None);
    }
    let (mut found, mut again) = (Vec::new(), None);
    for md in &gathered.claimants {
        let Some((deleted, index)) = deleted_with_finalizer(md) else { continue };
        let left = PATIENCE - gathered.now.duration_since(deleted);
        let wait = Duration::try_from(left.min(PATIENCE)).ok().filter(|left| !left.is_zero());
        match wait {
            Some(wait) if !gathered.removes_finalizers => {
                again = [again, Some(wait)].into_iter().flatten().min();
            }
            _ => found.push(Finalizer {
                about: view::reference(md),
                index,
                remove: gathered.removes_finalizers,
            }),
        }
    }
    (found, again)
}

fn deleted_with_finalizer(md: &Arc<MachineDeployment>) -> Option<(jiff::Timestamp, usize)> {
    let deleted = md.metadata.deletion_timestamp.as_ref()?.0;
    let index = md.finalizers().iter().position(|finalizer| finalizer == names::GO_FINALIZER)?;
    Some((deleted, index))
}

/// Removes those that are to be removed; returns the others.
///
/// # Errors
/// Requests that failed; [`RequestError::Conflict`] where the finalizers are not those that were seen.
pub async fn remove(state: &State, finalizers: Vec<Finalizer>) -> Result<Vec<Finalizer>, RequestError> {
    let (remove, tell): (Vec<_>, Vec<_>) = finalizers.into_iter().partition(|finalizer| finalizer.remove);
    for Finalizer { about, index, .. } in remove {
        const WHAT: &str = "removing a finalizer of the Go implementation";
        let (namespace, name) = (about.namespace.unwrap_or_default(), about.name.unwrap_or_default());
        let api: Api<MachineDeployment> = Api::namespaced(state.context.worker.client.clone(), &namespace);
        // A patch of this one place: whatever else stands in the object stays as it is.
        let place = format!("/metadata/finalizers/{index}");
        let patch = serde_json::from_value(json!([
            {"op": "test", "path": "/metadata/uid", "value": about.uid},
            {"op": "test", "path": place, "value": names::GO_FINALIZER},
            {"op": "remove", "path": place},
        ]));
        let patch = patch.map_err(|error| failed(WHAT)(kube::Error::SerdeError(error)))?;
        match api.patch(&name, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
            Ok(_) => tracing::info!(
                namespace,
                machine_deployment = name,
                finalizer = names::GO_FINALIZER,
                "removed from a MachineDeployment that is being deleted"
            ),
            Err(error) if status::is_code(&error, 404) => {}
            // A test failed.
            Err(error) if status::is_code(&error, 422) => return Err(RequestError::Conflict { what: WHAT }),
            Err(error) => return Err(failed(WHAT)(error)),
        }
    }
    Ok(tell)
}

/// Tells people of each MachineDeployment once.
pub async fn tell(state: &State, finalizers: &[Finalizer]) {
    for Finalizer { about, index, .. } in finalizers {
        if !lock(&state.told_of_finalizer).insert(about.uid.clone().unwrap_or_default()) {
            continue;
        }
        let (namespace, name) =
            (about.namespace.as_deref().unwrap_or_default(), about.name.as_deref().unwrap_or_default());
        let message = format!(
            "its deletion waits for the Go implementation of Operating System Manager to remove the finalizer {}. If that \
             no longer runs: start osc-controller with --remove-go-finalizers, or remove it by `kubectl patch \
             machinedeployments.cluster.k8s.io -n {namespace} {name} --type json -p \
             '[{{\"op\": \"remove\", \"path\": \"/metadata/finalizers/{index}\"}}]'`",
            names::GO_FINALIZER
        );
        tracing::warn!(namespace, machine_deployment = name, "{message}");
        state.context.worker.events.warning(about, "FinalizerLeftBehind", &message).await;
    }
}
