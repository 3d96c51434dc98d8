//! The tokens in published documents, and what the API server must accept them for.

use std::fmt;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;

/// A published token with the request that the API server must accept it for. `Debug` does not show the
/// token.
#[derive(Clone, PartialEq, Eq)]
pub struct CredentialProbe {
    /// The bootstrap Secret in which it was published.
    pub bootstrap: String,
    pub token: String,
    /// The request.
    pub purpose: Purpose,
    /// When the token expires.
    pub expires: Timestamp,
    /// Whether the bootstrap Secret holds it now. Otherwise a machine may have booted with it earlier.
    pub current: bool,
    pub(super) pool: String,
    /// The Secret that the token needs: the provisioning Secret that the same document names, or the
    /// kubeconfig Secret.
    pub(super) needs: String,
}

/// The request that a token is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To get this Secret of `cloud-init-settings`.
    Fetch(String),
    /// To create CertificateSigningRequests for a node.
    Join,
}

impl fmt::Debug for CredentialProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialProbe")
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
