//! secret-syncer: publishes OperatingSystemConfigs as the Secrets that machine-controller and booting nodes
//! read.
//!
//! It owns `status.published` and the conditions `Published` and `Ready` of OperatingSystemConfigs, and every
//! Secret, ServiceAccount, Role and RoleBinding that it makes in `cloud-init-settings`. It runs no template.
//!
//! A reconcile is `gather → plan → apply → report`, in three layers that only use the ones before:
//! [`model`] (what the others speak of) ← [`mod@plan`] (decisions, pure) ← [`io`] (everything with a client).

#![allow(missing_docs)] // This crate is not published; comments say why, and names say what.

pub mod io;
pub mod model;
pub mod plan;

use std::sync::Arc;
use std::time::Duration;

use osm_runtime::Controller;
use osm_runtime::runner;
use osm_runtime::served::Served;
use osm_runtime::{Cluster, upstream_osm};

use crate::io::apply::{Applied, apply};
use crate::io::context::Context;
use crate::io::error::Error;
use crate::io::gather::gather;
use crate::io::report::report;
use crate::io::shared::Shared;
use crate::io::watches;
use crate::plan::plan;

/// What this process has once, however many clusters it serves.
pub struct SecretSyncer {
    shared: Arc<Shared>,
    served: Arc<Served<Context>>,
}

impl Controller for SecretSyncer {
    /// Starts the watch of the management cluster.
    fn start(of: &Cluster) -> Result<Self, prometheus::Error> {
        let (shared, served) = (Shared::new(&of.process)?, Arc::default());
        watches::of_management(of, &shared, &served);
        Ok(Self { shared, served })
    }

    async fn serve(&self, cluster: Cluster) {
        let context = Context::new(&self.shared, &cluster);
        let _served = self.served.serve(cluster.namespace(), context.clone());
        watches::of_worker(&context);
        let (queue, keys) = (context.queue.clone(), context.clone());
        let configs = context.clone();
        let is_published = move || configs.has_published();
        upstream_osm::watch(&cluster, &queue, keys.clone(), is_published).await;
        let work = move |name| reconcile(context.clone(), name);
        runner::work((&cluster, &cluster.replicas), queue, keys, work).await;
    }
}

async fn reconcile(context: Context, name: String) -> Result<Option<Duration>, Error> {
    let outcome = sync(&context, &name).await;
    report(&context, &name, outcome).await
}

async fn sync(context: &Context, name: &str) -> Result<Applied, Error> {
    let gathered = gather(context, name).await.map_err(Error::Gather)?;
    let (memory, plan) = plan(&gathered);
    context.memory.set(name, memory);
    Ok(apply(context, &gathered, plan?).await?)
}
