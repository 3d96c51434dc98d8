//! How nodes reach their API server.

/// How the nodes of a pool reach their API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterEndpoint {
    /// `https://host:port`.
    pub api_server: String,
    /// PEM bundle that verifies it.
    pub ca: String,
}
