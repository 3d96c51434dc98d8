//! Owns the provisioning Secrets of a pool: stores the document that is about to be published, and keeps it
//! longer than its tokens live; deletes those that no living token may fetch.

use std::collections::BTreeMap;

use kube::api::{Patch, PatchParams, PostParams};
use osm_api::names;
use osm_runtime::error::already_exists;
use osm_runtime::request::failed;
use serde_json::json;

use crate::io::apply::{account, objects};
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::documents::Documents;
use crate::model::existing::Ownership;
use crate::model::gathered::Gathered;
use crate::model::token::Token;
use crate::model::view::{PURPOSE_PROVISIONING, SecretView};
use crate::plan::adoption::{self, Adoption};
use crate::plan::provisioning_secret;
use crate::plan::steps::{Keep, Publish};

const WHAT: &str = "the provisioning Secret";

/// The provisioning Secret of this name exists afterwards, for as long as this token may fetch it.
///
/// # Errors
/// Requests that failed; [`ApplyError::ForeignSecret`] where the name is taken.
pub async fn store(
    context: &Context,
    gathered: &Gathered,
    publish: &Publish,
    name: &str,
    documents: &Documents,
    token: &Token,
) -> Result<SecretView, ApplyError> {
    let mut existing = gathered.existing.provisioning.iter();
    if let Some(secret) = existing.find(|secret| secret.meta.name == name) {
        return prolong(context, publish, secret, token).await;
    }
    let api = context.secrets();
    let mut metadata = publish
        .ownership
        .metadata(&context.installation, name, PURPOSE_PROVISIONING);
    let annotations = metadata.annotations.get_or_insert_default();
    let keep_until = provisioning_secret::keep_until(None, token.expires).to_string();
    annotations.insert(names::KEEP_UNTIL.to_owned(), keep_until);
    annotations.insert(names::BOUND_TO.to_owned(), token.account.clone());
    let secret = objects::secret(metadata, documents.entries.clone(), true);
    match api.create(&PostParams::default(), &secret).await {
        Ok(created) => Ok(context.caches.wrote_secret(&created)),
        Err(error) if already_exists(&error) => {
            let found = SecretView::of(&api.get(name).await.map_err(failed(WHAT))?);
            match adoption::of_document(&found, &documents.entries) {
                Adoption::Foreign => Err(ApplyError::ForeignSecret {
                    name: name.to_owned(),
                }),
                _ => prolong(context, publish, &found, token).await,
            }
        }
        Err(error) => Err(failed(WHAT)(error).into()),
    }
}

/// Also restores its labels and annotations, and makes it immutable again.
async fn prolong(
    context: &Context,
    publish: &Publish,
    secret: &SecretView,
    token: &Token,
) -> Result<SecretView, ApplyError> {
    let keep_until = provisioning_secret::keep_until(Some(secret), token.expires).to_string();
    let owned = publish
        .ownership
        .annotations
        .iter()
        .map(|(name, value)| (name.as_str(), Some(value.as_str())));
    let bound_to = provisioning_secret::bound_to(secret, &token.account);
    let annotations: BTreeMap<&str, Option<&str>> = owned
        .chain([
            (names::KEEP_UNTIL, Some(keep_until.as_str())),
            (names::BOUND_TO, bound_to),
        ])
        .collect();
    let patch = json!({"immutable": true, "metadata": {
        "resourceVersion": secret.meta.resource_version,
        "labels": publish.ownership.all_labels(&context.installation, PURPOSE_PROVISIONING),
        "annotations": annotations,
    }});
    let api = context.secrets();
    let patched = api
        .patch(&secret.meta.name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    Ok(context.caches.wrote_secret(&patched.map_err(failed(WHAT))?))
}

/// Labels documents again that the watch does not show.
///
/// # Errors
/// Requests that failed; a conflict where there was one, since the Role has to open it.
pub async fn label_again(
    context: &Context,
    ownership: &Ownership,
    names: &[String],
) -> Result<(), ApplyError> {
    const WHAT: &str = "a document that lost its label";
    let api = context.secrets();
    let mut found = false;
    for name in names {
        let Some(secret) = api.get_opt(name).await.map_err(failed(WHAT))? else {
            continue;
        };
        let purpose = provisioning_secret::purpose_of(name);
        let patch = json!({"metadata": {
            "resourceVersion": secret.metadata.resource_version,
            "labels": ownership.all_labels(&context.installation, purpose),
            "annotations": ownership.annotations,
        }});
        let patched = api
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        context.caches.wrote_secret(&patched.map_err(failed(WHAT))?);
        found = true;
    }
    if found {
        Err(osm_runtime::Error::Conflict { what: WHAT }.into())
    } else {
        Ok(())
    }
}

/// Deletes Secrets that the pool no longer uses, and then narrows the Role.
///
/// # Errors
/// Requests that failed.
pub async fn keep(context: &Context, gathered: &Gathered, keep: &Keep) -> Result<(), ApplyError> {
    for secret in &keep.outdated {
        objects::delete_secret(context, &secret.meta).await?;
        // True of what no living token may fetch, and of the script of a former edge pool.
        tracing::info!(
            config = gathered.name,
            secret = secret.meta.name,
            "outdated Secret deleted, because its pool no longer uses it"
        );
    }
    if let Some(opened) = &keep.opened {
        label_again(context, &keep.ownership, &keep.out_of_sight).await?;
        account::set_role(context, gathered, &keep.ownership, opened).await?;
    }
    Ok(())
}
