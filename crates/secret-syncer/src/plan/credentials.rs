//! Which credential settings are in force.

use osm_api::names;
use osm_api::settings::{Credentials, NodeBootstrap, NodeBootstrapKind};

use crate::model::gathered::Gathered;
use crate::model::token_binding::BOOTSTRAPPERS;
use crate::model::view::SecretView;

/// While no valid settings are known, a pool's tokens stay of the kind that they are.
pub fn in_force(gathered: &Gathered) -> Credentials {
    let known = gathered.credentials.clone();
    known.unwrap_or_else(|| without_settings(gathered.existing.bootstrap.as_deref()))
}

fn without_settings(bootstrap: Option<&SecretView>) -> Credentials {
    let bound = bootstrap.and_then(|secret| secret.meta.annotation(names::BOUND_TO));
    let joins_by = bound
        .and_then(|bound| bound.split('/').nth(1))
        .unwrap_or_default();
    let mut groups = joins_by.split(',').map(str::to_owned);
    let mut credentials = Credentials::default();
    if groups.next().as_deref() == Some(BOOTSTRAPPERS) {
        let kind = NodeBootstrapKind::BootstrapToken;
        credentials.node_bootstrap = NodeBootstrap {
            kind,
            groups: groups.collect(),
        };
    }
    credentials
}
