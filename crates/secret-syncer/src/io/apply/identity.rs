//! The ServiceAccount of a pool, its Role and its RoleBinding.

use std::fmt::Debug;

use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use osm_api::names;
use osm_runtime::Api;
use osm_runtime::error::{already_exists, is_code};
use osm_runtime::request::failed;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::io::apply::{objects, teardown};
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::existing::Ownership;
use crate::model::gathered::Gathered;
use crate::model::view::{PURPOSE_IDENTITY, RoleView};
use crate::plan::adoption::{Adoption, of_identity};

/// The pool's ServiceAccount exists.
///
/// # Errors
/// Requests that failed. This holds for the other functions here as well.
pub async fn account(
    context: &Context,
    gathered: &Gathered,
    ownership: &Ownership,
) -> Result<(), ApplyError> {
    if gathered.existing.account.is_some() {
        return Ok(());
    }
    let account = objects::account(metadata(context, gathered, ownership));
    let created = create(
        context,
        &context.in_namespace(),
        &account,
        "a pool's ServiceAccount",
    )
    .await?;
    context.caches.wrote_account(&created);
    Ok(())
}

/// The Role opens exactly these Secrets, and the RoleBinding binds the pool's ServiceAccount to it. Returns
/// whether the API server has stored both as they were sent.
pub async fn open(
    context: &Context,
    gathered: &Gathered,
    ownership: &Ownership,
    secrets: &[String],
) -> Result<bool, ApplyError> {
    let is_open = role(context, gathered, ownership, secrets).await?;
    Ok(binding(context, gathered, ownership).await? && is_open)
}

/// Returns whether it opens exactly these Secrets. A write that would change nothing is not sent.
pub async fn role(
    context: &Context,
    gathered: &Gathered,
    ownership: &Ownership,
    secrets: &[String],
) -> Result<bool, ApplyError> {
    const WHAT: &str = "a pool's Role";
    let opens = |role: &RoleView| role.secrets.as_deref() == Some(secrets);
    let api: Api<Role> = context.in_namespace();
    let mut role = objects::role(metadata(context, gathered, ownership), secrets);
    let written = match gathered.existing.role.as_deref() {
        None => create(context, &api, &role, WHAT).await?,
        Some(existing) if opens(existing) => return Ok(true),
        Some(existing) => {
            role.metadata.resource_version = Some(existing.meta.resource_version.clone());
            let replaced = api
                .replace(&existing.meta.name, &PostParams::default(), &role)
                .await;
            replaced.map_err(failed(WHAT))?
        }
    };
    Ok(opens(&context.caches.wrote_role(&written)))
}

/// Returns whether it binds the Role to the ServiceAccount. What a RoleBinding refers to can't be changed, so
/// a wrong one is deleted first.
async fn binding(context: &Context, gathered: &Gathered, ownership: &Ownership) -> Result<bool, ApplyError> {
    const WHAT: &str = "a pool's RoleBinding";
    let api: Api<RoleBinding> = context.in_namespace();
    let metadata = metadata(context, gathered, ownership);
    let name = names::pool_account(&gathered.pool);
    match gathered.existing.binding.as_deref() {
        Some(binding) if binding.good => return Ok(true),
        Some(wrong) => {
            teardown::object::<RoleBinding, _>(context, &context.caches.bindings, &wrong.meta, WHAT).await?;
        }
        None => {}
    }
    let created = create(context, &api, &objects::binding(metadata, &name), WHAT).await?;
    Ok(context.caches.wrote_binding(&created).good)
}

fn metadata(context: &Context, gathered: &Gathered, ownership: &Ownership) -> ObjectMeta {
    objects::metadata(
        ownership,
        &context.installation,
        &names::pool_account(&gathered.pool),
        PURPOSE_IDENTITY,
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
    match of_identity(&context.installation, object.meta(), &found) {
        Adoption::GatherAgain => return Err(osm_runtime::Error::Conflict { what }.into()),
        Adoption::Foreign => return Err(failed(what)(refused).into()),
        Adoption::Replace | Adoption::Recreate => {}
    }
    let mut fenced = object.clone();
    fenced.meta_mut().resource_version = found.resource_version;
    let patch = Patch::Merge(&fenced);
    let patched = match api.patch(&name, &PatchParams::default(), &patch).await {
        // What a RoleBinding refers to can't be changed.
        Err(error) if is_code(&error, 422) && K::kind(&()) == "RoleBinding" => {
            let uid = found.uid.unwrap_or_default();
            teardown::delete(api, &name, &uid, None, what).await?;
            api.create(&PostParams::default(), object).await
        }
        patched => patched,
    };
    Ok(patched.map_err(failed(what))?)
}
