//! osc-controller: one OperatingSystemConfig per MachineDeployment, rendered.
//!
//! It owns `spec`, `status.rendered`, `status.retired` and the condition `Rendered` of OperatingSystemConfigs. It has no
//! right on any Secret. It writes a MachineDeployment only to remove a [`finalizer`] of the Go implementation, where the
//! installation asks for that.
//!
//! A reconcile is `gather → plan → apply → report`. [`plan`] makes all decisions, `apply` writes objects, and `report`
//! alone writes status, Events and metrics. Finalizers are removed after that.

#![deny(clippy::disallowed_types)]

pub mod admission;
pub mod apply;
pub mod caches;
pub mod compiled;
pub mod context;
pub mod finalizer;
pub mod gather;
pub mod hold;
pub mod memory;
pub mod metrics;
pub mod plan;
pub mod planning;
pub mod pool_settings;
pub mod publishing;
pub mod report;
pub mod view;
pub mod watches;

use std::sync::Arc;
use std::time::{Duration, Instant};

use osm_runtime::runner;
use osm_runtime::{AdmissionArgs, Cluster, Process, RequestError, go_implementation};

use crate::admission::PoolJudge;
use crate::context::Context;
use crate::gather::ProfileLookup;
use crate::planning::Busy;

/// Name of the field manager of this controller.
pub const FIELD_MANAGER: &str = "osc-controller";

/// Runs the controller, and the webhook if the flags ask for it, until shutdown.
///
/// # Errors
/// Metrics that can't be registered; the address of the webhook is not available.
pub async fn run(process: Arc<Process>, cluster: Cluster, admission: AdmissionArgs) -> anyhow::Result<()> {
    let context = Context::new(&process, &cluster)?;
    watches::start(&context);
    let judge = || PoolJudge::new(&context);
    let webhook = osm_runtime::admission::spawn(&admission, judge, "the MachineDeployment", &process)?;
    let (queue, shared) = (context.queue.clone(), context.clone());
    let configs = context.clone();
    let is_published = move || configs.has_published();
    go_implementation::watch(&cluster, &queue, shared.clone(), is_published).await;
    let work = move |name| reconcile(context.clone(), name);
    runner::work(&cluster, cluster.namespace(), queue, shared, work).await;
    if let Some(webhook) = webhook {
        webhook.ended().await;
    }
    Ok(())
}

/// Reconciles the OperatingSystemConfig of this name; returns when to reconcile it again.
async fn reconcile(context: Context, name: String) -> Result<Option<Duration>, RequestError> {
    let mut gathered = gather::gather(&context, &name).await?;
    let abandoned = gathered.abandoned.clone();
    let render_seconds = context.metrics.render_seconds.clone();
    let slot = match gathered.profile {
        ProfileLookup::Busy => Err(Busy),
        _ => context.planning.slot(&name).await,
    };
    if slot.is_err() {
        if !context.planning.waits_long(&name) {
            return Ok(Some(plan::BUSY_REQUEUE));
        }
        gathered.profile = ProfileLookup::Busy;
    }
    let make = move || {
        let began = Instant::now();
        let plan = plan::plan(&gathered);
        if plan.rendered().is_some() {
            render_seconds.observe(began.elapsed().as_secs_f64());
        }
        (gathered, plan)
    };
    let what = format!("rendering of {name}");
    let (gathered, plan) = match slot {
        Ok(slot) => context.planning.run(slot, &what, &abandoned, make).await,
        // Nothing is rendered.
        Err(Busy) => make(),
    };
    if let Some(problem) = context.cluster.go_implementation.problem()
        && plan.starts_something(gathered.config.as_deref())
    {
        return Err(RequestError::GoImplementationRunning { problem });
    }
    if let Some(problem) = context.cluster.outdated_definitions.problem() {
        // The API server would drop fields, and what is left would be confirmed and published.
        return Err(RequestError::DefinitionsOutdated { problem });
    }
    let applied = apply::apply(&context, &gathered, plan).await?;
    report::report(&context, &gathered, &applied).await?;
    apply::release_finalizers(&context, &applied.remove_finalizers).await?;
    Ok(applied.requeue_after)
}
