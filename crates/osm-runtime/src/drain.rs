//! Draining: a service with clients works on for a few seconds after it was asked to stop. The clients learn from endpoints that its pod goes
//! away, and Kubernetes removes these at the same time as it sends SIGTERM; see
//! <https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination-flow>.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How long clients may still arrive. Endpoints and the rules of kube-proxy mostly follow within a second or two, and within several in a
/// large cluster. Other webhooks wait as long, such as Gatekeeper's. The
/// `terminationGracePeriodSeconds` of the chart are longer by it.
pub const DRAIN_TIME: Duration = Duration::from_secs(10);

/// Whether a service drains. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Drain {
    begun: CancellationToken,
    has_clients: Arc<AtomicBool>,
}

impl Drain {
    /// The service also drains, for no time, when `shutdown` is cancelled.
    pub fn new(shutdown: &CancellationToken) -> Self {
        Self {
            begun: shutdown.child_token(),
            has_clients: Arc::default(),
        }
    }

    /// The service has clients that find it by endpoints.
    pub fn expect_clients(&self) {
        self.has_clients.store(true, Ordering::Relaxed);
    }

    /// How long the service drains. Without clients, it does not.
    pub fn time(&self) -> Duration {
        match self.has_clients.load(Ordering::Relaxed) {
            true => DRAIN_TIME,
            false => Duration::ZERO,
        }
    }

    /// From now on, the service is not ready, and the process stops.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    pub(crate) async fn begun(&self) {
        self.begun.cancelled().await;
    }

    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }
}
