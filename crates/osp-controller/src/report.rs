//! Reports the outcome of a reconcile: status, Events, metrics and log. No other module does.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use osm_api::Reason;
use osm_api::condition::{ACCEPTED, Verdict};
use osm_runtime::request::failed;
use osm_runtime::{Error, status};

use crate::context::{COPIED, Context};
use crate::custom_profile::{CustomProfile, Problem, Step, is_copy};
use crate::default_profile::{Install, Restore};
use crate::gather::Gathered;
use crate::plan::{Plan, StatusUpdate, Transition};

/// The field manager of this controller.
const FIELD_MANAGER: &str = "osp-controller";

/// Reports what a reconcile has found and done. `refused`: why the API server refuses the copy of a custom
/// profile.
///
/// # Errors
/// The status cannot be written. Nothing is reported then, and the next reconcile tries again.
pub async fn report(
    context: &Context,
    gathered: &Gathered,
    plan: &Plan,
    refused: Option<&Problem>,
) -> Result<(), Error> {
    if let Some(update) = &plan.status {
        write_status(context, gathered, update).await?;
    }
    let key = gathered.key();
    match (&plan.verdict, &gathered.awaited) {
        (Some(verdict), _) => context
            .conditions
            .count(&key, ACCEPTED, verdict.status, verdict.reason),
        (None, Some(base)) => {
            tracing::debug!(
                profile = key,
                base,
                "waits for the validation of the profile that it extends"
            );
        }
        (None, None) => context.conditions.forget(&key, ACCEPTED),
    }
    match (&gathered.custom, &plan.copy, refused) {
        (Some(custom), Some(Ok(step)), None) => report_copied(context, &key, custom, step).await,
        (Some(custom), Some(Err(problem)), _) | (Some(custom), _, Some(problem)) => {
            report_problem(context, &key, custom, problem).await;
        }
        _ => context.forget_copy(&key),
    }
    if let Some(install) = &plan.install {
        report_install(context, gathered, install).await;
    }
    if let (Some(verdict), Some(update), Some(stored)) = (&plan.verdict, &plan.status, &gathered.stored) {
        // The author of a copy edits the custom profile.
        let custom = gathered.custom.as_ref().filter(|_| is_copy(stored));
        let about = custom.map_or_else(|| stored.object_ref(&()), |custom| custom.about.clone());
        report_verdict(context, &key, &about, verdict, update.transition).await;
    }
    Ok(())
}

async fn write_status(context: &Context, gathered: &Gathered, update: &StatusUpdate) -> Result<(), Error> {
    let api = context.profile_api(&gathered.namespace);
    let StatusUpdate {
        resource_version,
        status,
        ..
    } = update;
    let written = status::apply(&api, FIELD_MANAGER, &gathered.name, resource_version, status).await;
    if let Some(profile) = written.map_err(failed("writing the status of the profile"))? {
        context.wrote(profile);
    }
    Ok(())
}

async fn report_install(context: &Context, gathered: &Gathered, install: &Install) {
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
                context
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

async fn report_copied(context: &Context, profile: &str, custom: &CustomProfile, step: &Step) {
    let reason = Reason::CustomProfileCopied;
    context.conditions.count(profile, COPIED, true, reason);
    match step {
        Step::Keep => {}
        Step::Create(_) => tracing::info!(profile, "created the copy of the custom profile"),
        Step::Update(_) => tracing::info!(profile, "updated the copy of the custom profile"),
    }
    let recovered = context.problems.lock().remove(profile).is_some();
    if recovered {
        let note =
            "osp-controller copied the custom profile into the OperatingSystemProfile of the same name";
        let events = &context.cluster.management.events;
        events.recovery(&custom.about, reason, note).await;
    }
}

async fn report_problem(context: &Context, profile: &str, custom: &CustomProfile, problem: &Problem) {
    let reason = problem.reason();
    context.conditions.count(profile, COPIED, false, reason);
    let before = context
        .problems
        .lock()
        .insert(profile.to_owned(), problem.clone());
    if before.as_ref() != Some(problem) {
        tracing::warn!(profile, %reason, "{problem}");
        let events = &context.cluster.management.events;
        events.warning(&custom.about, reason, &problem.to_string()).await;
    }
}

async fn report_verdict(
    context: &Context,
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
    let events = &context.cluster.management.events;
    match transition {
        None => {}
        Some(Transition::Refused) => events.warning(about, *reason, message).await,
        Some(Transition::Recovered) => events.recovery(about, *reason, message).await,
    }
}
