//! The settings document.

use std::sync::Arc;

use osm_api::settings::SettingsError;
use osm_api::{Settings, digest};
use tokio::sync::watch;

/// A valid settings document.
#[derive(Clone, Debug, PartialEq)]
pub struct Current {
    pub settings: Settings,
    /// SHA-256 of them as JSON, 64 hex characters.
    pub digest: String,
    /// The place of a newer document that is refused, and every mistake in it. It has no timestamp, so that all replicas
    /// report the same.
    pub refused: Option<String>,
}

/// Sends what comes into force to a cluster's [`Receiver`].
pub type Sender = watch::Sender<Option<Arc<Current>>>;

/// The settings in force: `None` until a valid document has been seen.
pub type Receiver = watch::Receiver<Option<Arc<Current>>>;

/// Why there is no valid document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the ConfigMap is gone: create it again")]
    Gone,
    #[error(transparent)]
    Invalid(#[from] SettingsError),
}

impl Refusal {
    pub(crate) fn in_one_line(&self) -> String {
        match self {
            Self::Gone => self.to_string(),
            Self::Invalid(SettingsError(mistakes)) => mistakes.join("; "),
        }
    }
}

pub(crate) fn read(text: Option<String>) -> Result<Current, Refusal> {
    let settings = Settings::parse(&text.ok_or(Refusal::Gone)?)?;
    let digest = digest::of(&settings).map_err(|error| SettingsError(vec![error.to_string()]))?;
    Ok(Current {
        settings,
        digest,
        refused: None,
    })
}
