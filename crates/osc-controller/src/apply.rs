//! Does what the plan says; sends only what differs.

use kube::api::{DeleteParams, PostParams, Preconditions};
use osm_api::condition;
use osm_api::config::{OperatingSystemConfig, OperatingSystemConfigStatus, Rendered};
use osm_runtime::request::failed;
use osm_runtime::{RequestError, status};

use crate::FIELD_MANAGER;
use crate::finalizer::{self, Finalizer};
use crate::gather::Gathered;
use crate::plan::{ObjectPlan, Plan, Rejection, StatusPlan, Vouched};
use crate::state::State;
use crate::view::ConfigView;

/// What was done, for the report.
#[derive(Debug)]
pub struct Applied {
    /// What the status now says; `None`: it was left, or the object is gone.
    pub status: Option<StatusPlan>,
    /// The object was deleted.
    pub deleted: bool,
    /// MachineDeployments to tell.
    pub rejected: Vec<Rejection>,
    /// The MachineDeployment to tell about failure and recovery.
    pub about: Option<k8s_openapi::api::core::v1::ObjectReference>,
    /// Finalizers of the Go implementation, of whose MachineDeployments people are to be told.
    pub finalizers: Vec<Finalizer>,
    /// When to look again.
    pub again: Option<std::time::Duration>,
}

/// Applies a plan.
///
/// # Errors
/// Requests that failed; [`RequestError::Conflict`] where what was seen no longer is.
pub async fn apply(state: &State, gathered: &Gathered, plan: Plan) -> Result<Applied, RequestError> {
    let Plan { object, status, rejected, about, finalizers, again } = plan;
    let deleted = matches!(object, ObjectPlan::Delete { .. });
    let view = apply_object(state, gathered, object).await?;
    if let (Some(status), Some(view)) = (&status, &view) {
        apply_status(state, gathered, status, view).await?;
    }
    // Last: the end of a pool must not be held up by it, nor hold up anything.
    let finalizers = finalizer::remove(state, finalizers).await?;
    Ok(Applied { status, deleted, rejected, about, finalizers, again })
}

async fn apply_object(
    state: &State,
    gathered: &Gathered,
    plan: ObjectPlan,
) -> Result<Option<ConfigView>, RequestError> {
    let (api, name) = (state.config_api(), gathered.name.as_str());
    match plan {
        ObjectPlan::Keep => Ok(gathered.config.as_deref().cloned()),
        ObjectPlan::Create(metadata, spec) => {
            let object = OperatingSystemConfig { metadata, spec: *spec, status: None };
            match api.create(&PostParams::default(), &object).await {
                Ok(created) => Ok(Some(state.wrote(created))),
                Err(error) if status::already_exists(&error) => {
                    // The watch has not shown it yet: take it from the server and plan again.
                    state.wrote(api.get(name).await.map_err(failed("the OperatingSystemConfig"))?);
                    Err(RequestError::Conflict { what: "the OperatingSystemConfig" })
                }
                Err(error) => Err(failed("creating the OperatingSystemConfig")(error)),
            }
        }
        ObjectPlan::Replace(metadata, spec) => {
            let object = OperatingSystemConfig { metadata, spec: *spec, status: None };
            let replaced = api.replace(name, &PostParams::default(), &object).await;
            Ok(Some(state.wrote(replaced.map_err(failed("the OperatingSystemConfig"))?)))
        }
        ObjectPlan::Delete { uid, resource_version } => {
            let preconditions =
                Preconditions { uid: Some(uid.clone()), resource_version: Some(resource_version) };
            match api.delete(name, &DeleteParams::default().preconditions(preconditions)).await {
                Ok(_) => {}
                Err(error) if status::is_code(&error, 404) => {}
                Err(error) => return Err(failed("the OperatingSystemConfig")(error)),
            }
            state.configs.deleted(&state.config_key(name), &uid);
            state.queue.add(name.to_owned());
            Ok(None)
        }
    }
}

async fn apply_status(
    state: &State,
    gathered: &Gathered,
    plan: &StatusPlan,
    view: &ConfigView,
) -> Result<(), RequestError> {
    let generation = view.metadata.generation;
    let rendered = match &plan.rendered {
        Vouched::Last(rendered) => rendered.clone(),
        Vouched::Written(rendered) => {
            Some(Rendered { generation: generation.unwrap_or(0), ..rendered.clone() })
        }
    };
    let condition = plan.verdict.condition(&view.status.conditions, generation, gathered.now);
    let stands = condition::find(&view.status.conditions, condition::RENDERED) == Some(&condition)
        && view.status.rendered == rendered
        && view.status.retired == plan.retired;
    if stands {
        return Ok(());
    }
    let status = OperatingSystemConfigStatus {
        conditions: vec![condition],
        rendered,
        published: None,
        retired: plan.retired.clone(),
    };
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    let applied = status::apply(&state.config_api(), FIELD_MANAGER, &gathered.name, version, &status).await;
    state.wrote(applied.map_err(failed("the OperatingSystemConfig's status"))?);
    Ok(())
}
