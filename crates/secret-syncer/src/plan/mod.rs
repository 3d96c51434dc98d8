//! All decisions of secret-syncer, from what was gathered alone: no client, no clock.
//!
//! [`mod@causes`] says why a pool is published. Each other question has a file of its name. What only the API server's answer can show
//! ([`adoption`], [`hmac_key`]) is decided here as well, from that answer.

pub mod adoption;
pub mod announcement;
pub mod cause;
pub mod causes;
pub mod credentials;
pub mod error;
pub mod hmac_key;
pub mod inputs;
pub mod join_right;
pub mod kubeconfig_secret;
pub mod legacy_tokens;
pub mod messages;
pub mod orphan_budget;
pub mod orphans;
pub mod publish;
pub mod renewal;
pub mod repair_limit;
pub mod retention;
pub mod steps;
pub mod timing;
pub mod waiting;
pub mod worker_identity;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use osm_api::names;
use osm_runtime::foreign_cluster::CLUSTER_CHANGED;

use crate::model::gathered::{Clusters, Gathered};
use crate::model::memory::PoolMemory;
use crate::model::ownership::OwnershipLabels;
use crate::model::token_binding::joins_by;
use crate::model::view::ConfigView;
use crate::plan::causes::{Input, causes};
use crate::plan::error::PlanError;
use crate::plan::inputs::Inputs;
use crate::plan::publish::Subject;
use crate::plan::steps::{Plan, Step};
use crate::plan::timing::{MAX_REQUEUE_INTERVAL, until};
use crate::plan::waiting::{REPORT_AFTER, REPORT_UNCONFIRMED_AFTER, wait};

/// Decides what is to be done for one OperatingSystemConfig, and for what was made for its predecessors; and what to remember from now
/// on, which holds without a plan as well.
pub fn plan(gathered: &Gathered) -> (PoolMemory, Result<Plan, PlanError>) {
    let mut memory = remember(gathered);
    let plan = plan_with(gathered, &mut memory);
    (memory, plan)
}

/// # Errors
/// Values that are not available, and repairs that don't last.
fn plan_with(gathered: &Gathered, memory: &mut PoolMemory) -> Result<Plan, PlanError> {
    let inputs = inputs::choose(gathered)?;
    let (step, again) = match &gathered.config {
        Some(config) => for_config(gathered, config, &inputs, memory)?,
        // Without a config its pool is not known either: everything of that name is among the orphans.
        None => (Step::None, None),
    };
    let (mut orphans, orphans_again) = orphans::orphans(gathered);
    // Without a confirmed generation it is not known what belongs to whom; a teardown deletes the orphans as well.
    let is_unsure = gathered
        .config
        .as_ref()
        .is_some_and(|config| config.confirmed().is_none());
    if is_unsure || matches!(step, Step::Teardown(_)) {
        orphans.clear();
    }
    let foreign_cluster = match &step {
        Step::SetStatus(verdict) if verdict.reason == CLUSTER_CHANGED => Some(verdict.message.clone()),
        _ => orphans::of_another_cluster(gathered)
            .map(|pool| messages::published_through_another_cluster(gathered, pool)),
    };
    let degraded = inputs.problem.as_ref().map(messages::values_of_last_time);
    let again = [orphans_again, again].into_iter().flatten().min();
    Ok(Plan {
        step,
        orphans,
        foreign_cluster,
        degraded,
        again,
    })
}

/// What follows from what was gathered, whatever is decided.
fn remember(gathered: &Gathered) -> PoolMemory {
    let rendered = gathered.config.as_ref().and_then(|config| config.to_publish());
    let is_ready = rendered.is_some_and(|rendered| rendered.revision.is_some());
    let holder = gathered.name_holder.as_ref();
    let foreign = holder.filter(|holder| adoption::is_still_foreign(holder, &gathered.installation));
    let mut memory = gathered.memory.clone();
    memory.waiting_since = waiting::since(memory.waiting_since, is_ready, gathered.now);
    memory.foreign_secret = foreign.map(|holder| holder.name.clone());
    if !gathered.needs_kubeconfig_secret() {
        memory.tokens = None;
    }
    if let Ok(values) = &gathered.values
        && !values.is_empty()
    {
        memory.last_values = Some(values.clone());
    }
    memory
}

fn for_config(
    gathered: &Gathered,
    config: &Arc<ConfigView>,
    inputs: &Inputs,
    memory: &mut PoolMemory,
) -> Result<(Step, Option<Duration>), PlanError> {
    let Some(md) = &config.machine_deployment else {
        return Ok(not_taken_over(gathered, config));
    };
    let Clusters { management, worker } = &gathered.clusters;
    if let Some(was) = config.made_in.as_ref().filter(|made_in| *made_in != worker) {
        let verdict = messages::not_published(CLUSTER_CHANGED, messages::cluster_changed(was, worker));
        return Ok((Step::SetStatus(verdict), Some(MAX_REQUEUE_INTERVAL)));
    }
    if config.is_retired() {
        (memory.verified, memory.tokens) = (None, None);
        return Ok((teardown(gathered, config), None));
    }
    let Some(rendered) = config.confirmed() else {
        let (after, verdict) = match &config.status.rendered {
            None => (REPORT_AFTER, messages::awaiting_rendering()),
            // It is osc-controller's turn: it corrects what others wrote.
            Some(_) => (REPORT_UNCONFIRMED_AFTER, messages::unconfirmed_generation(config)),
        };
        return Ok(wait(gathered.now, memory.waiting_since, after, verdict));
    };
    // Machines of an edge pool are not created by machine-controller, so nothing sets a revision for them.
    let without = config.is_edge.then_some("");
    let Some(revision) = rendered.revision.as_deref().or(without) else {
        return Ok(wait(
            gathered.now,
            memory.waiting_since,
            REPORT_AFTER,
            messages::awaiting_revision(),
        ));
    };
    if let Some(name) = &memory.foreign_secret {
        return Ok((
            Step::SetStatus(messages::foreign_secret(name)),
            Some(FOREIGN_SECRET_INTERVAL),
        ));
    }
    let credentials = credentials::in_force(gathered);
    let ownership = OwnershipLabels::new(&gathered.name, &gathered.pool, management, md);
    let joins_by = joins_by(&credentials.node_bootstrap, gathered.node_account.as_deref());
    let (ownership_ref, joins_by_ref) = (&ownership, joins_by.as_deref());
    let causes = causes(&Input {
        gathered,
        config,
        revision,
        inputs,
        ownership: ownership_ref,
        joins_by: joins_by_ref,
    });
    if causes.is_empty() {
        let (mut keep, next) = retention::tidy(gathered, &ownership, config.is_edge);
        keep.published = publish::published(gathered, rendered);
        let bootstrap = gathered.existing.bootstrap.as_ref();
        let renewal = bootstrap.and_then(|secret| secret.meta.time(names::RENEW_AT));
        let next = [next, renewal].into_iter().flatten().min();
        let again = next.map_or(MAX_REQUEUE_INTERVAL, |at| {
            until(gathered.now, at).min(MAX_REQUEUE_INTERVAL)
        });
        return Ok((Step::Keep(keep), Some(again)));
    }
    let repairs = repair_limit::count(&causes, memory.repairs, gathered.now)
        .map_err(|cause| PlanError::AlteredAgain { cause })?;
    memory.repairs = repairs.or(memory.repairs);
    let subject = Subject {
        gathered,
        config,
        md,
        rendered,
        revision,
        inputs,
        credentials: &credentials,
        ownership,
        joins_by,
    };
    Ok((Step::Publish(Box::new(publish::publish(subject, causes))), None))
}

/// A name that another owner holds is looked at again this often: nothing is watched that would show its release.
const FOREIGN_SECRET_INTERVAL: Duration = Duration::from_secs(60);

/// What the Go implementation made is left unchanged until osc-controller can render it.
fn not_taken_over(gathered: &Gathered, config: &ConfigView) -> (Step, Option<Duration>) {
    if !config.is_claimed() {
        return (Step::None, None);
    }
    let verdict = messages::not_taken_over(gathered.inherited.as_ref());
    (Step::SetStatus(verdict), Some(MAX_REQUEUE_INTERVAL))
}

/// Everything of the config's name, but for what another management cluster published.
fn teardown(gathered: &Gathered, config: &ConfigView) -> Step {
    let orphans = gathered.orphans.iter().map(|(_, objects)| objects);
    let ours = orphans.filter(|objects| !objects.is_of_another(&gathered.clusters.management));
    let left: Vec<_> = [&gathered.existing]
        .into_iter()
        .chain(ours)
        .filter(|objects| !objects.is_nothing())
        .cloned()
        .collect();
    if config.is_undone() && left.is_empty() {
        Step::None
    } else {
        Step::Teardown(left)
    }
}
