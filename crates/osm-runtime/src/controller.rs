//! What a service is to the clusters that it serves.

use std::collections::BTreeSet;

use crate::cluster::Cluster;

/// A controller that serves any number of clusters.
pub trait Controller: Send + Sync + Sized + 'static {
    /// Starts what this process has once, such as the watches of the management cluster. `of` is that
    /// cluster.
    ///
    /// # Errors
    /// Metrics whose names are taken.
    fn start(of: &Cluster) -> Result<Self, prometheus::Error>;

    /// Namespaces of the management cluster, which has this uid, with objects that it maintains for another cluster.
    fn namespaces_of_others(&self, _uid: &str) -> BTreeSet<String> {
        BTreeSet::new()
    }

    /// Serves a cluster until its end.
    fn serve(&self, cluster: Cluster) -> impl Future<Output = ()> + Send;
}
