//! Writes the objects of a plan.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use osm_api::config::OperatingSystemConfig;
use osm_api::content::spec_for;
use osm_api::{MachineDeployment, PoolRef, names};
use osm_runtime::Api;
use osm_runtime::request::failed;
use osm_runtime::{RequestError, error};
use serde_json::json;

use crate::context::Context;
use crate::finalizer::Finalizer;
use crate::gather::Gathered;
use crate::plan::{ObjectPlan, Plan, Rejection, StatusPlan};
use crate::view::ConfigView;

/// What was done, and what is left to report.
#[derive(Debug)]
pub struct Applied {
    /// The OperatingSystemConfig as it is now. `None` means that it does not exist.
    pub config: Option<ConfigView>,
    /// Whether this reconcile deleted it.
    pub deleted: bool,
    /// The status to write; `None` leaves it.
    pub status: Option<StatusPlan>,
    pub rejected: Vec<Rejection>,
    /// The pool whose object gets Events about failure and recovery.
    pub subject: Option<PoolRef>,
    /// Finalizers of the Go implementation to report.
    pub report_finalizers: Vec<Finalizer>,
    /// Finalizers of the Go implementation to remove with [`release_finalizers`].
    pub remove_finalizers: Vec<Finalizer>,
    pub requeue_after: Option<Duration>,
}

/// Applies a plan.
///
/// # Errors
/// Requests that failed; [`RequestError::Conflict`] where an object is no longer what was seen.
pub async fn apply(context: &Context, gathered: &Gathered, plan: Plan) -> Result<Applied, RequestError> {
    context.memory.set_waiting(&gathered.name, plan.waiting);
    let deleted = matches!(plan.object, ObjectPlan::Delete { .. });
    let config = write_object(context, gathered, plan.object).await?;
    Ok(Applied {
        config,
        deleted,
        status: plan.status,
        rejected: plan.rejected,
        subject: plan.subject,
        report_finalizers: plan.report_finalizers,
        remove_finalizers: plan.remove_finalizers,
        requeue_after: plan.requeue_after,
    })
}

async fn write_object(
    context: &Context,
    gathered: &Gathered,
    plan: ObjectPlan,
) -> Result<Option<ConfigView>, RequestError> {
    let (api, name) = (context.config_api(), gathered.name.as_str());
    match plan {
        ObjectPlan::Keep => Ok(gathered.config.as_deref().cloned()),
        ObjectPlan::Create(metadata, pool) => {
            // The last room is for one of those that were planned at the same moment. The others are planned again.
            let Some(_creation) = context.begin_creation() else {
                return Err(RequestError::Conflict {
                    what: "the number of OperatingSystemConfigs",
                });
            };
            let object = OperatingSystemConfig {
                metadata,
                spec: spec_for(pool),
                status: None,
            };
            match api.create(&PostParams::default(), &object).await {
                Ok(created) => Ok(Some(context.wrote(created))),
                Err(error) if error::already_exists(&error) => {
                    // The watch has not shown it yet. The next plan needs it.
                    context.read_config(name).await?;
                    Err(RequestError::Conflict {
                        what: "the OperatingSystemConfig",
                    })
                }
                Err(error) => Err(failed("creating the OperatingSystemConfig")(error)),
            }
        }
        ObjectPlan::Replace(metadata, pool) => {
            let object = OperatingSystemConfig {
                metadata,
                spec: spec_for(pool),
                status: None,
            };
            let replaced = api.replace(name, &PostParams::default(), &object).await;
            Ok(Some(
                context.wrote(replaced.map_err(failed("the OperatingSystemConfig"))?),
            ))
        }
        ObjectPlan::Claim(metadata, pool) => {
            // The resourceVersion in the metadata makes it fail with 409 if the object has changed.
            let patch = json!({"metadata": metadata, "spec": {"poolRef": pool}});
            let patched = api
                .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            Ok(Some(
                context.wrote(patched.map_err(failed("the OperatingSystemConfig"))?),
            ))
        }
        ObjectPlan::Delete {
            uid,
            resource_version,
        } => {
            let preconditions = Preconditions {
                uid: Some(uid.clone()),
                resource_version: Some(resource_version),
            };
            match api
                .delete(name, &DeleteParams::default().preconditions(preconditions))
                .await
            {
                Ok(_) => {}
                Err(error) if error::is_code(&error, 404) => {}
                Err(error) => return Err(failed("the OperatingSystemConfig")(error)),
            }
            context.deleted(name, &uid);
            Ok(None)
        }
    }
}

/// Removes finalizers of the Go implementation. It is the last step of a reconcile: the webhooks of MachineDeployments can
/// delay or refuse the request, and must not delay the status.
///
/// # Errors
/// The first request that failed; the finalizers after it stay.
pub async fn release_finalizers(context: &Context, finalizers: &[Finalizer]) -> Result<(), RequestError> {
    for finalizer in finalizers {
        remove(context, finalizer).await?;
    }
    Ok(())
}

async fn remove(context: &Context, finalizer: &Finalizer) -> Result<(), RequestError> {
    const WHAT: &str = "removing a finalizer of the Go implementation";
    let PoolRef {
        namespace, name, uid, ..
    } = &finalizer.pool;
    let api: Api<MachineDeployment> = Api::namespaced(context.cluster.worker.client.clone(), namespace);
    // A JSON patch of this one item leaves everything else in the object as it is, also fields that are unknown here.
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
        Err(error) if error::is_code(&error, 422) => Err(RequestError::Conflict { what: WHAT }),
        Err(error) => Err(failed(WHAT)(error)),
    }
}
