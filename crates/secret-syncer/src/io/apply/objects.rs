//! What the objects of a pool share: how a Secret is built, and replaced in one write, and how an object is
//! deleted that may have changed.

use std::collections::BTreeMap;
use std::fmt::Debug;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ByteString, NamespaceResourceScope};
use kube::Resource;
use kube::api::{DeleteParams, PostParams, Preconditions};
use osm_api::names;
use osm_runtime::Api;
use osm_runtime::cache::Cache;
use osm_runtime::error::{already_exists, is_code};
use osm_runtime::request::failed;
use serde::de::DeserializeOwned;

use crate::io::caches::key;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::existing::WellKnown;
use crate::model::gathered::Gathered;
use crate::model::published_content::Entries;
use crate::model::record::content_digest;
use crate::model::view::{Meta, SecretView};
use crate::plan::adoption::{Adoption, of_ours, of_well_known};
use crate::plan::steps::Publish;

pub fn secret(metadata: ObjectMeta, data: Entries, immutable: bool) -> Secret {
    Secret {
        metadata,
        data: (!data.is_empty()).then_some(data),
        type_: Some("Opaque".to_owned()),
        immutable: immutable.then_some(true),
        ..Secret::default()
    }
}

/// The Secret with the [digest](content_digest()) of its content.
pub fn with_digest(mut secret: Secret) -> Secret {
    let data = secret.data.get_or_insert_default();
    let annotations = secret.metadata.annotations.get_or_insert_default();
    let digest = content_digest(data, |name| annotations.get(name).map(String::as_str));
    data.insert(
        names::CONTENT_DIGEST_KEY.to_owned(),
        ByteString(digest.into_bytes()),
    );
    secret
}

/// Writes a Secret whose name does not depend on its content, in one write, so that its readers see the old
/// content or the new. Where the watch shows none, it is created, or written over what [`of_well_known`]
/// adopts. `annotations`: besides those of its owner.
///
/// # Errors
/// Requests that failed; [`ApplyError::ForeignSecret`] where the name is taken.
pub async fn replace(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    known: WellKnown,
    annotations: BTreeMap<String, String>,
    data: Entries,
) -> Result<SecretView, ApplyError> {
    let (what, api) = (known.what(), context.secrets());
    let Some(name) = known.name(&gathered.name, &gathered.pool()) else {
        return Err(osm_runtime::Error::Conflict { what }.into());
    };
    let mut metadata = publish
        .ownership
        .metadata(&context.installation, &name, known.purpose());
    metadata.annotations.get_or_insert_default().extend(annotations);
    let mut secret = with_digest(secret(metadata, data, false));
    let (existing, adoption) = match gathered.existing.well_known(known) {
        Some(existing) => (SecretView::clone(existing), of_ours(existing)),
        None => {
            match api.create(&PostParams::default(), &secret).await {
                Ok(created) => return Ok(context.caches.wrote_secret(&created)),
                Err(error) if already_exists(&error) => {}
                Err(error) => return Err(failed(what)(error).into()),
            }
            let found = api.get(&name).await.map_err(failed(what))?;
            let adoption = of_well_known(&context.installation, gathered, known, &found);
            if adoption == Adoption::GatherAgain {
                context.caches.wrote_secret(&found);
            }
            (SecretView::of(&found), adoption)
        }
    };
    let written = match adoption {
        Adoption::GatherAgain => return Err(osm_runtime::Error::Conflict { what }.into()),
        Adoption::Foreign => return Err(ApplyError::ForeignSecret { name }),
        Adoption::Replace => {
            secret.metadata.resource_version = Some(existing.meta.resource_version);
            api.replace(&name, &PostParams::default(), &secret).await
        }
        Adoption::Recreate => {
            delete_secret(context, &existing.meta).await?;
            api.create(&PostParams::default(), &secret).await
        }
    };
    Ok(context.caches.wrote_secret(&written.map_err(failed(what))?))
}

/// Deletes a Secret of ours exactly as it was seen; a conflict where it has changed.
///
/// # Errors
/// Requests that failed. An object that is gone already is not an error. This holds for the other functions
/// here as well.
pub async fn delete_secret(context: &Context, secret: &Meta) -> Result<(), ApplyError> {
    let (api, version) = (context.secrets(), Some(secret.resource_version.as_str()));
    delete_exactly(&api, &secret.name, &secret.uid, version, "a Secret of the pool").await?;
    context.caches.secrets.deleted(&key(&secret.name), &secret.uid);
    Ok(())
}

/// Deletes the object with this uid, whatever has changed on it.
pub async fn delete<K, V>(
    context: &Context,
    cache: &Cache<V>,
    meta: &Meta,
    what: &'static str,
) -> Result<(), ApplyError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = context.in_namespace();
    delete_exactly(&api, &meta.name, &meta.uid, None, what).await?;
    cache.deleted(&key(&meta.name), &meta.uid);
    Ok(())
}

/// Deletes the object with this uid, and no successor of its name; a conflict where it is another one or has
/// changed.
pub async fn delete_exactly<K>(
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
            let deleted = delete_exactly(&api, "a", &seen.meta.uid, resource_version, "the Secret").await;
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
