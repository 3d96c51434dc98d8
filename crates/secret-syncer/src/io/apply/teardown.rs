//! Deletes what was made for a pool, credentials first.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::ListParams;
use kube::{Resource, ResourceExt};
use osm_api::names::POOL;
use osm_runtime::Api;
use osm_runtime::request::failed;
use serde::de::DeserializeOwned;

use crate::io::apply::config::{CONFIG, live_config};
use crate::io::apply::{account, objects};
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::existing::ExistingObjects;
use crate::model::gathered::Gathered;
use crate::model::view::Meta;
use crate::plan;

/// Deletes everything: the ServiceAccount first, which revokes the pool's tokens, then the rest.
///
/// # Errors
/// Requests that failed. This holds for the other functions here as well.
pub async fn delete_all(context: &Context, existing: &ExistingObjects) -> Result<(), ApplyError> {
    if let Some(account) = &existing.account {
        account::revoke(context, account).await?;
    }
    for secret in existing.secrets() {
        objects::delete_secret(context, &secret.meta).await?;
    }
    if let Some(binding) = &existing.binding {
        account::unbind(context, &binding.meta).await?;
    }
    if let Some(role) = &existing.role {
        account::close(context, &role.meta).await?;
    }
    Ok(())
}

/// Deletes what was made for a retired pool: what is known of it, and where that may not be all, what else
/// the API server has. What another installation made is left alone.
///
/// A live read first confirms that the config is the one that was retired. A watch that lags shows it even if
/// a pool of the same name has a config already, and the objects of the new pool would be taken for
/// leftovers.
///
/// # Errors
/// A conflict if the config is another one.
pub async fn retired(
    context: &Context,
    gathered: &Gathered,
    known: &[ExistingObjects],
    is_listed: bool,
) -> Result<(), ApplyError> {
    let (config, _) = live_config(context, &gathered.name).await?;
    if !plan::teardown::is_confirmed(gathered, &config) {
        return Err(osm_runtime::Error::Conflict { what: CONFIG }.into());
    }
    let pool = &gathered.pool();
    if is_listed {
        for account in of_pool::<ServiceAccount>(context, pool, "ServiceAccounts of the pool").await? {
            account::revoke(context, &account).await?;
        }
    }
    for existing in known {
        delete_all(context, existing).await?;
    }
    if is_listed {
        for secret in of_pool::<Secret>(context, pool, "Secrets of the pool").await? {
            objects::delete_secret(context, &secret).await?;
        }
        for binding in of_pool::<RoleBinding>(context, pool, "RoleBindings of the pool").await? {
            account::unbind(context, &binding).await?;
        }
        for role in of_pool::<Role>(context, pool, "Roles of the pool").await? {
            account::close(context, &role).await?;
        }
    }
    Ok(())
}

async fn of_pool<K>(context: &Context, pool: &str, what: &'static str) -> Result<Vec<Meta>, ApplyError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = context.in_namespace();
    let found = api
        .list(&ListParams::default().labels(&format!("{POOL}={pool}")))
        .await
        .map_err(failed(what))?;
    let is_included = |object: &&K| plan::teardown::is_included(&context.installation, object.labels());
    let included = found.items.iter().filter(is_included);
    Ok(included.map(|object| Meta::of(object.meta())).collect())
}
