//! Secrets whose names do not depend on their content. Each is replaced in one write, so that its readers see the old content or the new.

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use osm_runtime::RequestError;
use osm_runtime::error::already_exists;
use osm_runtime::request::failed;

use crate::io::apply::teardown;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::found::FoundSecret;
use crate::model::gathered::Gathered;
use crate::model::view::SecretView;
use crate::plan::adoption::{Adoption, Replacement, WellKnown, of_well_known, replacement};

/// Writes the Secret over `existing`, or over what [`of_well_known`] adopts.
///
/// # Errors
/// Requests that failed; [`ApplyError::ForeignSecret`] where the name is taken.
pub async fn put(
    context: &Context,
    gathered: &Gathered,
    known: WellKnown,
    existing: Option<&SecretView>,
    secret: Secret,
) -> Result<(), ApplyError> {
    let what = known.what();
    if let Some(existing) = existing {
        match replacement(existing) {
            Replacement::InPlace { resource_version } => {
                return replace(context, secret, resource_version, what).await.map(drop);
            }
            Replacement::Recreate {
                uid,
                resource_version,
            } => {
                let name = &existing.meta.name;
                teardown::secret_of(context, name, &uid, resource_version.as_deref(), what).await?;
            }
        }
    }
    match claim(context, gathered, known, &secret).await? {
        Claim::Created(_) => Ok(()),
        Claim::Found(found) => {
            let version = found.meta.resource_version;
            replace(context, secret, version, what).await.map(drop)
        }
    }
}

/// The Secret exists, whatever is in it.
///
/// # Errors
/// As [`put`].
pub async fn provide(
    context: &Context,
    gathered: &Gathered,
    known: WellKnown,
    secret: &Secret,
) -> Result<SecretView, ApplyError> {
    match claim(context, gathered, known, secret).await? {
        Claim::Created(created) => Ok(created),
        Claim::Found(found) => {
            let version = found.meta.resource_version;
            replace(context, secret.clone(), version, known.what()).await
        }
    }
}

/// The Secret that has a name now.
enum Claim {
    Created(SecretView),
    /// It is ours, can be changed, and has other content.
    Found(SecretView),
}

/// Creates the Secret, or adopts the one that has its name, as [`of_well_known`] decides.
///
/// # Errors
/// Requests that failed; [`ApplyError::ForeignSecret`] where the name is taken.
async fn claim(
    context: &Context,
    gathered: &Gathered,
    known: WellKnown,
    secret: &Secret,
) -> Result<Claim, ApplyError> {
    let what = known.what();
    let name = secret.metadata.name.clone().unwrap_or_default();
    let api = context.clients.secrets();
    match api.create(&PostParams::default(), secret).await {
        Ok(created) => return Ok(Claim::Created(context.caches.wrote_secret(&created))),
        Err(error) if already_exists(&error) => {}
        Err(error) => return Err(failed(what)(error).into()),
    }
    let found = api.get(&name).await.map_err(failed(what))?;
    match of_well_known(gathered, known, &FoundSecret::of(&found)) {
        Adoption::GatherAgain => {
            context.caches.wrote_secret(&found);
            Err(RequestError::Conflict { what }.into())
        }
        Adoption::Take(Replacement::InPlace { .. }) => Ok(Claim::Found(SecretView::of(&found))),
        Adoption::Take(Replacement::Recreate {
            uid,
            resource_version,
        }) => {
            teardown::secret_of(context, &name, &uid, resource_version.as_deref(), what).await?;
            let created = api
                .create(&PostParams::default(), secret)
                .await
                .map_err(failed(what))?;
            Ok(Claim::Created(context.caches.wrote_secret(&created)))
        }
        Adoption::Foreign => Err(ApplyError::ForeignSecret { name }),
    }
}

async fn replace(
    context: &Context,
    mut secret: Secret,
    resource_version: String,
    what: &'static str,
) -> Result<SecretView, ApplyError> {
    let name = secret.metadata.name.clone().unwrap_or_default();
    secret.metadata.resource_version = Some(resource_version);
    let replaced = context
        .clients
        .secrets()
        .replace(&name, &PostParams::default(), &secret)
        .await;
    Ok(context.caches.wrote_secret(&replaced.map_err(failed(what))?))
}
