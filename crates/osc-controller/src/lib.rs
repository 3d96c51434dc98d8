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
use osm_runtime::{Context, settings, watch};

use crate::state::State;

/// Name of the field manager of this controller.
pub const FIELD_MANAGER: &str = "osc-controller";

/// Why a reconcile failed without a verdict about the pool: talking to the API server went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error("{what}: {}", osm_runtime::status::brief(source))]
    Request {
        /// What was being done.
        what: &'static str,
        /// The failure.
        source: kube::Error,
    },
    /// Somebody else wrote in between.
    #[error("{what} was changed by somebody else")]
    Conflict {
        /// The object.
        what: &'static str,
    },
    /// The namespace of the installation is going away; nothing can be created in it.
    #[error("namespace {0} is being deleted: nothing can be created until it is back")]
    NamespaceTerminating(String),
}

impl Error {
    pub(crate) fn request(what: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| {
            if osm_runtime::status::conflict(&source) {
                Self::Conflict { what }
            } else {
                Self::Request { what, source }
            }
        }
    }
}

impl runner::Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Request { .. } => "RequestFailed",
            Self::Conflict { .. } => "Conflict",
            Self::NamespaceTerminating(_) => "NamespaceTerminating",
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

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
async fn reconcile(state: State, name: String) -> Result<Option<Duration>, Error> {
    let gathered = gather::gather(&state, &name).await?;
    let plan = plan::plan(&gathered);
    let applied = apply::apply(&state, &gathered, plan).await?;
    Ok(report::report(&state, &gathered, applied).await)
}
