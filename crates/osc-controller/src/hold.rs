//! The reasons why a pool is not rendered, as its condition `Rendered` reports it.

use std::time::Duration;

use osm_api::config::RequestedProfile;
use osm_api::pool::PoolError;
use osm_api::{Reason, names};
use osm_render::{ProfileError, RenderError};

use crate::pool_settings::SettingsProblem;

/// Why a pool is not rendered now. The last good content stays.
#[derive(Debug, thiserror::Error)]
pub enum Hold {
    #[error(transparent)]
    Pool(#[from] PoolError),
    #[error(transparent)]
    PoolSettings(#[from] SettingsProblem),
    #[error(
        "namespace {0} is not in --machine-deployment-namespaces of osc-controller; updates are paused, and the published user data stays \
         valid; add the namespace to the list, or recreate the MachineDeployment in a listed namespace"
    )]
    NamespaceNotServed(String),
    #[error("the settings document is missing or invalid; see the log of osc-controller and its /readyz")]
    SettingsInvalid,
    #[error(
        "the API server's address and CA are unknown, because kube-public/cluster-info and the EndpointSlice of default/kubernetes \
         lack them; set cluster.apiServer and cluster.caBundle in the settings"
    )]
    EndpointUnknown,
    #[error("the MachineDeployment names no profile; set its annotation {annotation}", annotation = names::PROFILE)]
    ProfileUnnamed,
    #[error(
        "profiles are not read in namespace {0}, which the annotation {annotation} names; add the namespace to --profile-namespaces of \
         osp-controller and osc-controller, and grant them access to it",
        annotation = names::PROFILE_NAMESPACE
    )]
    ProfileNamespaceNotRead(String),
    #[error(
        "osc-controller may not read profiles in namespace {0}; grant it access to that namespace, or remove the namespace from \
         --profile-namespaces or --fallback-profile-namespace"
    )]
    ProfileNamespaceForbidden(String),
    #[error(
        "OperatingSystemProfile {0} does not exist; create it, or name another one in the MachineDeployment's annotation {annotation}",
        annotation = names::PROFILE
    )]
    ProfileMissing(String),
    #[error(
        "OperatingSystemProfile {0} does not exist; create it, or correct spec.profileAliases of the WorkerCluster"
    )]
    AliasMissing(String),
    #[error("OperatingSystemProfile {profile} is not accepted: {why}")]
    ProfileNotAccepted { profile: String, why: String },
    #[error("OperatingSystemProfile {profile}: {source}")]
    Profile { profile: String, source: ProfileError },
    #[error("OperatingSystemProfile {profile}: {source}")]
    Render { profile: String, source: RenderError },
    #[error(
        "osp-controller has not validated the newest edit of OperatingSystemProfile {profile} yet; the new revision waits up to 10 seconds \
         for it, and is then rendered without it"
    )]
    WaitingForProfile { profile: String, left: Duration },
    #[error(
        "the MachineDeployment's template has changed; it is rendered when machine-controller sets the new revision"
    )]
    WaitingForRevision,
    #[error(
        "the pool waits for a thread to render it in, because the profiles of other pools take too long; the log of osc-controller names them"
    )]
    WaitingForThread,
}

/// The profiles that a pool asks for, as messages name them.
pub fn listed(requested: &[RequestedProfile]) -> String {
    let name = |RequestedProfile { namespace, name }: &RequestedProfile| format!("{namespace}/{name}");
    requested.iter().map(name).collect::<Vec<_>>().join(" or ")
}

impl Hold {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Pool(error) => error.reason(),
            Self::PoolSettings(problem) => problem.reason(),
            Self::NamespaceNotServed(_) => Reason::NamespaceNotServed,
            Self::SettingsInvalid => Reason::SettingsInvalid,
            Self::EndpointUnknown => Reason::EndpointUnknown,
            Self::ProfileUnnamed
            | Self::ProfileNamespaceNotRead(_)
            | Self::ProfileNamespaceForbidden(_)
            | Self::ProfileMissing(_)
            | Self::AliasMissing(_) => Reason::ProfileNotFound,
            Self::ProfileNotAccepted { .. } => Reason::ProfileNotAccepted,
            Self::Profile { source, .. } => source.reason(),
            Self::Render { source, .. } => source.reason(),
            Self::WaitingForProfile { .. } => Reason::WaitingForProfile,
            Self::WaitingForRevision => Reason::WaitingForRevision,
            Self::WaitingForThread => Reason::WaitingForThread,
        }
    }
}
