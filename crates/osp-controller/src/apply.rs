//! Does what the plan says; sends only what differs.

use kube::api::PostParams;
use osm_api::OperatingSystemProfile;
use osm_runtime::request::failed;
use osm_runtime::{RequestError, status};

use crate::gather::Gathered;
use crate::plan::{Action, Plan, Publish, Restore};
use crate::state::State;
use crate::{Error, FIELD_MANAGER};

/// Applies a plan.
///
/// # Errors
/// Requests that failed; [`RequestError::Conflict`] where what was seen no longer is.
pub async fn apply(state: &State, gathered: &Gathered, plan: &Plan) -> Result<(), Error> {
    let written = match &plan.action {
        Action::Nothing => return Ok(()),
        Action::Create(profile) => create(state, gathered, profile).await?,
        Action::Restore(restore) => put_back(state, gathered, restore).await?,
        Action::Publish(publish) => return apply_status(state, gathered, publish).await,
    };
    state.wrote(written);
    // Now it is there, it wants to be judged.
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
        Err(error) if status::already_exists(&error) => {
            // The watch has not shown it yet: take it from the server and plan again.
            state.wrote(api.get(&gathered.name).await.map_err(failed("reading the default profile"))?);
            Err(RequestError::Conflict { what: "the default profile" }.into())
        }
        Err(error) => Err(failed("creating the default profile")(error).into()),
    }
}

async fn put_back(
    state: &State,
    gathered: &Gathered,
    restore: &Restore,
) -> Result<OperatingSystemProfile, Error> {
    let (api, mut profile) = (state.profile_api(&gathered.namespace), restore.profile.clone());
    let replace = async |profile: &OperatingSystemProfile, dry_run: bool| {
        let replaced =
            api.replace(&gathered.name, &PostParams { dry_run, ..PostParams::default() }, profile).await;
        replaced.map_err(failed("putting the default profile back"))
    };
    let mut first = profile.clone();
    if let Some(version) = &restore.by_way_of {
        first.spec.version.clone_from(version);
    }
    // A server that drops fields must not be written to: each write would show in the watch and lead to the next.
    if replace(&first, true).await?.spec != first.spec {
        return Err(Error::FieldsDropped);
    }
    if restore.by_way_of.is_some() {
        profile.metadata.resource_version = replace(&first, false).await?.metadata.resource_version;
    }
    Ok(replace(&profile, false).await?)
}

async fn apply_status(state: &State, gathered: &Gathered, publish: &Publish) -> Result<(), Error> {
    let applied = status::apply(
        &state.profile_api(&gathered.namespace),
        FIELD_MANAGER,
        &gathered.name,
        &publish.resource_version,
        &publish.status,
    )
    .await;
    state.wrote(applied.map_err(failed("writing the profile's status"))?);
    Ok(())
}
