//! All decisions of secret-syncer, from what was gathered alone: no client, no clock.
//!
//! [`mod@findings`] says why a pool is published. Each other question has a file of its name. What only the API server's answer can show
//! ([`adoption`]) is decided here as well, from that answer.

pub mod adoption;
pub mod announcement;
pub mod cause;
pub mod content;
pub mod error;
pub mod findings;
pub mod hold;
pub mod identity;
pub mod join_right;
pub mod legacy_tokens;
pub mod messages;
pub mod orphan_budget;
pub mod orphans;
pub mod priority;
pub mod provisioning_secret;
pub mod publish;
pub mod read_right;
pub mod ready;
pub mod remember;
pub mod renewal;
pub mod repair_limit;
pub mod steps;
pub mod teardown;
pub mod timing;
pub mod waiting;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod hold_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use osm_api::condition::Verdict;
use osm_api::{PoolRef, names};
use osm_runtime::foreign_cluster::CLUSTER_CHANGED;

use crate::model::gathered::Gathered;
use crate::model::memory::PoolMemory;
use crate::model::ownership::OwnershipLabels;
use crate::model::view::ConfigView;
use crate::plan::content::Comparison;
use crate::plan::error::PlanError;
use crate::plan::findings::{Input, findings};
use crate::plan::hold::Hold;
use crate::plan::publish::{Subject, Target};
use crate::plan::remember::remember;
use crate::plan::steps::{Plan, Step};
use crate::plan::timing::{MAX_REQUEUE_INTERVAL, until};

/// Decides what is to be done for one OperatingSystemConfig, and for what was made for its predecessors; and what to remember from now
/// on, which holds without a plan as well.
pub fn plan(gathered: &Gathered) -> (PoolMemory, Result<Plan, PlanError>) {
    let mut memory = remember(gathered);
    let plan = plan_with(gathered, &mut memory);
    (memory, plan)
}

/// # Errors
/// Content that is held back, where nothing is published; repairs that don't last.
fn plan_with(gathered: &Gathered, memory: &mut PoolMemory) -> Result<Plan, PlanError> {
    let Decision {
        step,
        degraded,
        again,
    } = match &gathered.config {
        Some(config) => for_config(gathered, config, memory)?,
        // Without a config its pool is not known either: everything of that name is among the orphans.
        None => Decision::of(Step::None, None),
    };
    let (mut orphans, orphans_again) = orphans::orphans(gathered);
    // Without a rendered content and its pool it is not known what belongs to whom; a teardown deletes the orphans as well.
    let is_unsure = gathered.config.as_ref().is_some_and(|config| {
        config.status.rendered.is_none() || config.machine_deployment.is_none() || config.unreadable.is_some()
    });
    if is_unsure || matches!(step, Step::Teardown(_)) {
        orphans.clear();
    }
    let foreign_cluster = match &step {
        Step::SetStatus(verdict) if verdict.reason == CLUSTER_CHANGED => Some(verdict.message.clone()),
        _ => orphans::of_another_cluster(gathered)
            .map(|pool| messages::published_through_another_cluster(gathered, pool)),
    };
    let again = [orphans_again, again].into_iter().flatten().min();
    Ok(Plan {
        step,
        orphans,
        foreign_cluster,
        degraded,
        again,
    })
}

/// What is done for the pool of the config.
struct Decision {
    step: Step,
    /// As [`Plan::degraded`].
    degraded: Option<Verdict>,
    again: Option<Duration>,
}

impl Decision {
    fn of(step: Step, again: Option<Duration>) -> Self {
        Self {
            step,
            degraded: None,
            again,
        }
    }
}

fn for_config(
    gathered: &Gathered,
    config: &Arc<ConfigView>,
    memory: &mut PoolMemory,
) -> Result<Decision, PlanError> {
    let Some(md) = &config.machine_deployment else {
        return match hold::unreadable(config) {
            Some(hold) => Err(PlanError::Held(hold.verdict)),
            None => Ok(not_adopted(gathered, config)),
        };
    };
    if let Some(was) = gathered.clusters.other_worker(config) {
        let message = messages::cluster_changed(was, &gathered.clusters.worker);
        let verdict = messages::not_published(CLUSTER_CHANGED, message);
        return Ok(Decision::of(Step::SetStatus(verdict), Some(MAX_REQUEUE_INTERVAL)));
    }
    if config.is_retired() {
        (memory.made_from, memory.tokens) = (None, None);
        return Ok(Decision::of(teardown::of(gathered, config), None));
    }
    match hold::of(gathered, config) {
        Some(hold) => while_held(gathered, config, md, &hold, memory),
        None => new_content(gathered, config, md, memory),
    }
}

fn new_content(
    gathered: &Gathered,
    config: &ConfigView,
    md: &PoolRef,
    memory: &mut PoolMemory,
) -> Result<Decision, PlanError> {
    let (Some(rendered), Ok(inputs)) = (&config.status.rendered, &gathered.inputs) else {
        return Ok(Decision::of(Step::None, None));
    };
    let comparison = content::compare(gathered, &rendered.digest, inputs);
    if comparison == Comparison::Same {
        memory.made_from = content::made_from(gathered, &rendered.digest, inputs);
    }
    let new = Target::New {
        rendered,
        inputs,
        comparison,
    };
    keep_or_publish(gathered, config, md, new, memory)
}

/// What is published is kept, renewed and restored while new content is held back.
fn while_held(
    gathered: &Gathered,
    config: &ConfigView,
    md: &PoolRef,
    hold: &Hold,
    memory: &mut PoolMemory,
) -> Result<Decision, PlanError> {
    if let Some(left) = hold.is_early(gathered.now, memory.waiting_since) {
        return Ok(Decision::of(Step::None, Some(left)));
    }
    let Some(published) = &gathered.published else {
        return match &config.status.published {
            Some(published) => {
                let verdict = messages::kept_until(&hold.verdict, &published.credential_expires);
                Ok(Decision::of(Step::SetStatus(verdict), Some(MAX_REQUEUE_INTERVAL)))
            }
            None if hold.is_failure() => Err(PlanError::Held(hold.verdict.clone())),
            None => Ok(Decision::of(Step::SetStatus(hold.verdict.clone()), None)),
        };
    };
    let mut decision = keep_or_publish(gathered, config, md, Target::Published(published), memory)?;
    decision.degraded = Some(messages::kept_and_renewed(&hold.verdict));
    Ok(decision)
}

fn keep_or_publish(
    gathered: &Gathered,
    config: &ConfigView,
    md: &PoolRef,
    wanted: Target<'_>,
    memory: &mut PoolMemory,
) -> Result<Decision, PlanError> {
    let ownership = OwnershipLabels::new(&gathered.name, &gathered.pool, &gathered.clusters.management, md);
    let findings = findings(&Input {
        gathered,
        is_edge: wanted.is_edge(config),
        needs_kubeconfig_secret: wanted.needs_kubeconfig_secret(config),
        wanted: wanted.as_new(),
        ownership: &ownership,
    });
    if findings.is_empty() {
        let (mut keep, next) = provisioning_secret::tidy(gathered, &ownership, wanted.is_edge(config));
        keep.published = publish::published(gathered, wanted.digest());
        let bootstrap = gathered.existing.bootstrap.as_ref();
        let renewal = bootstrap.and_then(|secret| secret.meta.time(names::RENEW_AT));
        let next = [next, renewal].into_iter().flatten().min();
        let again = next.map_or(MAX_REQUEUE_INTERVAL, |at| {
            until(gathered.now, at).min(MAX_REQUEUE_INTERVAL)
        });
        return Ok(Decision::of(Step::Keep(keep), Some(again)));
    }
    memory.repairs = repair_limit::count(&findings, memory.repairs, gathered.now)?.or(memory.repairs);
    let subject = Subject {
        gathered,
        config,
        md,
        wanted,
        ownership,
    };
    let publish = publish::publish(subject, findings);
    Ok(Decision::of(Step::Publish(Box::new(publish)), None))
}

/// What the Go implementation made is left unchanged until osc-controller can render it.
fn not_adopted(gathered: &Gathered, config: &ConfigView) -> Decision {
    if !config.is_claimed {
        return Decision::of(Step::None, None);
    }
    let verdict = messages::not_adopted(gathered.inherited.as_ref());
    Decision::of(Step::SetStatus(verdict), Some(MAX_REQUEUE_INTERVAL))
}
