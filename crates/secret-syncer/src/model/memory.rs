//! What a process remembers of one OperatingSystemConfig between two reconciles. Decisions take it as input.
//!
//! Losing it is harmless: after a restart the documents of other builds are compared once more, and waiting and failing start to count
//! anew.

use jiff::Timestamp;
use osm_render::LateValues;

use crate::model::tokens::Tokens;

#[derive(Clone, Default)]
pub struct PoolMemory {
    /// The documents that this process has compared with what it would publish, or has published.
    pub verified: Option<Verified>,
    /// The values that were last available, so that credentials are renewed while a source is missing.
    pub last_values: Option<LateValues>,
    /// Since when there has been nothing to publish.
    pub waiting_since: Option<Timestamp>,
    pub repairs: Option<Repairs>,
    /// resourceVersion of the config that was found to hold a content which another client has altered.
    pub altered: Option<String>,
    /// Of a pool with a kubeconfig Secret.
    pub tokens: Option<KeptTokens>,
    /// Name of a Secret of ours that an object of another owner holds.
    pub foreign_secret: Option<String>,
}

/// Documents, and what they are made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// As the annotation [`osm_api::names::INPUTS_MAC`].
    pub inputs_mac: String,
    /// As the annotation [`osm_api::names::DOCUMENT_MAC`].
    pub document_mac: String,
}

/// Publishes in quick succession because something was altered, missing or due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repairs {
    pub last: Timestamp,
    pub count: u32,
}

/// The last tokens of a pool. Its provisioning document depends on them, so each publish with other tokens leaves one more Secret. With
/// the same tokens, repairs and lasting failures leave none. There is no `Debug`, so that no log shows them.
#[derive(Clone)]
pub struct KeptTokens {
    /// As the annotation [`osm_api::names::BOUND_TO`] of the kubeconfig Secret.
    pub bound_to: String,
    pub tokens: Tokens,
}
