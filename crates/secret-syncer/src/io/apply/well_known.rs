//! Secrets whose names do not depend on their content. Each is replaced in one write, so that its readers see
//! the old content or the new.

use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use osm_runtime::error::already_exists;
use osm_runtime::request::failed;

use crate::io::apply::teardown;
use crate::io::context::Context;
use crate::io::error::ApplyError;
use crate::model::existing::WellKnown;
use crate::model::gathered::Gathered;
use crate::model::view::SecretView;
use crate::plan::adoption::{Adoption, of_ours, of_well_known};

/// Writes the Secret over `existing`; without that it is created, or written over what [`of_well_known`]
/// adopts.
///
/// # Errors
/// Requests that failed; [`ApplyError::ForeignSecret`] where the name is taken.
pub async fn put(
    context: &Context,
    gathered: &Gathered,
    known: WellKnown,
    existing: Option<&SecretView>,
    mut secret: Secret,
) -> Result<SecretView, ApplyError> {
    let (what, api) = (known.what(), context.secrets());
    let name = secret.metadata.name.clone().unwrap_or_default();
    let (existing, adoption) = match existing {
        Some(existing) => (existing.clone(), of_ours(existing)),
        None => {
            match api.create(&PostParams::default(), &secret).await {
                Ok(created) => return Ok(context.caches.wrote_secret(&created)),
                Err(error) if already_exists(&error) => {}
                Err(error) => return Err(failed(what)(error).into()),
            }
            let found = api.get(&name).await.map_err(failed(what))?;
            let adoption = of_well_known(gathered, known, &found);
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
            teardown::secret(context, &existing).await?;
            api.create(&PostParams::default(), &secret).await
        }
    };
    Ok(context.caches.wrote_secret(&written.map_err(failed(what))?))
}
