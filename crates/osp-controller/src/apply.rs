//! Executes a plan: writes a default profile, or the copy of a custom profile. It makes no choices.

use kube::api::PostParams;
use osm_api::OperatingSystemProfile;
use osm_runtime::request::failed;
use osm_runtime::{RequestError, error, read};

use crate::context::Context;
use crate::custom_profile::{Problem, Step};
use crate::default_profile::{Install, Restore};
use crate::gather::Gathered;
use crate::plan::Plan;
use crate::stored_profile::StoredProfile;

/// What was done for the copy of a custom profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copied {
    /// It was up to date.
    Kept,
    Created,
    Updated,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// `None` if there is no custom profile.
    pub copy: Option<Result<Copied, Problem>>,
}

/// Installs the default profile, or writes the copy, if the plan contains that.
///
/// # Errors
/// Failed requests; [`RequestError::Conflict`] if the stored profile is not the one that was gathered.
pub async fn apply(context: &Context, gathered: &Gathered, plan: &Plan) -> Result<Applied, RequestError> {
    match &plan.install {
        None => {}
        Some(Install::Create(profile)) => {
            let created = create(context, gathered, profile, &DEFAULT).await?;
            wrote(context, gathered, created);
        }
        Some(Install::Restore(plan)) => {
            let restored = restore(context, gathered, plan).await?;
            wrote(context, gathered, restored);
        }
    }
    let copy = match plan.copy.clone() {
        Some(Ok(step)) => Some(copy(context, gathered, &step).await?),
        Some(Err(problem)) => Some(Err(problem)),
        None => None,
    };
    Ok(Applied { copy })
}

/// The next reconcile validates the profile.
fn wrote(context: &Context, gathered: &Gathered, profile: OperatingSystemProfile) {
    context.wrote(profile);
    context.queue.add(gathered.key());
}

/// How errors name what is written.
struct Named {
    what: &'static str,
    reading: &'static str,
    creating: &'static str,
    replacing: &'static str,
}

const DEFAULT: Named = Named {
    what: "the default profile",
    reading: "reading the default profile",
    creating: "creating the default profile",
    replacing: "restoring the default profile",
};

const COPY: Named = Named {
    what: "the copy of the custom profile",
    reading: "reading the copy of the custom profile",
    creating: "creating the copy of the custom profile",
    replacing: "updating the copy of the custom profile",
};

async fn create(
    context: &Context,
    gathered: &Gathered,
    profile: &OperatingSystemProfile,
    named: &Named,
) -> Result<OperatingSystemProfile, RequestError> {
    let api = context.profile_api(&gathered.namespace);
    let send = async |dry_run: bool| {
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        api.create(&params, profile).await
    };
    let created = match send(true).await {
        Ok(tried) if tried.spec != profile.spec => {
            return Err(RequestError::FieldsDropped { what: named.what });
        }
        Ok(_) => send(false).await,
        // A webhook without `sideEffects: None` keeps the API server from dry runs, not from requests.
        Err(error) if error::is_code(&error, 400) => send(false).await,
        Err(error) => Err(error),
    };
    match created {
        Ok(created) => Ok(created),
        Err(error) if error::already_exists(&error) => {
            // The watch is behind. With the object from the API server, the next plan is made for what exists.
            let found = read::get(
                &api,
                &gathered.name,
                StoredProfile::from,
                StoredProfile::unreadable,
            );
            if let Some(found) = found.await.map_err(failed(named.reading))? {
                context.saw(found);
            }
            Err(RequestError::Conflict { what: named.what })
        }
        Err(error) => Err(failed(named.creating)(error)),
    }
}

async fn restore(
    context: &Context,
    gathered: &Gathered,
    plan: &Restore,
) -> Result<OperatingSystemProfile, RequestError> {
    let mut profile = plan.profile.clone();
    let Some(version) = &plan.interim_version else {
        return replace(context, gathered, &profile, &DEFAULT).await;
    };
    let mut first = profile.clone();
    first.spec.version.clone_from(version);
    let first = replace(context, gathered, &first, &DEFAULT).await?;
    profile.metadata.resource_version = first.metadata.resource_version;
    replace(context, gathered, &profile, &DEFAULT).await
}

/// Replaces the stored profile, unless the API server would drop fields: the watch would show each write as a difference, and cause the
/// next one.
async fn replace(
    context: &Context,
    gathered: &Gathered,
    profile: &OperatingSystemProfile,
    named: &Named,
) -> Result<OperatingSystemProfile, RequestError> {
    let api = context.profile_api(&gathered.namespace);
    let send = async |dry_run: bool| {
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        let replaced = api.replace(&gathered.name, &params, profile).await;
        replaced.map_err(failed(named.replacing))
    };
    if send(true).await?.spec != profile.spec {
        return Err(RequestError::FieldsDropped { what: named.what });
    }
    send(false).await
}

/// Writes the copy. The API server's schema is the last check of a custom profile: what it refuses, the author must correct.
async fn copy(
    context: &Context,
    gathered: &Gathered,
    step: &Step,
) -> Result<Result<Copied, Problem>, RequestError> {
    let (written, copied) = match step {
        Step::Keep => return Ok(Ok(Copied::Kept)),
        Step::Create(profile) => (create(context, gathered, profile, &COPY).await, Copied::Created),
        Step::Update(profile) => (replace(context, gathered, profile, &COPY).await, Copied::Updated),
    };
    match written {
        Ok(profile) => {
            wrote(context, gathered, profile);
            Ok(Ok(copied))
        }
        Err(error) => refused_fields(&error)
            .map(|mistakes| Err(Problem::Invalid { mistakes }))
            .ok_or(error),
    }
}

/// The fields that the API server refuses as invalid. Its message is left out, because it repeats values.
fn refused_fields(error: &RequestError) -> Option<String> {
    let RequestError::Failed { source, .. } = error else {
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
