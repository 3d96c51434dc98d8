//! Reports what a reconcile did: status, Events, metrics and log lines. Nothing else writes them.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use osm_api::condition::{self, CURRENT, RENDERED};
use osm_api::config::{RequestedProfile, Retired, UserDataBytes};
use osm_api::profile::CloudProvider;
use osm_api::{PoolRef, Reason};
use osm_runtime::request::failed;
use osm_runtime::{Error, read, status};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::context::Context;
use crate::gather::Gathered;
use crate::plan::{ObjectPlan, Plan, Rejection, RenderedStatus, StatusPlan};
use crate::view::ConfigView;

/// Name of the field manager of this controller.
const FIELD_MANAGER: &str = "osc-controller";

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
    conditions: &'a [Condition],
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a RequestedProfile>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retired: Option<&'a Retired>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rendered: Option<Value>,
}

/// Sends the status, unless the object has it already.
async fn write_status(
    context: &Context,
    gathered: &Gathered,
    plan: &StatusPlan,
    config: &ConfigView,
) -> Result<(), Error> {
    let generation = config.metadata.generation;
    let (rendered, retired, anyway) = match &plan.rendered {
        RenderedStatus::Retired(retired) => (None, Some(retired), false),
        RenderedStatus::Last => (config.status.rendered.clone(), None, false),
        RenderedStatus::New { rendered, anyway } => (Some(rendered.rendered().clone()), None, *anyway),
    };
    let stored = &config.status.conditions;
    let verdicts = std::iter::once(&plan.verdict).chain(&plan.refused);
    let conditions: Vec<Condition> = verdicts
        .map(|verdict| verdict.condition(stored, generation, gathered.now))
        .collect();
    let is_current = condition::has_all(stored, &conditions)
        && condition::find(stored, CURRENT).is_some() == plan.refused.is_some()
        && config.status.profile == gathered.requested_profile
        && config.status.rendered == rendered
        && config.status.retired.as_ref() == retired;
    if is_current && !anyway {
        return Ok(());
    }
    let rendered = match &plan.rendered {
        RenderedStatus::Retired(_) => None,
        RenderedStatus::Last => last(context, config).await?,
        RenderedStatus::New { rendered, .. } => Some(json!(rendered.pack())),
    };
    let status = OwnStatus {
        conditions: &conditions,
        profile: gathered.requested_profile.as_ref(),
        retired,
        rendered,
    };
    let version = config.metadata.resource_version.as_deref().unwrap_or_default();
    let applied = status::apply(
        &context.config_api(),
        FIELD_MANAGER,
        &gathered.name,
        version,
        &status,
    )
    .await;
    if let Some(config) = applied.map_err(failed("the OperatingSystemConfig's status"))? {
        context.wrote(config);
    }
    Ok(())
}

/// The last good result with its documents, which the cache does not keep, and as it is stored: another version may have written it. A
/// server-side apply removes what it leaves out.
async fn last(context: &Context, config: &ConfigView) -> Result<Option<Value>, Error> {
    const WHAT: &str = "the OperatingSystemConfig";
    if config.status.rendered.is_none() && !config.is_unreadable {
        return Ok(None);
    }
    let (api, name) = (
        context.config_api(),
        config.metadata.name.as_deref().unwrap_or_default(),
    );
    let found = read::get(
        &api,
        name,
        |config| {
            let rendered = config.status.and_then(|status| status.rendered);
            (
                config.metadata.resource_version,
                rendered.map(|rendered| json!(rendered)),
            )
        },
        |config| {
            let mut status = config.part::<Map<String, Value>>("status");
            (
                config.metadata.resource_version.clone(),
                status.remove("rendered"),
            )
        },
    );
    match found.await.map_err(failed(WHAT))? {
        Some((version, rendered)) if version == config.metadata.resource_version => Ok(rendered),
        _ => Err(Error::Conflict { what: WHAT }),
    }
}

/// Logs what was rendered, and emits an Event where the condition has changed. secret-syncer logs the same pool, revision and digest when it
/// publishes that.
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
    // To wait for a profile is no failure.
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
    match has_failed {
        true => log!(warn),
        false => log!(info),
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
