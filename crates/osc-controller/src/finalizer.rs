//! The finalizer that the Go implementation puts on MachineDeployments. Once that no longer runs, deletions hang.
//!
//! It is removed where the installation asks for that (`--remove-go-finalizers`). Otherwise an Event explains what to do.

use std::time::Duration;

use jiff::SignedDuration;
use osm_api::{PoolRef, names};

use crate::gather::{Gathered, PoolPresence};

/// A running Go implementation removes its finalizer sooner than this, so an earlier Event would be noise.
pub const REPORT_DELAY: SignedDuration = SignedDuration::from_secs(10);

/// The finalizer on a MachineDeployment that is being deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Finalizer {
    pub pool: PoolRef,
    /// Position in `metadata.finalizers`.
    pub index: usize,
}

impl Finalizer {
    pub fn advice(&self) -> String {
        let PoolRef { namespace, name, .. } = &self.pool;
        format!(
            "deletion waits for the finalizer {} of the Go implementation of Operating System Manager. If that implementation no \
             longer runs, start osc-controller with --remove-go-finalizers, or run `kubectl patch \
             machinedeployments.cluster.k8s.io -n {namespace} {name} --type json -p \
             '[{{\"op\": \"remove\", \"path\": \"/metadata/finalizers/{}\"}}]'`",
            names::GO_FINALIZER,
            self.index
        )
    }
}

/// What to do about finalizers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Finalizers {
    pub remove: Vec<Finalizer>,
    pub report: Vec<Finalizer>,
    /// When the next one has to be reported.
    pub requeue_after: Option<Duration>,
}

/// Decides what to do about the finalizers of the claimants.
pub fn left_behind(gathered: &Gathered) -> Finalizers {
    let mut found = Finalizers::default();
    // Never write to what is perhaps the wrong cluster.
    if gathered.other_cluster.is_some() || gathered.presence == PoolPresence::OtherCluster {
        return found;
    }
    for claimant in &gathered.claimants {
        let Some(deleted) = claimant.deleted_with_go_finalizer else {
            continue;
        };
        let finalizer = Finalizer {
            pool: claimant.pool_ref.clone(),
            index: deleted.index,
        };
        if gathered.removes_finalizers {
            found.remove.push(finalizer);
            continue;
        }
        // The clock may have been set back since.
        let left = (REPORT_DELAY - gathered.now.duration_since(deleted.since)).min(REPORT_DELAY);
        match Duration::try_from(left).ok().filter(|left| !left.is_zero()) {
            Some(wait) => {
                found.requeue_after = [found.requeue_after, Some(wait)].into_iter().flatten().min();
            }
            None => found.report.push(finalizer),
        }
    }
    found
}
