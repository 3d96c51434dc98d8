//! The ServiceAccount of a pool, its Role and its RoleBinding; and `osm-node-bootstrap`, which all pools share.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use osm_api::names::NODE_BOOTSTRAP_ACCOUNT;
use osm_runtime::Api;
use osm_runtime::RequestError;
use osm_runtime::error::{already_exists, is_code};
use osm_runtime::request::failed;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::io::apply::{objects, teardown};
use crate::io::caches;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::found::Identity;
use crate::model::key::Key;
use crate::model::view::{ROLE_IDENTITY, RoleView};
use crate::plan::identity::{IdentityAdoption, of_identity, opens, role_step};
use crate::plan::steps::{BindingStep, Publish, RoleStep};

/// The account whose tokens kubelets of all pools join with. Returns its uid.
///
/// # Errors
/// Requests that failed. This holds for the other functions here as well.
pub async fn node_account(context: &Context, existing: Option<&str>) -> Result<String, ApplyError> {
    if let Some(uid) = existing {
        return Ok(uid.to_owned());
    }
    let metadata = ObjectMeta {
        name: Some(NODE_BOOTSTRAP_ACCOUNT.to_owned()),
        ..ObjectMeta::default()
    };
    let api: Api<ServiceAccount> = context.clients.in_namespace();
    let created = match api
        .create(&PostParams::default(), &objects::account(metadata))
        .await
    {
        Err(error) if already_exists(&error) => api.get(NODE_BOOTSTRAP_ACCOUNT).await,
        outcome => outcome,
    };
    Ok(context
        .caches
        .wrote_account(&created.map_err(failed("ServiceAccount osm-node-bootstrap"))?))
}

/// Returns its uid.
pub async fn account(context: &Context, publish: &Publish) -> Result<String, ApplyError> {
    if let Some(uid) = &publish.account {
        return Ok(uid.clone());
    }
    let account = objects::account(metadata(context, publish));
    let created = create(
        context,
        &context.clients.in_namespace(),
        &account,
        "a pool's ServiceAccount",
    )
    .await?;
    if context.memory.joining_is_open().is_none() {
        context.queue.add(Key::JoinRight);
    }
    Ok(context.caches.wrote_account(&created))
}

/// The Role opens exactly these Secrets, and the RoleBinding binds the pool's ServiceAccount to it. Returns whether the API server has stored
/// both as they were sent.
pub async fn open(
    context: &Context,
    existing: Option<&RoleView>,
    publish: &Publish,
    secrets: &[String],
) -> Result<bool, ApplyError> {
    let step = role_step(existing, secrets);
    let role = put_role(context, step, metadata(context, publish), secrets).await?;
    let is_bound = binding(context, publish).await?;
    Ok(is_bound && opens(role.as_ref(), secrets))
}

pub async fn put_role(
    context: &Context,
    step: RoleStep,
    mut metadata: ObjectMeta,
    secrets: &[String],
) -> Result<Option<RoleView>, ApplyError> {
    const WHAT: &str = "a pool's Role";
    let api: Api<Role> = context.clients.in_namespace();
    let written = match step {
        RoleStep::Keep => return Ok(None),
        RoleStep::Create => create(context, &api, &objects::role(metadata, secrets), WHAT).await?,
        RoleStep::Replace { resource_version } => {
            let name = metadata.name.clone().unwrap_or_default();
            metadata.resource_version = Some(resource_version);
            let role = objects::role(metadata, secrets);
            api.replace(&name, &PostParams::default(), &role)
                .await
                .map_err(failed(WHAT))?
        }
    };
    Ok(Some(context.caches.wrote_role(&written)))
}

/// Returns whether it binds the Role to the ServiceAccount.
async fn binding(context: &Context, publish: &Publish) -> Result<bool, ApplyError> {
    const WHAT: &str = "a pool's RoleBinding";
    let api: Api<RoleBinding> = context.clients.in_namespace();
    let name = &publish.identity;
    match &publish.binding {
        BindingStep::Keep => return Ok(true),
        BindingStep::Create => {}
        BindingStep::Recreate { uid } => {
            teardown::delete(&api, name, uid, None, WHAT).await?;
            context.caches.bindings.deleted(&caches::key(name), uid);
        }
    }
    let binding = objects::binding(metadata(context, publish), name);
    let created = create(context, &api, &binding, WHAT).await?;
    Ok(context.caches.wrote_binding(&created).good)
}

fn metadata(context: &Context, publish: &Publish) -> ObjectMeta {
    objects::metadata(
        &publish.ownership,
        &context.clients.installation,
        &publish.identity,
        ROLE_IDENTITY,
    )
}

/// Creates an object, or adopts the one that has its name, as [`of_identity`] decides.
async fn create<K>(context: &Context, api: &Api<K>, object: &K, what: &'static str) -> Result<K, ApplyError>
where
    K: kube::Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + Debug,
{
    let refused = match api.create(&PostParams::default(), object).await {
        Err(error) if already_exists(&error) => error,
        outcome => return Ok(outcome.map_err(failed(what))?),
    };
    let name = object.meta().name.clone().unwrap_or_default();
    let found = api.get_metadata(&name).await.map_err(failed(what))?.metadata;
    match of_identity(
        &context.clients.installation,
        &Identity::of(object.meta()),
        &Identity::of(&found),
    ) {
        IdentityAdoption::GatherAgain => Err(RequestError::Conflict { what }.into()),
        IdentityAdoption::Foreign => Err(failed(what)(refused).into()),
        IdentityAdoption::Patch {
            resource_version,
            uid,
        } => {
            let mut fenced = object.clone();
            fenced.meta_mut().resource_version = resource_version;
            match api
                .patch(&name, &PatchParams::default(), &Patch::Merge(&fenced))
                .await
            {
                Err(error) if is_code(&error, 422) => {
                    teardown::delete(api, &name, &uid, None, what).await?;
                    Ok(api
                        .create(&PostParams::default(), object)
                        .await
                        .map_err(failed(what))?)
                }
                patched => Ok(patched.map_err(failed(what))?),
            }
        }
    }
}
