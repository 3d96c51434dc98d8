//! osc-controller: one OperatingSystemConfig per MachineDeployment, rendered.
//!
//! It owns `spec`, `status.rendered`, `status.retired` and the condition `Rendered` of OperatingSystemConfigs. It
//! never writes a MachineDeployment and has no right on any Secret.
//!
//! A reconcile is `gather → plan → apply → report`; all decisions are in [`plan`].

pub mod apply;
pub mod endpoint;
pub mod gather;
pub mod plan;
pub mod report;
pub mod state;
pub mod view;

use std::time::Duration;

use osm_runtime::runner::{self, Limits};
use osm_runtime::{Context, RequestError, settings, watch};

use crate::state::State;

/// Name of the field manager of this controller.
pub const FIELD_MANAGER: &str = "osc-controller";

/// Runs the controller until shutdown.
///
/// # Errors
/// Metrics that can't be registered.
pub async fn run(context: Context, settings: settings::Receiver) -> anyhow::Result<()> {
    let state = State::start(&context, settings)?;
    let shutdown = context.shutdown.clone();
    // Before every watch is in step, an object that is not there yet would look like one that is gone.
    if shutdown.run_until_cancelled(context.readiness.opened(watch::GATE)).await.is_none() {
        return Ok(());
    }
    let limits =
        Limits { concurrency: context.args.concurrency.into(), timeout: context.args.reconcile_timeout() };
    let queue = state.queue.clone();
    runner::run(queue, limits, context.metrics.clone(), shutdown, move |name| reconcile(state.clone(), name))
        .await;
    Ok(())
}

/// Brings the OperatingSystemConfig of this name to what it should be; returns when to look again.
async fn reconcile(state: State, name: String) -> Result<Option<Duration>, RequestError> {
    let gathered = gather::gather(&state, &name).await?;
    let plan = plan::plan(&gathered);
    let applied = apply::apply(&state, &gathered, plan).await?;
    Ok(report::report(&state, &gathered, applied).await)
}
