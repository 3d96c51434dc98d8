//! Writes the status, emits Events, counts, and logs outcomes.

use std::time::Duration;

use osm_api::condition::{self, PUBLISHED, Verdict};
use osm_api::config::{OperatingSystemConfigStatus, Published};
use osm_api::names;
use osm_runtime::error::Failure;
use osm_runtime::request::failed;
use osm_runtime::status;

use crate::io::apply::Applied;
use crate::io::caches;
use crate::io::context::Context;
use crate::io::error::Error;
use crate::model::view::ConfigView;
use crate::plan::conditions::{self, Announcement, event, is_change, is_reported};
use crate::plan::messages;

const FIELD_MANAGER: &str = "secret-syncer";

/// Reports the outcome of a config's reconcile; returns when to look again.
///
/// # Errors
/// The failure of the reconcile itself, or of writing the status.
pub async fn report(
    context: &Context,
    name: &str,
    outcome: Result<Applied, Error>,
) -> Result<Option<Duration>, Error> {
    let reporting = &context.reporting;
    // Failures show nothing new about whose cluster it is.
    if let Ok(applied) = &outcome {
        let problem = applied.foreign_cluster.as_deref();
        reporting.foreign_cluster.note(name, problem);
    }
    let Some(config) = context.shared.configs.get(&context.config_key(name)) else {
        context.forget(name);
        return outcome.map(|applied| applied.requeue_after);
    };
    let bootstrap = names::bootstrap_secret_of(name);
    let bootstrap = bootstrap.and_then(|secret| context.caches.secrets.get(&caches::key(&secret)));
    reporting.note_expiry(name, conditions::expiry(&config, bootstrap.as_deref()));
    match outcome {
        Ok(applied) => {
            reporting.succeeded(name);
            for cause in &applied.published_for {
                context.shared.metrics.published(*cause);
            }
            if let Some(verdict) = applied.verdict {
                if applied.about != Some(config.content_id()) {
                    // It is another config now, or has other content, of which this status does not speak.
                    return Err(Error::Report(osm_runtime::Error::Conflict {
                        what: "the OperatingSystemConfig",
                    }));
                }
                let written = set_status(context, &config, verdict, applied.published);
                written.await.map_err(Error::Report)?;
            }
            Ok(applied.requeue_after)
        }
        Err(error) => {
            let now = context.cluster.worker.server_time.now();
            if is_reported(error.may_pass(), reporting.failed(name, now), now) {
                let verdict = messages::not_published(error.reason(), error.to_string());
                if let Err(other) = set_status(context, &config, verdict, None).await {
                    tracing::debug!(config = name, %other, "the status can't be written either");
                }
            }
            Err(error)
        }
    }
}

/// Whether new machines can boot with what the caches show.
fn is_in_force(context: &Context, config: &ConfigView) -> bool {
    let Some(md) = &config.machine_deployment else {
        return false;
    };
    let pool = md.id();
    let (existing, _) = context.caches.existing(&config.name, &pool);
    let now = context.cluster.worker.server_time.now();
    conditions::is_in_force(&existing, &pool, config.needs_kubeconfig_secret, now)
}

/// `published` was just seen to be in force; without it, what was published stays, unless the pool is gone. A
/// status that would change nothing is not written.
async fn set_status(
    context: &Context,
    config: &ConfigView,
    verdict: Verdict,
    published: Option<Published>,
) -> Result<(), osm_runtime::Error> {
    let is_kept = published.is_some() || is_in_force(context, config);
    let published = published.or_else(|| conditions::kept(&config.status, &verdict));
    let ready = conditions::ready(&verdict, published.as_ref().filter(|_| is_kept));
    context
        .reporting
        .conditions
        .count(&config.name, PUBLISHED, verdict.status, verdict.reason);
    let current = &config.status.conditions;
    let now = context.cluster.process.environment.now();
    let conditions = condition::all([&verdict, &ready], current, Some(config.generation), now);
    if condition::has_all(current, &conditions) && config.status.published == published {
        return Ok(());
    }
    let before = condition::find(current, PUBLISHED);
    let status = OperatingSystemConfigStatus {
        conditions: conditions.to_vec(),
        published,
        ..Default::default()
    };
    let (api, version) = (context.configs(), &config.resource_version);
    let written = status::apply(&api, FIELD_MANAGER, &config.name, version, &status).await;
    if let Some(config) = written.map_err(failed("the OperatingSystemConfig's status"))? {
        context.saw_config(ConfigView::of(&config));
    }
    if is_change(before, &verdict) {
        let rendered = config.status.rendered.as_ref();
        tracing::info!(
            config = config.name,
            pool = config.machine_deployment.as_ref().map(tracing::field::display),
            revision = rendered.and_then(|rendered| rendered.revision.as_deref()),
            digest = rendered.map(|rendered| rendered.digest.as_str()),
            published = verdict.status,
            reason = %verdict.reason,
            "{}",
            verdict.message
        );
    }
    let events = &context.cluster.management.events;
    let about = || config.reference(context.cluster.namespace());
    match event(before, &verdict) {
        Some(Announcement::Warning) => {
            events.warning(&about(), verdict.reason, &verdict.message).await;
        }
        Some(Announcement::Recovery) => {
            events.recovery(&about(), verdict.reason, &verdict.message).await;
        }
        None => {}
    }
    Ok(())
}
