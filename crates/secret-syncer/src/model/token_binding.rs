//! What a pool's tokens are bound to. When one of these changes, the tokens are dead.

use osm_api::settings::{NodeBootstrap, NodeBootstrapKind};

/// Group of every bootstrap token.
pub const BOOTSTRAPPERS: &str = "system:bootstrappers";

/// Value of the annotation `bound-to`; `None` where one of the three is missing.
pub fn bound_to(account: Option<&str>, joins_by: Option<&str>, secret: Option<&str>) -> Option<String> {
    Some(format!("{}/{}/{}", account?, joins_by?, secret?))
}

/// What the token of a pool's kubelets rests on: the uid of `osm-node-bootstrap`, or the groups of a bootstrap token.
pub fn joins_by(with: &NodeBootstrap, node_account: Option<&str>) -> Option<String> {
    match with.kind {
        NodeBootstrapKind::ServiceAccountToken => node_account.map(str::to_owned),
        NodeBootstrapKind::BootstrapToken => Some(groups(with)),
    }
}

/// Groups of a bootstrap token, joined by commas.
pub fn groups(of: &NodeBootstrap) -> String {
    std::iter::once(BOOTSTRAPPERS)
        .chain(of.groups.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join(",")
}
