//! What the tokens in published documents must open.

use std::fmt;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;

/// What a token that was published must be good for. `Debug` does not show the token.
#[derive(Clone, PartialEq, Eq)]
pub struct Door {
    /// The bootstrap Secret in which it was published.
    pub bootstrap: String,
    /// The token.
    pub token: String,
    /// What it must be good for.
    pub purpose: Purpose,
    /// When the token expires.
    pub expires: Timestamp,
    /// Whether it stands in the bootstrap Secret now; otherwise a machine may have booted with it earlier.
    pub current: bool,
    pub(super) pool: String,
    /// The provisioning Secret that stands in the same document; both of its tokens are bound to it.
    pub(super) provisioning: String,
}

/// What a token must be good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To get this Secret of `cloud-init-settings`.
    Fetch(String),
    /// To create CertificateSigningRequests for a node.
    Join,
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door")
            .field("bootstrap", &self.bootstrap)
            .field("purpose", &self.purpose)
            .field("expires", &self.expires)
            .field("current", &self.current)
            .finish_non_exhaustive()
    }
}

/// The part of a ServiceAccount token that the holder can read.
#[derive(Deserialize)]
struct Claims {
    exp: i64,
}

/// When a token expires, from the token itself.
pub(super) fn expiry(token: &str) -> Result<Timestamp> {
    let payload = token.split('.').nth(1).context("not a JWT")?;
    let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload)?)?;
    Ok(Timestamp::from_second(claims.exp)?)
}
