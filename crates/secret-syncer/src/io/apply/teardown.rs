//! Deletes what was made for a pool, credentials first.

use std::fmt::Debug;
use std::sync::Arc;

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
use crate::model::view::{self, BindingView, RoleView, SecretView};
use crate::plan;
use crate::plan::steps::Teardown;

/// Deletes everything: the ServiceAccount first, which revokes the pool's tokens, then the rest.
///
/// # Errors
/// Requests that failed. This holds for the other functions here as well.
pub async fn delete_all(context: &Context, existing: &ExistingObjects) -> Result<(), ApplyError> {
    account::revoke(context, existing).await?;
    for secret in existing.secrets() {
        objects::delete_secret(context, secret).await?;
    }
    account::close(context, existing).await
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
pub async fn retired(context: &Context, gathered: &Gathered, all: &Teardown) -> Result<(), ApplyError> {
    let (config, _) = live_config(context, &gathered.name).await?;
    if !plan::teardown::is_confirmed(gathered, &config) {
        return Err(osm_runtime::Error::Conflict { what: CONFIG }.into());
    }
    let pool = &gathered.pool();
    if all.is_listed {
        for account in of_pool::<ServiceAccount>(context, pool, "ServiceAccounts of the pool").await? {
            let account = ExistingObjects {
                account: Some(Arc::new(view::account(&account))),
                ..ExistingObjects::default()
            };
            account::revoke(context, &account).await?;
        }
    }
    for known in &all.objects {
        delete_all(context, known).await?;
    }
    if !all.is_listed {
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
    delete_all(context, &rest).await
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
