//! The role of a cluster for a service: the only one, or one of two.

use osm_api::rbac::ClusterKind;

/// What the cluster behind a [`Connection`](crate::Connection) is to this service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionRole {
    /// It is the only one that the service needs.
    Only,
    /// It is one of two.
    Of(ClusterKind),
}

impl ConnectionRole {
    /// Value of the metric label `cluster`.
    pub fn label(self) -> &'static str {
        match self {
            Self::Only => "single",
            Self::Of(cluster) => cluster.name(),
        }
    }

    /// Follows the name of an object in a message; empty where there is only one cluster.
    pub fn place(self) -> &'static str {
        match self {
            Self::Only => "",
            Self::Of(ClusterKind::Management) => " in the management cluster",
            Self::Of(ClusterKind::Worker) => " in the worker cluster",
        }
    }

    /// The kinds of cluster in the table of rights that apply to it.
    pub fn kinds(self) -> &'static [ClusterKind] {
        match self {
            Self::Only => &ClusterKind::ALL,
            Self::Of(ClusterKind::Management) => &[ClusterKind::Management],
            Self::Of(ClusterKind::Worker) => &[ClusterKind::Worker],
        }
    }
}
