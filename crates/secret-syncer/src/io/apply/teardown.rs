//! Deletes what was made for a pool, credentials first.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Resource, ResourceExt};
use osm_api::names::POOL;
use osm_runtime::Api;
use osm_runtime::cache::Cache;
use osm_runtime::error::is_code;
use osm_runtime::request::failed;
use serde::de::DeserializeOwned;

use crate::io::apply::live_config::{CONFIG, live_config};
use crate::io::caches::key;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::existing::ExistingObjects;
use crate::model::gathered::Gathered;
use crate::model::view::{self, BindingView, Meta, RoleView, SecretView};
use crate::plan;

/// Deletes everything: the ServiceAccount first, which revokes the pool's tokens, then the rest.
///
/// # Errors
/// Requests that failed. An object that is gone already is not an error. This holds for the other functions
/// here as well.
pub async fn objects(context: &Context, objects: &ExistingObjects) -> Result<(), ApplyError> {
    let caches = &context.caches;
    if let Some(account) = &objects.account {
        object::<ServiceAccount, _>(context, &caches.accounts, account, "the pool's ServiceAccount").await?;
    }
    for found in objects.secrets() {
        secret(context, found).await?;
    }
    if let Some(binding) = &objects.binding {
        object::<RoleBinding, _>(context, &caches.bindings, &binding.meta, "the pool's RoleBinding").await?;
    }
    if let Some(role) = &objects.role {
        object::<Role, _>(context, &caches.roles, &role.meta, "the pool's Role").await?;
    }
    Ok(())
}

/// Deletes the object with this uid, whatever has changed on it.
pub async fn object<K, V>(
    context: &Context,
    cache: &Cache<V>,
    meta: &Meta,
    what: &'static str,
) -> Result<(), ApplyError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = context.in_namespace();
    delete(&api, &meta.name, &meta.uid, None, what).await?;
    cache.deleted(&key(&meta.name), &meta.uid);
    Ok(())
}

/// Confirms with a live read that the config is the one that was retired. A watch that lags shows it even if
/// a pool of the same name has a config already, and the objects of the new pool would be taken for
/// leftovers.
///
/// # Errors
/// A conflict if the config is another one, and requests that failed.
pub async fn confirm(context: &Context, gathered: &Gathered) -> Result<(), ApplyError> {
    let (config, _) = live_config(context, &gathered.name).await?;
    if plan::teardown::is_confirmed(gathered, &config) {
        Ok(())
    } else {
        Err(osm_runtime::Error::Conflict { what: CONFIG }.into())
    }
}

/// Deletes all this, and where `is_listed` what else the API server has of the pool. What another
/// installation made is left alone.
pub async fn pool(
    context: &Context,
    pool: &str,
    known: &[ExistingObjects],
    is_listed: bool,
) -> Result<(), ApplyError> {
    if is_listed {
        for account in of_pool::<ServiceAccount>(context, pool, "ServiceAccounts of the pool").await? {
            let account = Some(Arc::new(view::account(&account)));
            let account = ExistingObjects {
                account,
                ..ExistingObjects::default()
            };
            objects(context, &account).await?;
        }
    }
    for known in known {
        objects(context, known).await?;
    }
    if !is_listed {
        return Ok(());
    }
    let secrets = of_pool::<Secret>(context, pool, "Secrets of the pool").await?;
    let bindings = of_pool::<RoleBinding>(context, pool, "RoleBindings of the pool").await?;
    let roles = of_pool::<Role>(context, pool, "Roles of the pool").await?;
    let rest = ExistingObjects {
        provisioning: secrets
            .iter()
            .map(|secret| Arc::new(SecretView::of(secret)))
            .collect(),
        binding: bindings.first().map(|binding| Arc::new(BindingView::of(binding))),
        role: roles.first().map(|role| Arc::new(RoleView::of(role))),
        ..ExistingObjects::default()
    };
    objects(context, &rest).await
}

async fn of_pool<K>(context: &Context, pool: &str, what: &'static str) -> Result<Vec<K>, ApplyError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = context.in_namespace();
    let found = api
        .list(&ListParams::default().labels(&format!("{POOL}={pool}")))
        .await
        .map_err(failed(what))?;
    let is_included = |object: &K| plan::teardown::is_included(&context.installation, object.labels());
    Ok(found.items.into_iter().filter(is_included).collect())
}

/// Deletes a Secret of ours exactly as it was seen; a conflict where it has changed.
pub async fn secret(context: &Context, secret: &SecretView) -> Result<(), ApplyError> {
    let (meta, api) = (&secret.meta, context.secrets());
    let version = Some(meta.resource_version.as_str());
    delete(&api, &meta.name, &meta.uid, version, "a Secret of the pool").await?;
    context.caches.secrets.deleted(&key(&meta.name), &meta.uid);
    Ok(())
}

/// Deletes the object with this uid, and no successor of its name; a conflict where it is another one or has
/// changed.
pub async fn delete<K>(
    api: &Api<K>,
    name: &str,
    uid: &str,
    resource_version: Option<&str>,
    what: &'static str,
) -> Result<(), ApplyError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let preconditions = Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: resource_version.map(str::to_owned),
    };
    match api
        .delete(name, &DeleteParams::default().preconditions(preconditions))
        .await
    {
        Ok(_) => Ok(()),
        Err(error) if is_code(&error, 404) => Ok(()),
        Err(error) => Err(failed(what)(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use osm_sim::memory::Server;
    use serde_json::json;

    use super::*;

    /// Between the confirmation and the deletion, another client may change or recreate it.
    #[tokio::test(start_paused = true)]
    async fn what_has_changed_or_was_made_again_is_not_deleted() {
        let server = Server::new(Timestamp::UNIX_EPOCH);
        let api: Api<Secret> = Api::namespaced(server.admin(), "default");
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "default"}});
        let delete_as = async |seen: &SecretView, resource_version: Option<&str>| {
            let deleted = delete(&api, "a", &seen.meta.uid, resource_version, "the Secret").await;
            let is_conflict = matches!(
                &deleted,
                Err(ApplyError::Request(osm_runtime::Error::Conflict { .. }))
            );
            assert!(deleted.is_ok() || is_conflict, "{deleted:?}");
            deleted.is_ok()
        };
        let make = async || {
            server.load(std::slice::from_ref(&secret)).unwrap();
            SecretView::of(&api.get("a").await.unwrap())
        };

        let seen = make().await;
        let change = json!({"metadata": {"labels": {"changed": "since"}}});
        server.with(|state| state.patch("secrets", "default", "a", &change).unwrap());
        assert!(!delete_as(&seen, Some(&seen.meta.resource_version)).await);
        assert!(delete_as(&seen, None).await, "it is the same object");
        assert!(delete_as(&seen, None).await, "it is gone already");

        let again = make().await;
        assert!(!delete_as(&seen, None).await);
        assert_eq!(api.get("a").await.unwrap().metadata.uid, Some(again.meta.uid));
    }
}
