//! Reports what a reconcile did: status, Events, metrics and log lines. Nothing else writes them.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use osm_api::condition::{self, CURRENT, RENDERED, Verdict};
use osm_api::config::{OperatingSystemConfig, RequestedProfile, Retired, Stored, UserDataBytes};
use osm_api::profile::CloudProvider;
use osm_api::{PoolRef, Reason};
use osm_runtime::request::failed;
use osm_runtime::{Error, status};
use serde::Serialize;

use crate::context::Context;
use crate::gather::Gathered;
use crate::plan::{ObjectPlan, Plan, Rejection, RenderedStatus, StatusPlan};
use crate::view::ConfigView;

/// The field manager of the documents, and of the condition that is written with them.
pub const FIELD_MANAGER: &str = "osc-controller";

/// The field manager of conditions that change alone: it sends no documents.
const CONDITION_MANAGER: &str = "osc-controller-condition";

/// Reports what a reconcile did, the status first. `config` is the OperatingSystemConfig as it is now.
///
/// # Errors
/// The write of the status; then nothing else is reported.
pub async fn report(
    context: &Context,
    gathered: &Gathered,
    plan: &Plan,
    config: Option<&ConfigView>,
) -> Result<(), Error> {
    if let (Some(status), Some(config)) = (&plan.status, config) {
        write_status(context, gathered, status, config).await?;
    }
    report_rejections(context, gathered, &plan.rejected).await;
    note_other_cluster(context, gathered, plan);
    if matches!(plan.object, ObjectPlan::Delete(_)) {
        tracing::info!(
            config = gathered.name,
            "the pool is retired, and everything created for it is deleted"
        );
    }
    if gathered.claimants.is_empty() && config.is_none() {
        context.forget(&gathered.name);
    }
    if let Some(status) = &plan.status {
        let verdict = &status.verdict;
        context
            .conditions
            .count(&gathered.name, RENDERED, verdict.status, verdict.reason);
        context
            .sizes
            .note(&gathered.name, sizes(gathered, &status.rendered));
        report_change(context, gathered, status, plan.subject.as_ref()).await;
    }
    Ok(())
}

/// The fields of [`osm_api::config::OperatingSystemConfigStatus`] that this controller owns.
#[derive(Debug, Serialize)]
struct OwnStatus<'a> {
    conditions: Vec<Condition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a RequestedProfile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retired: Option<&'a Retired>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rendered: Option<Stored>,
}

/// Sends what the object does not have already: new content in one write with its condition, then what is
/// left.
///
/// A server-side apply removes what its manager leaves out, so [`FIELD_MANAGER`] always sends the documents.
/// Conditions that change alone are sent without them by [`CONDITION_MANAGER`], which owns no document that
/// it could remove.
async fn write_status(
    context: &Context,
    gathered: &Gathered,
    plan: &StatusPlan,
    config: &ConfigView,
) -> Result<(), Error> {
    let before = &config.status;
    let condition = |verdict: &Verdict, config: &ConfigView| {
        verdict.condition(
            &config.status.conditions,
            config.metadata.generation,
            gathered.now,
        )
    };
    let mut status = OwnStatus {
        conditions: vec![condition(&plan.verdict, config)],
        profile: gathered.requested_profile.as_ref(),
        retired: None,
        rendered: None,
    };
    match &plan.rendered {
        RenderedStatus::Last => {}
        RenderedStatus::Retired(retired) => status.retired = Some(retired),
        RenderedStatus::New {
            stored,
            content,
            anyway,
        } => {
            let differs = before.rendered.as_ref() != Some(&**stored) || before.retired.is_some();
            status.rendered = (differs || *anyway).then(|| stored.with_documents(content));
        }
    }
    let (api, name) = (context.config_api(), gathered.name.as_str());
    let mut config = Cow::Borrowed(config);
    if plan.refused.is_none() && condition::find(&before.conditions, CURRENT).is_some() {
        let mut others = before.conditions.clone();
        others.retain(|condition| condition.type_ != CURRENT);
        let written = status::replace_conditions(&api, name, config.version(), &others).await;
        let Some(written) = wrote(context, written)? else {
            return Ok(());
        };
        config = Cow::Owned(written);
    }
    if status.rendered.is_some() || status.retired.is_some() {
        let written = status::apply(&api, FIELD_MANAGER, name, config.version(), &status).await;
        let Some(written) = wrote(context, written)? else {
            return Ok(());
        };
        config = Cow::Owned(written);
        (status.rendered, status.retired) = (None, None);
    }
    // `Current` is never sent together with the documents. A version that knows only the manager of these
    // then leaves it alone.
    let verdicts = std::iter::once(&plan.verdict).chain(&plan.refused);
    status.conditions = verdicts.map(|verdict| condition(verdict, &config)).collect();
    let is_current = condition::has_all(&config.status.conditions, &status.conditions)
        && config.status.profile == gathered.requested_profile;
    if !is_current {
        let written = status::apply(&api, CONDITION_MANAGER, name, config.version(), &status).await;
        wrote(context, written)?;
    }
    Ok(())
}

/// Records the answer to a write of the status. `None`: it can't be decoded, and the watch reports it.
fn wrote(
    context: &Context,
    answer: Result<Option<OperatingSystemConfig>, kube::Error>,
) -> Result<Option<ConfigView>, Error> {
    let config = answer.map_err(failed("the OperatingSystemConfig's status"))?;
    Ok(config.map(|config| context.wrote(config)))
}

/// Logs what was rendered, and emits an Event where the condition has changed. secret-syncer logs the same
/// pool, revision and digest when it publishes that.
async fn report_change(
    context: &Context,
    gathered: &Gathered,
    status: &StatusPlan,
    subject: Option<&PoolRef>,
) {
    let (config, verdict) = (gathered.config.as_ref(), &status.verdict);
    let before = config.and_then(|config| condition::find(&config.status.conditions, RENDERED));
    let is_reported = before.is_some_and(|before| verdict.is_reported_by(before));
    let last = config.and_then(|config| config.status.rendered.as_ref());
    let digest = status.rendered.now().map(|rendered| rendered.digest.as_str());
    let is_new = digest.is_some() && digest != last.map(|last| last.digest.as_str());
    if is_reported && !is_new {
        return;
    }
    let rendered_for = config.and_then(|config| config.rendered_for.as_ref());
    let pool = subject.or(rendered_for.map(|rendered_for| &rendered_for.pool));
    let owner = gathered.claimants.first();
    // Waiting for a profile is not a failure.
    let has_failed = !verdict.status && verdict.reason != Reason::WaitingForProfile;
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(
                config = gathered.name,
                pool = pool.map(tracing::field::display),
                revision = owner.and_then(|owner| owner.revision.as_deref()),
                digest,
                rendered = verdict.status,
                reason = %verdict.reason,
                "{}",
                verdict.message
            )
        };
    }
    if has_failed {
        log!(warn);
    } else {
        log!(info);
    }
    if is_reported {
        return;
    }
    let Some(about) = subject.map(ObjectReference::from) else {
        return;
    };
    let failed_before = before.is_some_and(|before| before.status != "True");
    let events = &context.cluster.worker.events;
    if has_failed {
        events.warning(&about, verdict.reason, &verdict.message).await;
    } else if verdict.status && failed_before {
        events.recovery(&about, verdict.reason, &verdict.message).await;
    }
}

/// Sizes of the content that may be published, with the cloud that they are for.
fn sizes(gathered: &Gathered, status: &RenderedStatus) -> Option<(CloudProvider, UserDataBytes)> {
    let rendered = match status {
        RenderedStatus::Last => gathered.config.as_ref()?.status.rendered.as_ref(),
        other => other.now(),
    };
    Some((
        gathered.claimants.first()?.cloud_provider?,
        rendered?.user_data_bytes?,
    ))
}

/// The service is not ready while an object belongs to another cluster.
fn note_other_cluster(context: &Context, gathered: &Gathered, plan: &Plan) {
    let rejections = plan.rejected.iter();
    let rejections = rejections.map(|rejection| (rejection.reason, &rejection.message));
    let verdict = plan.status.as_ref().map(|status| &status.verdict);
    let mut found = rejections.chain(verdict.map(|verdict| (verdict.reason, &verdict.message)));
    let problem = found.find(|(reason, _)| *reason == Reason::ClusterChanged);
    context
        .foreign_cluster
        .note(&gathered.name, problem.map(|(_, message)| message.as_str()));
}

async fn report_rejections(context: &Context, gathered: &Gathered, rejected: &[Rejection]) {
    for Rejection {
        pool,
        reason,
        message,
    } in rejected
    {
        if context.memory.reject(&pool.uid, *reason) {
            context.conditions.count(&pool.uid, RENDERED, false, *reason);
            tracing::warn!(config = gathered.name, reason = %reason, "{message}");
            context
                .cluster
                .worker
                .events
                .warning(&pool.into(), *reason, message)
                .await;
        }
        // A config that went away since this reconcile began woke only the pools that were rejected before.
        if *reason == Reason::TooManyMachineDeployments && context.full_at().is_none() {
            context.queue.add(gathered.name.clone());
        }
    }
    // The owner of the config may have been rejected before.
    for PoolRef { uid, .. } in gathered.claimants.iter().map(|claimant| &claimant.pool_ref) {
        if !rejected.iter().any(|rejection| rejection.pool.uid == *uid) {
            context.no_longer_rejected(uid);
        }
    }
}
