//! secret-syncer: publishes OperatingSystemConfigs as the Secrets that machine-controller and booting nodes read.
//!
//! It owns `status.published` and the condition `Published` of OperatingSystemConfigs, and every Secret,
//! ServiceAccount, Role and RoleBinding that it makes in `cloud-init-settings`. It runs no template.
//!
//! A reconcile is `gather → plan → apply → report`; all decisions are in [`plan`].

pub mod apply;
pub mod bootstrap_token;
pub mod collected;
pub mod document;
pub mod eternal_tokens;
pub mod gather;
pub mod key;
pub mod plan;
pub mod report;
pub mod sources;
pub mod state;
pub mod tokens;
pub mod undo;
pub mod view;

use std::time::Duration;

use osm_runtime::runner;
use osm_runtime::{Context, RequestError, settings};

use crate::state::{Key, State};

/// Name of the field manager of this controller.
pub const FIELD_MANAGER: &str = "secret-syncer";

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A token that was just issued may not do what a node must.
    #[error("a node's token may not {right}: apply the roles and bindings of this version")]
    RightMissing {
        /// The right, such as `create certificatesigningrequests`.
        right: String,
    },
    /// The cluster is not the one that it was.
    #[error("{0}")]
    ClusterChanged(String),
    /// The settings want bootstrap tokens, and the right to create them is missing.
    #[error(
        "secret-syncer may not create Secrets in kube-system, as the settings' credentials.nodeBootstrap.kind wants: apply this version's roles with bootstrap tokens, or set it to serviceAccountToken"
    )]
    BootstrapTokenForbidden,
    /// A Secret with the name of ours belongs to somebody else.
    #[error("Secret cloud-init-settings/{name} is not ours and stays untouched: delete or rename it")]
    ForeignSecret {
        /// Name of the Secret.
        name: String,
    },
    /// What was written does not stay as it was written.
    #[error(
        "what was published is altered again and again ({cause:?}): look for whatever changes Secrets, Roles or ServiceAccounts in cloud-init-settings, such as a mutating webhook"
    )]
    AlteredAgain {
        /// What does not stand.
        cause: plan::Cause,
    },
    /// A value that belongs into the document can't be had.
    #[error("{0}")]
    Source(#[from] sources::SourceError),
    /// The document can't be made from what was rendered.
    #[error("{0}")]
    Document(#[from] document::DocumentError),
}

impl runner::Failure for Error {
    fn reason(&self) -> &'static str {
        match self {
            Self::Request(error) => error.reason(),
            Self::RightMissing { .. } => "NodeRightMissing",
            Self::ClusterChanged(_) => osm_runtime::strangers::CLUSTER_CHANGED,
            Self::BootstrapTokenForbidden => "BootstrapTokenForbidden",
            Self::ForeignSecret { .. } => "ForeignSecret",
            Self::AlteredAgain { .. } => "AlteredAgain",
            Self::Source(error) => error.reason(),
            Self::Document(error) => error.reason(),
        }
    }

    fn is_conflict(&self) -> bool {
        matches!(self, Self::Request(error) if error.is_conflict())
    }
}

/// Runs the controller until shutdown.
///
/// # Errors
/// Metrics or clients that can't be set up.
pub async fn run(context: Context, settings: settings::Receiver, installation: String) -> anyhow::Result<()> {
    let state = State::start(&context, settings, installation)?;
    let (queue, shared, installation) = (state.queue.clone(), state.clone(), state.installation.clone());
    let work = move |key| reconcile(state.clone(), key);
    runner::work(&context, &installation, queue, shared, work).await;
    Ok(())
}

async fn reconcile(state: State, key: Key) -> Result<Option<Duration>, Error> {
    match key {
        Key::DigestKey => key::ensure(&state).await.map(|_| None),
        Key::EternalTokens => {
            eternal_tokens::tell(&state).await;
            Ok(None)
        }
        Key::Config(name) => {
            let outcome = sync(&state, &name).await;
            report::report(&state, &name, outcome).await
        }
    }
}

async fn sync(state: &State, name: &str) -> Result<apply::Applied, Error> {
    let gathered = gather::gather(state, name).await?;
    let plan = plan::plan(&gathered);
    apply::apply(state, &gathered, plan).await
}
