//! osc-controller: one OperatingSystemConfig per MachineDeployment, rendered.
//!
//! It owns `spec`, `status.rendered`, `status.retired` and the condition `Rendered` of OperatingSystemConfigs. It
//! has no right on any Secret, and writes a MachineDeployment only to take a [`finalizer`] of another program
//! off, where that is wanted.
//!
//! A reconcile is `gather → plan → apply → report`; all decisions are in [`plan`].

pub mod apply;
pub mod endpoint;
pub mod finalizer;
pub mod gather;
pub mod metrics;
pub mod plan;
pub mod pool_settings;
pub mod report;
pub mod state;
pub mod view;

use std::time::Duration;

use osm_runtime::runner;
use osm_runtime::{Context, RequestError, settings};

use crate::state::State;

/// Name of the field manager of this controller.
pub const FIELD_MANAGER: &str = "osc-controller";

/// Runs the controller until shutdown.
///
/// # Errors
/// Metrics that can't be registered.
pub async fn run(context: Context, settings: settings::Receiver) -> anyhow::Result<()> {
    let state = State::start(&context, settings)?;
    let (queue, shared) = (state.queue.clone(), state.clone());
    let work = move |name| reconcile(state.clone(), name);
    runner::work(&context, &context.args.namespace, queue, shared, work).await;
    Ok(())
}

/// Brings the OperatingSystemConfig of this name to what it should be; returns when to look again.
async fn reconcile(state: State, name: String) -> Result<Option<Duration>, RequestError> {
    let gathered = gather::gather(&state, &name).await?;
    let plan = plan::plan(&gathered);
    let applied = apply::apply(&state, &gathered, plan).await?;
    Ok(report::report(&state, &gathered, applied).await)
}
