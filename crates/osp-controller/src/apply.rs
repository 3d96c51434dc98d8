//! Executes a plan: creates or restores a default profile. It makes no choices.

use kube::api::PostParams;
use osm_api::OperatingSystemProfile;
use osm_runtime::request::failed;
use osm_runtime::{RequestError, error};

use crate::Error;
use crate::default_profile::{Install, Restore};
use crate::gather::Gathered;
use crate::plan::Plan;
use crate::state::State;

/// Installs the default profile if the plan contains that.
///
/// # Errors
/// Failed requests; [`RequestError::Conflict`] if the stored profile is not the one that was gathered.
pub async fn apply(state: &State, gathered: &Gathered, plan: &Plan) -> Result<(), Error> {
    let written = match &plan.install {
        None => return Ok(()),
        Some(Install::Create(profile)) => create(state, gathered, profile).await?,
        Some(Install::Restore(plan)) => restore(state, gathered, plan).await?,
    };
    state.wrote(written);
    // The next reconcile validates the profile.
    state.queue.add(gathered.key());
    Ok(())
}

async fn create(
    state: &State,
    gathered: &Gathered,
    profile: &OperatingSystemProfile,
) -> Result<OperatingSystemProfile, Error> {
    let api = state.profile_api(&gathered.namespace);
    match api.create(&PostParams::default(), profile).await {
        Ok(created) => Ok(created),
        Err(error) if error::already_exists(&error) => {
            // The watch is behind. With the object from the API server, the next plan is made for what exists.
            state.wrote(
                api.get(&gathered.name)
                    .await
                    .map_err(failed("reading the default profile"))?,
            );
            Err(RequestError::Conflict {
                what: "the default profile",
            }
            .into())
        }
        Err(error) => Err(failed("creating the default profile")(error).into()),
    }
}

async fn restore(
    state: &State,
    gathered: &Gathered,
    plan: &Restore,
) -> Result<OperatingSystemProfile, Error> {
    let api = state.profile_api(&gathered.namespace);
    let replace = async |profile: &OperatingSystemProfile, dry_run: bool| {
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let replaced = api.replace(&gathered.name, &params, profile).await;
        replaced.map_err(failed("restoring the default profile"))
    };
    let mut profile = plan.profile.clone();
    let mut first = profile.clone();
    if let Some(version) = &plan.interim_version {
        first.spec.version.clone_from(version);
    }
    // A server that drops fields must not be written to. The watch would show each write as a difference, and cause the next one.
    if replace(&first, true).await?.spec != first.spec {
        return Err(Error::FieldsDropped);
    }
    if plan.interim_version.is_some() {
        profile.metadata.resource_version = replace(&first, false).await?.metadata.resource_version;
    }
    Ok(replace(&profile, false).await?)
}
