//! Reads everything that one reconcile needs. It writes nothing, neither to the API server nor to memory. Of
//! an object that a config takes values from, the first read starts a watch.

use std::sync::Arc;

use osm_api::PoolRef;
use osm_runtime::request::failed;

use crate::io::context::Context;
use crate::io::sources;
use crate::model::gathered::{Clusters, Gathered};
use crate::model::published_content::Published;
use crate::model::record::Record;
use crate::model::source::{Allowed, Inputs, SourceError};
use crate::model::view::ConfigView;
use crate::plan::hold;

/// Requests are made only for values in objects of other owners, for what is published while new content is
/// held back, and for the uids of clusters.
///
/// # Errors
/// Requests that failed.
pub async fn gather(context: &Context, name: &str) -> Result<Gathered, osm_runtime::Error> {
    let caches = &context.caches;
    let config = context.shared.configs.get(&context.config_key(name));
    let md = config
        .as_ref()
        .and_then(|config| config.machine_deployment.as_ref());
    let pool = md.map(PoolRef::id).unwrap_or_default();
    let (existing, orphans) = caches.existing(name, &pool);
    // A kubeconfig may lead to another cluster by now, whose answers would be a reason to delete or to
    // publish.
    let (management, worker) =
        tokio::try_join!(context.cluster.management.uid(), context.cluster.worker.uid())
            .map_err(failed("reading namespace kube-system"))?;
    let memory = context.memory.of(name);
    let settings = context.cluster.settings.borrow().clone();
    let credentials = settings.map(|current| current.settings.credentials.clone());
    let mut gathered = Gathered {
        now: context.cluster.worker.server_time.now(),
        name: name.to_owned(),
        clusters: Clusters { management, worker },
        are_secrets_crowded: caches.are_crowded(),
        inputs: match &config {
            Some(config) => inputs(context, config).await,
            None => Ok(Inputs::default()),
        },
        token_lifetime: credentials.unwrap_or_default().token_lifetime(),
        config,
        existing,
        orphans,
        memory,
        published: None,
        upstream_osm: context.cluster.upstream_osm.problem(),
        outdated_definitions: context.cluster.process.outdated_definitions.problem(),
    };
    if let Some(record) = hold::needed_record(&gathered) {
        let published = published(context, &pool, record).await?;
        gathered.published = published.map(Arc::new);
    }
    Ok(gathered)
}

/// What this records. `None`: the provisioning Secret does not exist or is not the one that was published, or
/// it does not hold what this program needs.
///
/// # Errors
/// Requests that failed.
pub async fn published(
    context: &Context,
    pool: &str,
    record: Record,
) -> Result<Option<Published>, osm_runtime::Error> {
    let found = context.secrets().get_opt(&record.provisioning_secret).await;
    let found = found.map_err(failed("reading the provisioning Secret"))?;
    Ok(found.and_then(|secret| Published::read(secret, pool, record)))
}

async fn inputs(context: &Context, config: &ConfigView) -> Result<Inputs, SourceError> {
    if config.to_publish().is_none() || config.machine_deployment.is_none() {
        return Ok(Inputs::default());
    }
    let settings = context.cluster.settings.borrow().clone();
    let allowed = Allowed {
        settings: settings.as_ref().map(|current| &current.settings),
        machine_deployment: config.machine_deployment.as_ref(),
    };
    sources::inputs(context, &config.late_bound_values, allowed).await
}
