//! osc-controller: one OperatingSystemConfig per MachineDeployment, rendered.
//!
//! It owns `spec`, `status.rendered`, `status.retired` and the conditions `Rendered` and `Current` of
//! OperatingSystemConfigs. It has no right on any Secret but its kubeconfigs of a fleet. It writes a
//! MachineDeployment only to remove a [`finalizer`] of the upstream OSM, where the installation asks for that.
//!
//! A reconcile is `gather → plan → apply → report`. [`plan`](mod@plan) makes all decisions in a thread of
//! [`planning`], [`apply`] writes objects, and [`report`] alone writes status, Events and metrics. A
//! [`finalizer`] is removed or reported after that.

pub mod apply;
pub mod caches;
pub mod compiled;
pub mod context;
pub mod finalizer;
pub mod gather;
pub mod hold;
pub mod memory;
pub mod metrics;
pub mod plan;
pub mod planning;
pub mod pool_settings;
pub mod report;
pub mod shared;
pub mod view;
pub mod watches;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use osm_runtime::Controller;
use osm_runtime::runner;
use osm_runtime::served::Served;
use osm_runtime::{Cluster, Error, upstream_osm};

use crate::context::Context;
use crate::planning::Planning;
use crate::shared::Shared;
use crate::view::ConfigView;

/// What this process has once, however many clusters it serves.
pub struct OscController {
    shared: Arc<Shared>,
    planning: Arc<Planning>,
    served: Arc<Served<Context>>,
}

impl Controller for OscController {
    /// Starts the watches of the management cluster.
    fn start(of: &Cluster) -> Result<Self, prometheus::Error> {
        let (shared, served) = (Shared::new(&of.process, &of.installation)?, Arc::default());
        watches::of_management(of, &shared, &served);
        let planning = Arc::new(Planning::new(of.process.args.reconcile_timeout));
        Ok(Self {
            shared,
            planning,
            served,
        })
    }

    fn namespaces_of_others(&self, uid: &str) -> BTreeSet<String> {
        let is_of_other = |config: &ConfigView| config.made_in().is_some_and(|of| of != uid);
        let configs = self.shared.configs.select(is_of_other).into_iter();
        configs
            .filter_map(|config| config.metadata.namespace.clone())
            .collect()
    }

    async fn serve(&self, cluster: Cluster) {
        let context = Context::new(&self.shared, &cluster);
        let _served = self.served.serve(cluster.namespace(), context.clone());
        watches::of_worker(&context);
        let (queue, keys) = (context.queue.clone(), context.clone());
        let configs = context.clone();
        let is_published = move || configs.has_published();
        upstream_osm::watch(&cluster, &queue, keys.clone(), is_published).await;
        let planning = self.planning.clone();
        let work = move |name| reconcile(context.clone(), planning.clone(), name);
        runner::work((&cluster, &cluster.replicas), queue, keys, work).await;
    }
}

/// Reconciles the OperatingSystemConfig of this name; returns when to reconcile it again.
async fn reconcile(
    context: Context,
    planning: Arc<Planning>,
    name: String,
) -> Result<Option<Duration>, Error> {
    let gathered = Arc::new(gather::gather(&context, &name).await?);
    let plan = planning.plan(&gathered).await;
    // What was found out last. It may have changed while the pool was rendered.
    let plan = match context.cluster.upstream_osm.problem() {
        Some(problem) => plan.beside_the_upstream_osm(&gathered, &problem),
        None => plan,
    };
    let config = apply::apply(&context, &gathered, &plan).await?;
    report::report(&context, &gathered, &plan, config.as_ref()).await?;
    finalizer::release(&context, &plan.finalizers).await?;
    Ok(plan.requeue_after)
}
