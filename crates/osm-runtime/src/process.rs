//! What a process has once, however many clusters it serves.

use osm_api::rbac::Service;
use tokio_util::sync::CancellationToken;

use crate::{CommonArgs, Drain, Environment, Metrics, Readiness};

pub struct Process {
    pub service: Service,
    pub args: CommonArgs,
    pub environment: Environment,
    pub metrics: Metrics,
    pub readiness: Readiness,
    /// What precedes `shutdown` if the service has clients.
    pub drain: Drain,
    /// Cancelled when the service is to stop.
    pub shutdown: CancellationToken,
}
