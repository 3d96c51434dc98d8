//! osp-controller: installs the default OperatingSystemProfiles, and judges every profile before a pool uses it.
//!
//! It owns the whole status of OperatingSystemProfiles, and the spec of those that are named as a default. It has no
//! right on any Secret.
//!
//! A reconcile is `gather → plan → apply → report`; all decisions are in [`plan`]. What a profile is worth is found out
//! by [`judge`], before the plan.

pub mod apply;
pub mod crds;
pub mod gather;
pub mod judge;
mod modules;
pub mod plan;
pub mod report;
pub mod state;

use std::time::Duration;

use osm_runtime::runner;
use osm_runtime::{Context, RequestError, settings};

use crate::state::State;

/// Name of the field manager of this controller.
pub const FIELD_MANAGER: &str = "osp-controller";

/// Why a reconcile failed. A profile that is refused is no failure: that is a verdict, and stands in its status.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The API server has dropped fields of what we wrote.
    #[error(
        "the API server has not kept every field of the default profile: apply the CustomResourceDefinitions of this version"
    )]
    FieldsDropped,
}

impl runner::Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Request(error) => error.reason(),
            Self::FieldsDropped => "FieldsDropped",
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_conflict())
    }
}

/// Runs the controller until shutdown.
///
/// # Errors
/// None today; the signature is that of every service.
pub async fn run(context: Context, settings: settings::Receiver) -> anyhow::Result<()> {
    let state = State::start(&context, settings);
    let (queue, shared) = (state.queue.clone(), state.clone());
    let work = move |key| reconcile(state.clone(), key);
    runner::work(&context, &context.args.namespace, queue, shared, work).await;
    Ok(())
}

/// Brings the profile with this key, `namespace/name`, to what it should be, and its status to what it is worth.
async fn reconcile(state: State, key: String) -> Result<Option<Duration>, Error> {
    let gathered = gather::gather(&state, &key).await;
    let plan = plan::plan(&gathered);
    apply::apply(&state, &gathered, &plan).await?;
    report::report(&state, &gathered, &plan).await;
    Ok(None)
}
