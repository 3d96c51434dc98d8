//! With which credentials the nodes of a pool get theirs: as the settings and the mode say.

use osm_api::Joining;
use osm_api::settings::Credentials;

use crate::model::gathered::Gathered;
use crate::model::token_binding::KubeletToken;

/// The settings in force; the defaults while no valid ones are known.
pub fn in_force(gathered: &Gathered) -> Credentials {
    gathered.credentials.clone().unwrap_or_default()
}

pub fn kubelet_token(joining: Joining) -> KubeletToken {
    match joining {
        Joining::Approved => KubeletToken::Pool,
        Joining::Static => KubeletToken::NodeAccount,
    }
}
