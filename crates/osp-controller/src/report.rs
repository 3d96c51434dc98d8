//! Reports the outcome of a reconcile: status, Events, metrics and log. No other module does.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use osm_api::Reason;
use osm_api::condition::{ACCEPTED, Verdict};
use osm_runtime::request::failed;
use osm_runtime::status;

use crate::apply::{Applied, Copied};
use crate::custom_profile::{CustomProfile, Problem, is_copy};
use crate::default_profile::{Install, Restore};
use crate::gather::Gathered;
use crate::plan::{Plan, StatusUpdate, Transition};
use crate::state::{COPIED, State};
use crate::{Error, FIELD_MANAGER};

/// Reports what a reconcile has found and done.
///
/// # Errors
/// The status cannot be written. Nothing is reported then, and the next reconcile tries again.
pub async fn report(state: &State, gathered: &Gathered, plan: &Plan, applied: &Applied) -> Result<(), Error> {
    if let Some(update) = &plan.status {
        write_status(state, gathered, update).await?;
    }
    let key = gathered.key();
    match (&plan.verdict, &plan.awaited) {
        (Some(verdict), _) => state
            .conditions
            .count(&key, ACCEPTED, verdict.status, verdict.reason),
        (None, Some(base)) => {
            tracing::debug!(
                profile = key,
                base,
                "waits for the validation of the profile that it extends"
            );
        }
        (None, None) => state.conditions.forget(&key, ACCEPTED),
    }
    match (&gathered.custom, &applied.copy) {
        (Some(custom), Some(Ok(copied))) => report_copied(state, &key, custom, *copied).await,
        (Some(custom), Some(Err(problem))) => report_problem(state, &key, custom, problem).await,
        _ => state.forget_copy(&key),
    }
    if let Some(install) = &plan.install {
        report_install(state, gathered, install).await;
    }
    if let (Some(verdict), Some(update), Some(stored)) = (&plan.verdict, &plan.status, &gathered.stored) {
        // The author of a copy edits the custom profile.
        let custom = gathered.custom.as_ref().filter(|_| is_copy(stored));
        let about = custom.map_or_else(|| stored.object_ref(&()), |custom| custom.about.clone());
        report_verdict(state, &key, &about, verdict, update.transition).await;
    }
    Ok(())
}

async fn write_status(state: &State, gathered: &Gathered, update: &StatusUpdate) -> Result<(), Error> {
    let api = state.profile_api(&gathered.namespace);
    let StatusUpdate {
        resource_version,
        status,
        ..
    } = update;
    let written = status::apply(&api, FIELD_MANAGER, &gathered.name, resource_version, status).await;
    if let Some(profile) = written.map_err(failed("writing the status of the profile"))? {
        state.wrote(profile);
    }
    Ok(())
}

async fn report_install(state: &State, gathered: &Gathered, install: &Install) {
    let profile = gathered.key();
    match install {
        Install::Create(created) => {
            let version = &created.spec.version;
            tracing::info!(profile, version, "created the default profile");
        }
        Install::Restore(Restore {
            notice: Some(notice), ..
        }) => {
            let reason = Reason::DefaultProfileRestored;
            tracing::warn!(profile, %reason, "{notice}");
            if let Some(stored) = &gathered.stored {
                let about = stored.object_ref(&());
                state
                    .cluster
                    .management
                    .events
                    .warning(&about, reason, notice)
                    .await;
            }
        }
        Install::Restore(Restore { notice: None, .. }) => {
            tracing::info!(profile, "replaced the default profile of another release");
        }
    }
}

async fn report_copied(state: &State, profile: &str, custom: &CustomProfile, copied: Copied) {
    let reason = Reason::CustomProfileCopied;
    state.conditions.count(profile, COPIED, true, reason);
    match copied {
        Copied::Kept => {}
        Copied::Created => tracing::info!(profile, "created the copy of the custom profile"),
        Copied::Updated => tracing::info!(profile, "updated the copy of the custom profile"),
    }
    let recovered = state.problems.lock().remove(profile).is_some();
    if recovered {
        let note =
            "osp-controller copied the custom profile into the OperatingSystemProfile of the same name";
        let events = &state.cluster.management.events;
        events.recovery(&custom.about, reason, note).await;
    }
}

async fn report_problem(state: &State, profile: &str, custom: &CustomProfile, problem: &Problem) {
    let reason = problem.reason();
    state.conditions.count(profile, COPIED, false, reason);
    let before = state.problems.lock().insert(profile.to_owned(), problem.clone());
    if before.as_ref() != Some(problem) {
        tracing::warn!(profile, %reason, "{problem}");
        let events = &state.cluster.management.events;
        events.warning(&custom.about, reason, &problem.to_string()).await;
    }
}

async fn report_verdict(
    state: &State,
    profile: &str,
    about: &ObjectReference,
    verdict: &Verdict,
    transition: Option<Transition>,
) {
    let Verdict { reason, message, .. } = verdict;
    if verdict.status {
        tracing::info!(profile, "accepted: {message}");
    } else {
        tracing::warn!(profile, %reason, "refused: {message}");
    }
    let events = &state.cluster.management.events;
    match transition {
        None => {}
        Some(Transition::Refused) => events.warning(about, *reason, message).await,
        Some(Transition::Recovered) => events.recovery(about, *reason, message).await,
    }
}
