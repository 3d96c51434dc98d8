//! Holds what a process has once, however many clusters it serves.

use osm_api::rbac::Service;
use tokio_util::sync::CancellationToken;

use crate::args::CommonArgs;
use crate::environment::Environment;
use crate::metrics::Metrics;
use crate::readiness::Readiness;

pub struct Process {
    pub service: Service,
    pub args: CommonArgs,
    pub environment: Environment,
    pub metrics: Metrics,
    pub readiness: Readiness,
    /// Cancelled when the service is to stop.
    pub shutdown: CancellationToken,
}
