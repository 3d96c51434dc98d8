//! Takes back what was made for a pool, credentials first.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Preconditions};
use kube::{Api, Resource, ResourceExt};
use osm_api::names::{CLOUD_INIT_SETTINGS, INSTALLATION, POOL};
use osm_runtime::request::failed;
use osm_runtime::status;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::gather::Made;
use crate::state::State;
use crate::view::{self, BindingView, RoleView, SecretView};

/// Undoes everything: the ServiceAccount first, which revokes the pool's tokens; then the documents, which revokes
/// those of `osm-node-bootstrap`; then the rest.
///
/// # Errors
/// Requests that failed. What is gone already is no error.
pub async fn undo(state: &State, made: &Made) -> Result<(), Error> {
    let client = || state.context.worker.client.clone();
    if let Some(account) = &made.account {
        let api: Api<ServiceAccount> = Api::namespaced(client(), CLOUD_INIT_SETTINGS);
        delete(&api, &account.name, &account.uid, None, "the pool's ServiceAccount").await?;
        state.accounts.deleted(&state.key_in_namespace(&account.name), &account.uid);
    }
    for secret in made.secrets() {
        delete_secret(state, secret).await?;
    }
    if let Some(binding) = &made.binding {
        let api: Api<RoleBinding> = Api::namespaced(client(), CLOUD_INIT_SETTINGS);
        delete(&api, &binding.meta.name, &binding.meta.uid, None, "the pool's RoleBinding").await?;
        state.bindings.deleted(&state.key_in_namespace(&binding.meta.name), &binding.meta.uid);
    }
    if let Some(role) = &made.role {
        let api: Api<Role> = Api::namespaced(client(), CLOUD_INIT_SETTINGS);
        delete(&api, &role.meta.name, &role.meta.uid, None, "the pool's Role").await?;
        state.roles.deleted(&state.key_in_namespace(&role.meta.name), &role.meta.uid);
    }
    Ok(())
}

/// Undoes all this and whatever else the API server has for the pool: somebody may have taken off the label or
/// annotation by which it was found. What another installation made is left alone.
///
/// # Errors
/// As [`undo`].
pub async fn undo_pool(state: &State, pool: &str, known: &[Made]) -> Result<(), Error> {
    let made = |account| Made { account: Some(Arc::new(account)), ..Made::default() };
    for account in of_pool::<ServiceAccount>(state, pool, "ServiceAccounts of the pool").await? {
        let account = view::account(&account);
        if !known.iter().any(|made| made.account.as_ref().is_some_and(|known| known.uid == account.uid)) {
            undo(state, &made(account)).await?;
        }
    }
    for made in known {
        undo(state, made).await?;
    }
    let roles = of_pool::<Role>(state, pool, "Roles of the pool").await?;
    let bindings = of_pool::<RoleBinding>(state, pool, "RoleBindings of the pool").await?;
    let secrets = of_pool::<Secret>(state, pool, "Secrets of the pool").await?;
    let rest = Made {
        role: roles.first().map(|role| Arc::new(RoleView::of(role))),
        binding: bindings.first().map(|binding| Arc::new(BindingView::of(binding))),
        provisioning: secrets.iter().map(|secret| Arc::new(SecretView::of(secret))).collect(),
        ..Made::default()
    };
    undo(state, &rest).await
}

async fn of_pool<K>(state: &State, pool: &str, what: &'static str) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::namespaced(state.context.worker.client.clone(), CLOUD_INIT_SETTINGS);
    let found =
        api.list(&ListParams::default().labels(&format!("{POOL}={pool}"))).await.map_err(failed(what))?;
    let ours =
        |object: &K| object.labels().get(INSTALLATION).is_none_or(|owner| *owner == state.installation);
    Ok(found.items.into_iter().filter(ours).collect())
}

/// Deletes a Secret of ours exactly as it was seen.
///
/// # Errors
/// Requests that failed; [`RequestError::Conflict`](osm_runtime::RequestError::Conflict) where it has changed.
pub async fn delete_secret(state: &State, secret: &SecretView) -> Result<(), Error> {
    let meta = &secret.meta;
    delete(&state.secret_api(), &meta.name, &meta.uid, Some(&meta.resource_version), "a Secret of the pool")
        .await?;
    state.secrets.deleted(&state.key_in_namespace(&meta.name), &meta.uid);
    Ok(())
}

/// Deletes the object with this uid, and no successor of its name.
///
/// # Errors
/// Requests that failed; [`RequestError::Conflict`](osm_runtime::RequestError::Conflict) where it is another one or has changed.
pub async fn delete<K>(
    api: &Api<K>,
    name: &str,
    uid: &str,
    resource_version: Option<&str>,
    what: &'static str,
) -> Result<(), Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let preconditions =
        Preconditions { uid: Some(uid.to_owned()), resource_version: resource_version.map(str::to_owned) };
    match api.delete(name, &DeleteParams::default().preconditions(preconditions)).await {
        Ok(_) => Ok(()),
        Err(error) if status::is_code(&error, 404) => Ok(()),
        Err(error) => Err(failed(what)(error).into()),
    }
}
