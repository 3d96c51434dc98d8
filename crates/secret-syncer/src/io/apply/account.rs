//! Owns the ServiceAccount of a pool, and its rights, a Role and a RoleBinding: creates or adopts them, opens
//! documents to the account, and deletes them.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use osm_api::names;
use osm_runtime::Api;
use osm_runtime::error::{already_exists, is_code};
use osm_runtime::request::failed;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::io::apply::objects;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::existing::Ownership;
use crate::model::gathered::Gathered;
use crate::model::view::{self, Meta, PURPOSE_IDENTITY};
use crate::plan::adoption::{Adoption, of_identity};

/// The pool's ServiceAccount exists afterwards.
///
/// # Errors
/// Requests that failed. This holds for the other functions here as well.
pub async fn ensure(context: &Context, gathered: &Gathered, ownership: &Ownership) -> Result<(), ApplyError> {
    if gathered.existing.account.is_some() {
        return Ok(());
    }
    let account = ServiceAccount {
        metadata: metadata(context, gathered, ownership),
        // Pods that borrow the account get no token.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    };
    let created = create_or_adopt(context, &account, "a pool's ServiceAccount").await?;
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
    const WHAT: &str = "a pool's RoleBinding";
    // The Role comes first, so that the RoleBinding never binds a Role of someone else.
    let is_open = set_role(context, gathered, ownership, secrets).await?;
    match gathered.existing.binding.as_deref() {
        Some(binding) if binding.good => return Ok(is_open),
        // What a RoleBinding refers to can't be changed, so a wrong one is deleted first.
        Some(wrong) => {
            let cache = &context.caches.bindings;
            objects::delete::<RoleBinding, _>(context, cache, &wrong.meta, WHAT).await?;
        }
        None => {}
    }
    let name = names::pool_account(&gathered.pool());
    let binding = RoleBinding {
        metadata: metadata(context, gathered, ownership),
        role_ref: view::role_ref(&name),
        subjects: Some(vec![view::subject(&name)]),
    };
    let created = create_or_adopt(context, &binding, WHAT).await?;
    Ok(context.caches.wrote_binding(&created).good && is_open)
}

/// Returns whether the Role opens exactly these Secrets. A write that would change nothing is not sent.
pub async fn set_role(
    context: &Context,
    gathered: &Gathered,
    ownership: &Ownership,
    secrets: &[String],
) -> Result<bool, ApplyError> {
    const WHAT: &str = "a pool's Role";
    let mut role = Role {
        metadata: metadata(context, gathered, ownership),
        rules: Some(vec![view::rule(secrets)]),
    };
    let written = match gathered.existing.role.as_deref() {
        None => create_or_adopt(context, &role, WHAT).await?,
        Some(existing) if existing.secrets.as_deref() == Some(secrets) => return Ok(true),
        Some(existing) => {
            role.metadata.resource_version = Some(existing.meta.resource_version.clone());
            let api: Api<Role> = context.in_namespace();
            let replaced = api
                .replace(&existing.meta.name, &PostParams::default(), &role)
                .await;
            replaced.map_err(failed(WHAT))?
        }
    };
    let written = context.caches.wrote_role(&written);
    Ok(written.secrets.as_deref() == Some(secrets))
}

/// Deletes the ServiceAccount, which revokes the pool's tokens.
pub async fn revoke(context: &Context, account: &Meta) -> Result<(), ApplyError> {
    let cache = &context.caches.accounts;
    objects::delete::<ServiceAccount, _>(context, cache, account, "the pool's ServiceAccount").await
}

/// Deletes the RoleBinding.
pub async fn unbind(context: &Context, binding: &Meta) -> Result<(), ApplyError> {
    let cache = &context.caches.bindings;
    objects::delete::<RoleBinding, _>(context, cache, binding, "the pool's RoleBinding").await
}

/// Deletes the Role.
pub async fn close(context: &Context, role: &Meta) -> Result<(), ApplyError> {
    objects::delete::<Role, _>(context, &context.caches.roles, role, "the pool's Role").await
}

fn metadata(context: &Context, gathered: &Gathered, ownership: &Ownership) -> ObjectMeta {
    let name = names::pool_account(&gathered.pool());
    ownership.metadata(&context.installation, &name, PURPOSE_IDENTITY)
}

/// Creates an object, or adopts the one that has its name, as [`of_identity`] decides.
async fn create_or_adopt<K>(context: &Context, object: &K, what: &'static str) -> Result<K, ApplyError>
where
    K: kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Serialize
        + DeserializeOwned
        + Debug,
{
    let api: Api<K> = context.in_namespace();
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
            objects::delete_exactly(&api, &name, &uid, None, what).await?;
            api.create(&PostParams::default(), object).await
        }
        patched => patched,
    };
    Ok(patched.map_err(failed(what))?)
}
