//! Takes back what was made for a pool, credentials first.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_runtime::request::failed;
use osm_runtime::status;
use serde::de::DeserializeOwned;

use crate::Error;
use crate::gather::Made;
use crate::state::State;
use crate::view::SecretView;

/// Undoes everything: the ServiceAccount first, which revokes the pool's tokens; then the documents, which revokes
/// those of `osm-node-bootstrap`; then the rest.
///
/// # Errors
/// Requests that failed. What is gone already is no error.
pub async fn undo(state: &State, made: &Made) -> Result<(), Error> {
    let client = || state.context.client.clone();
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
