//! Holds what a process has once, however many clusters it serves.

use std::sync::Arc;

use osm_api::rbac::Service;
use tokio_util::sync::CancellationToken;

use crate::args::CommonArgs;
use crate::environment::Environment;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::shared_problem::SharedProblem;

pub struct Process {
    pub service: Service,
    pub args: CommonArgs,
    pub environment: Environment,
    pub metrics: Metrics,
    pub readiness: Readiness,
    /// Whether the CustomResourceDefinitions are known to be too old. Every watch lists its objects again
    /// when that changes.
    pub outdated_definitions: SharedProblem,
    /// Cancelled when the service is to stop.
    pub shutdown: CancellationToken,
}

impl Process {
    /// # Errors
    /// Two metrics share a name.
    pub fn new(
        service: Service,
        args: CommonArgs,
        environment: Environment,
    ) -> Result<Arc<Self>, prometheus::Error> {
        Ok(Arc::new(Self {
            service,
            args,
            environment,
            metrics: Metrics::of(service)?,
            readiness: Readiness::default(),
            outdated_definitions: SharedProblem::default(),
            shutdown: CancellationToken::new(),
        }))
    }
}
