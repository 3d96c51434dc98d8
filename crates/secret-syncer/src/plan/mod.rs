//! All decisions of secret-syncer, from what was gathered alone: no client, no clock.
//!
//! [`mod@findings`] says why a pool is published. Each other question has a file of its name. What only the
//! API server's answer can show ([`adoption`]) is decided here as well, from that answer.

pub mod adoption;
pub mod conditions;
pub mod content;
pub mod findings;
pub mod hold;
pub mod messages;
pub mod orphans;
pub mod provisioning_secret;
pub mod publish;
pub mod repair_limit;
pub mod requeue;
pub mod steps;
pub mod teardown;
pub mod token;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod hold_tests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use osm_api::{PoolRef, Reason, names};
use osm_runtime::error::LONGEST_DELAY;

use crate::model::existing::Ownership;
use crate::model::gathered::Gathered;
use crate::model::memory::PoolMemory;
use crate::model::view::ConfigView;
use crate::plan::content::{Comparison, Wanted};
use crate::plan::findings::findings;
use crate::plan::hold::Hold;
use crate::plan::requeue::{MAX_REQUEUE_INTERVAL, until};
use crate::plan::steps::{Plan, PlanError, Step};

/// Decides what is to be done for one OperatingSystemConfig, and for what was made for its predecessors; and
/// what to remember from now on, which holds without a plan as well.
pub fn plan(gathered: &Gathered) -> (PoolMemory, Result<Plan, PlanError>) {
    let mut memory = gathered.memory.clone();
    memory.waiting_since = hold::waiting_since(gathered);
    let plan = plan_with(gathered, &mut memory);
    (memory, plan)
}

/// # Errors
/// Content that is held back, where nothing is published; repairs that don't last.
fn plan_with(gathered: &Gathered, memory: &mut PoolMemory) -> Result<Plan, PlanError> {
    let mut plan = match &gathered.config {
        Some(config) => for_config(gathered, config, memory)?,
        // Without a config its pool is not known either: everything of that name is among the orphans.
        None => Plan::of(Step::None, None),
    };
    let changed = match &plan.step {
        Step::SetStatus(verdict) if verdict.reason == Reason::ClusterChanged => Some(verdict.message.clone()),
        _ => None,
    };
    // Until everything exists for the pool, its bootstrap Secret may still refer to what was made for a
    // predecessor of the same name.
    if gathered.config.is_none() || matches!(plan.step, Step::Keep(_)) {
        plan.orphans = orphans::orphans(gathered);
    }
    plan.foreign_cluster = changed.or_else(|| {
        let pool = orphans::of_another_cluster(gathered)?;
        Some(messages::published_through_another_cluster(gathered, pool))
    });
    if !plan.orphans.is_empty() {
        // The MachineDeployment of an orphan may be deleted later, and a read may fail: look again.
        let after = plan.requeue_after.unwrap_or(MAX_REQUEUE_INTERVAL);
        plan.requeue_after = Some(after.min(MAX_REQUEUE_INTERVAL));
    }
    Ok(plan)
}

fn for_config(
    gathered: &Gathered,
    config: &Arc<ConfigView>,
    memory: &mut PoolMemory,
) -> Result<Plan, PlanError> {
    let Some(md) = &config.machine_deployment else {
        return match hold::unreadable(config) {
            Some(hold) => Err(PlanError::Held(hold.verdict)),
            None => Ok(not_adopted(gathered, config)),
        };
    };
    if let Some(was) = gathered.clusters.other_worker(config) {
        let message = messages::cluster_changed(was, &gathered.clusters.worker);
        let verdict = messages::not_published(Reason::ClusterChanged, message);
        // Retry soon: a single wrong answer may come from a misrouted connection.
        return Ok(Plan::of(Step::SetStatus(verdict), Some(LONGEST_DELAY)));
    }
    if config.is_retired() {
        (memory.made_from, memory.token) = (None, None);
        return Ok(Plan::of(teardown::of(gathered, config), None));
    }
    // If nothing else can be published, this is retried with the usual delays.
    let hold = hold::of(gathered, config).filter(|hold| !hold.is_unfit || gathered.published.is_some());
    if let Some(hold) = hold {
        return while_held(gathered, config, md, &hold, memory);
    }
    let (Some(rendered), Ok(inputs)) = (&config.status.rendered, &gathered.inputs) else {
        return Ok(Plan::of(Step::None, None));
    };
    let wanted = Wanted::new(gathered, config, rendered, inputs);
    if wanted.comparison == Comparison::Same {
        memory.made_from = content::recorded(gathered).and_then(|recorded| wanted.made_from(recorded));
    }
    let mut plan = keep_or_publish(gathered, config, md, wanted, memory)?;
    plan.degraded =
        hold::beside_the_upstream_osm(gathered).map(|verdict| messages::kept_and_renewed(&verdict));
    Ok(plan)
}

/// What is published is kept, renewed and restored while new content is held back.
fn while_held(
    gathered: &Gathered,
    config: &ConfigView,
    md: &PoolRef,
    hold: &Hold,
    memory: &mut PoolMemory,
) -> Result<Plan, PlanError> {
    if let Some(left) = hold.is_early(gathered) {
        return Ok(Plan::of(Step::None, Some(left)));
    }
    let Some(published) = &gathered.published else {
        return match &config.status.published {
            Some(published) => {
                let verdict = messages::kept_until(&hold.verdict, &published.credential_expiration_time);
                Ok(Plan::of(Step::SetStatus(verdict), Some(MAX_REQUEUE_INTERVAL)))
            }
            None if hold.is_wait => Ok(Plan::of(Step::SetStatus(hold.verdict.clone()), None)),
            None => Err(PlanError::Held(hold.verdict.clone())),
        };
    };
    let mut plan = keep_or_publish(gathered, config, md, Wanted::published(published), memory)?;
    plan.degraded = Some(messages::kept_and_renewed(&hold.verdict));
    Ok(plan)
}

fn keep_or_publish(
    gathered: &Gathered,
    config: &ConfigView,
    md: &PoolRef,
    wanted: Wanted,
    memory: &mut PoolMemory,
) -> Result<Plan, PlanError> {
    let ownership = Ownership::new(&gathered.name, &gathered.clusters.management, md);
    let findings = findings(gathered, &wanted, &ownership);
    if findings.is_empty() {
        let keep = provisioning_secret::keep(gathered, ownership, &wanted);
        let bootstrap = gathered.existing.bootstrap.as_ref();
        let renewal = bootstrap.and_then(|secret| secret.meta.time(names::RENEW_AT));
        let next = [provisioning_secret::next_expiry(gathered), renewal];
        let next = next.into_iter().flatten().min();
        let requeue_after = next.map_or(MAX_REQUEUE_INTERVAL, |at| {
            until(gathered.now, at).min(MAX_REQUEUE_INTERVAL)
        });
        return Ok(Plan::of(Step::Keep(keep), Some(requeue_after)));
    }
    if wanted.published_from.is_empty() {
        // An empty reference says nothing about the content, so don't treat it as unchanged.
        memory.made_from = None;
    }
    memory.repairs = repair_limit::count(&findings, memory.repairs, gathered.now)?.or(memory.repairs);
    let publish = publish::publish(gathered, config, wanted, ownership, findings);
    Ok(Plan::of(Step::Publish(Box::new(publish)), None))
}

/// What the upstream OSM made is left unchanged until osc-controller can render it.
fn not_adopted(gathered: &Gathered, config: &ConfigView) -> Plan {
    if !config.is_claimed {
        return Plan::of(Step::None, None);
    }
    let verdict = messages::not_adopted(&gathered.name);
    Plan::of(Step::SetStatus(verdict), Some(MAX_REQUEUE_INTERVAL))
}
