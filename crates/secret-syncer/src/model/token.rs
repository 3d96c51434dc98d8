//! Tokens of nodes, and which account they are of.

use jiff::Timestamp;

/// The token of a pool. With it, a machine reads the pool's Secrets and requests its client certificate.
/// There is no `Debug`, so that no log shows it.
#[derive(Clone)]
pub struct Token {
    pub text: String,
    /// uid of its ServiceAccount, as the annotation [`osm_api::names::BOUND_TO`]. The token itself says so:
    /// another client may have recreated the account since a watch showed it.
    pub account: String,
    /// When it expires, as the API server granted it. This and the next are by the API server's clock alone.
    pub expires: Timestamp,
    /// When it is renewed.
    pub renew_at: Timestamp,
}

/// The uid of the ServiceAccount in an annotation [`osm_api::names::BOUND_TO`]; empty where there is none.
/// Before 0.1.0, other uids could follow after a slash.
pub fn account_of(bound_to: &str) -> &str {
    bound_to.split('/').next().unwrap_or_default()
}
