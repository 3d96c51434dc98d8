//! With what the kubelets of a pool join: as the mode and the settings say, and what follows where they contradict each other.

use osm_api::settings::{Credentials, NodeBootstrapKind};
use osm_api::{Joining, names};

use crate::model::gathered::Gathered;
use crate::model::token_binding::KubeletToken;

/// The settings in force; the defaults while no valid ones are known.
pub fn in_force(gathered: &Gathered) -> Credentials {
    gathered.credentials.clone().unwrap_or_default()
}

/// While the settings are not known or contradict the mode, a bootstrap token is replaced by another one.
pub fn kubelet_token(gathered: &Gathered) -> KubeletToken {
    let known = gathered.credentials.as_ref();
    match known.filter(|credentials| !contradict(gathered.joining, credentials)) {
        Some(credentials) if credentials.node_bootstrap.kind == NodeBootstrapKind::BootstrapToken => {
            KubeletToken::Bootstrap {
                groups: credentials.node_bootstrap.groups.clone(),
            }
        }
        Some(_) => of_mode(gathered.joining),
        None => recorded(gathered).unwrap_or_else(|| of_mode(gathered.joining)),
    }
}

/// Nothing approves what is asked for with bootstrap tokens in this mode but bindings that the mode exists to replace.
pub fn contradict(joining: Joining, credentials: &Credentials) -> bool {
    joining == Joining::Approved && credentials.node_bootstrap.kind == NodeBootstrapKind::BootstrapToken
}

fn of_mode(joining: Joining) -> KubeletToken {
    match joining {
        Joining::Approved => KubeletToken::Pool,
        Joining::Static => KubeletToken::NodeAccount,
    }
}

fn recorded(gathered: &Gathered) -> Option<KubeletToken> {
    let bootstrap = gathered.existing.bootstrap.as_deref()?;
    KubeletToken::recorded_bootstrap(bootstrap.meta.annotation(names::BOUND_TO)?)
}
