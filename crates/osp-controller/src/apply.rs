//! Executes a plan: writes a default profile, or the copy of a custom profile. It has no rules of its own; it
//! only handles the answers of the API server.

use kube::api::PostParams;
use osm_api::OperatingSystemProfile;
use osm_runtime::request::failed;
use osm_runtime::{Error, error, read};
use tokio::time::Instant;

use crate::context::Context;
use crate::custom_profile::{Problem, Step};
use crate::default_profile::{Install, Restore};
use crate::gather::Gathered;
use crate::plan::Plan;
use crate::stored_profile::StoredProfile;

/// How errors name what is written.
const DEFAULT: &str = "the default profile";
const COPY: &str = "the copy of the custom profile";

/// Installs the default profile, or writes the copy, if the plan contains that; returns why the API server
/// refuses the copy, if it does.
///
/// # Errors
/// Failed requests; [`Error::Conflict`] if the stored profile is not the one that was gathered; what forbids
/// to write anything.
pub async fn apply(context: &Context, gathered: &Gathered, plan: &Plan) -> Result<Option<Problem>, Error> {
    if let Some(problem) = context.cluster.process.outdated_definitions.problem() {
        // The API server would drop fields, and pools would be rendered from what is left.
        return Err(Error::DefinitionsOutdated { problem });
    }
    match &plan.install {
        None => {}
        Some(Install::Create(profile)) => {
            write(context, gathered, profile, DEFAULT).await?;
        }
        Some(Install::Restore(plan)) => {
            restore(context, gathered, plan).await?;
            context.restored.lock().insert(gathered.key(), Instant::now());
        }
    }
    match &plan.copy {
        Some(Ok(Step::Create(profile) | Step::Update(profile))) => copy(context, gathered, profile).await,
        Some(Ok(Step::Keep) | Err(_)) | None => Ok(None),
    }
}

/// Writes a profile, unless the API server would drop fields: the watch would show each write as a
/// difference, and cause the next one.
async fn write(
    context: &Context,
    gathered: &Gathered,
    profile: &OperatingSystemProfile,
    what: &'static str,
) -> Result<OperatingSystemProfile, Error> {
    let api = context.profile_api(&gathered.namespace);
    let send = async |dry_run: bool| {
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        match &profile.metadata.resource_version {
            Some(_) => api.replace(&gathered.name, &params, profile).await,
            None => api.create(&params, profile).await,
        }
    };
    let written = match send(true).await {
        Ok(tried) if tried.spec != profile.spec => return Err(Error::FieldsDropped { what }),
        Ok(_) => send(false).await,
        // A webhook without `sideEffects: None` keeps the API server from dry runs, not from requests.
        Err(error) if error::is_code(&error, 400) => send(false).await,
        Err(error) => Err(error),
    };
    match written {
        Ok(written) => {
            context.wrote(written.clone());
            // The next reconcile validates the profile.
            context.queue.add(gathered.key());
            Ok(written)
        }
        Err(error) if error::already_exists(&error) => {
            // The watch is behind. With the object from the API server, the next plan is made for what
            // exists.
            let found = read::get(
                &api,
                &gathered.name,
                StoredProfile::from,
                StoredProfile::unreadable,
            );
            if let Some(found) = found.await.map_err(failed(what))? {
                context.saw(found);
            }
            Err(Error::Conflict { what })
        }
        Err(error) => Err(failed(what)(error)),
    }
}

async fn restore(context: &Context, gathered: &Gathered, plan: &Restore) -> Result<(), Error> {
    let mut profile = plan.profile.clone();
    if let Some(version) = &plan.interim_version {
        let mut first = profile.clone();
        first.spec.version.clone_from(version);
        let first = write(context, gathered, &first, DEFAULT).await?;
        profile.metadata.resource_version = first.metadata.resource_version;
    }
    write(context, gathered, &profile, DEFAULT).await.map(drop)
}

/// Writes the copy. The API server's schema is the last check of a custom profile: what it refuses, the
/// author must correct.
async fn copy(
    context: &Context,
    gathered: &Gathered,
    profile: &OperatingSystemProfile,
) -> Result<Option<Problem>, Error> {
    match write(context, gathered, profile, COPY).await {
        Ok(_) => Ok(None),
        Err(error) => match refused_fields(&error) {
            Some(mistakes) => Ok(Some(Problem::Invalid { mistakes })),
            None => Err(error),
        },
    }
}

/// The fields that the API server refuses as invalid. Its message is left out, because it repeats values.
fn refused_fields(error: &Error) -> Option<String> {
    let Error::Failed { source, .. } = error else {
        return None;
    };
    let kube::Error::Api(status) = source.as_ref() else {
        return None;
    };
    let causes = status
        .details
        .as_ref()
        .filter(|_| status.code == 422)?
        .causes
        .iter();
    let mut fields: Vec<String> = causes
        .map(|cause| format!("the API server refuses {} ({})", cause.field, cause.reason))
        .collect();
    fields.dedup();
    Some(fields.join("; "))
}
