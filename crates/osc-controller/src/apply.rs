//! Writes the objects of a plan.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use osm_api::PoolRef;
use osm_api::config::OperatingSystemConfig;
use osm_api::content::spec_for;
use osm_runtime::request::failed;
use osm_runtime::{Error, error};
use serde_json::json;

use crate::context::Context;
use crate::gather::Gathered;
use crate::plan::{ObjectPlan, Plan};
use crate::view::ConfigView;

const WHAT: &str = "the OperatingSystemConfig";

/// Applies a plan; returns the OperatingSystemConfig as it is then. `None` means that it does not exist.
///
/// # Errors
/// Requests that failed; [`Error::Conflict`] where an object is no longer what was seen; what forbids to
/// write anything.
pub async fn apply(context: &Context, gathered: &Gathered, plan: &Plan) -> Result<Option<ConfigView>, Error> {
    if let Some(problem) = context.cluster.process.outdated_definitions.problem() {
        // The API server would drop fields, and what is left would be confirmed and published.
        return Err(Error::DefinitionsOutdated { problem });
    }
    let (api, name) = (context.config_api(), gathered.name.as_str());
    match &plan.object {
        ObjectPlan::Keep => Ok(gathered.config.as_deref().cloned()),
        ObjectPlan::Create(metadata, pool) => {
            match api.create(&PostParams::default(), &object(metadata, pool)).await {
                Ok(created) => Ok(Some(context.wrote(created))),
                Err(error) if error::already_exists(&error) => {
                    // The watch has not shown it yet. The next plan needs it.
                    context.read_config(name).await?;
                    Err(Error::Conflict { what: WHAT })
                }
                Err(error) => Err(failed("creating the OperatingSystemConfig")(error)),
            }
        }
        ObjectPlan::Replace(metadata, pool) => {
            let replaced = api
                .replace(name, &PostParams::default(), &object(metadata, pool))
                .await;
            Ok(Some(context.wrote(replaced.map_err(failed(WHAT))?)))
        }
        ObjectPlan::Claim(metadata, pool) => {
            // The resourceVersion in the metadata makes it fail with 409 if the object has changed.
            let patch = json!({"metadata": metadata, "spec": {"poolRef": pool}});
            let patched = api
                .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            Ok(Some(context.wrote(patched.map_err(failed(WHAT))?)))
        }
        ObjectPlan::Delete(preconditions) => {
            let params = DeleteParams::default().preconditions(preconditions.clone());
            match api.delete(name, &params).await {
                Ok(_) => {}
                Err(error) if error::is_code(&error, 404) => {}
                Err(error) => return Err(failed(WHAT)(error)),
            }
            context.deleted(name, preconditions.uid.as_deref().unwrap_or_default());
            Ok(None)
        }
    }
}

fn object(metadata: &ObjectMeta, pool: &PoolRef) -> OperatingSystemConfig {
    OperatingSystemConfig {
        metadata: metadata.clone(),
        spec: spec_for(pool.clone()),
        status: None,
    }
}
