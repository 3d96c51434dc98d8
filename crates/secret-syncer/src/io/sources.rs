//! Reads values in objects of other owners, where [`Allowed`] permits it, and watches those objects from then on.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Api;
use osm_api::MachineDeployment;
use osm_api::config::{LateBound, LateBoundSource};
use osm_runtime::cache::Cache;
use osm_runtime::watch::Watch;
use osm_runtime::{error, followed, read};

use crate::io::caches;
use crate::io::syncer::Syncer;
use crate::model::source::{
    Allowed, SourceData, SourceError, SourceProblem, Subscription, kind_of, value_of,
};

/// The values of everything in `late_bound` that an object holds, by id.
///
/// # Errors
/// The first value that is not available.
pub async fn values(
    syncer: &Syncer,
    late_bound: &[LateBound],
    allowed: Allowed<'_>,
) -> Result<BTreeMap<String, String>, SourceError> {
    let mut values = BTreeMap::new();
    for late in late_bound {
        let Some(source) = &late.source else { continue };
        values.insert(late.id.clone(), value(syncer, late, source, allowed).await?);
    }
    Ok(values)
}

async fn value(
    syncer: &Syncer,
    late: &LateBound,
    source: &LateBoundSource,
    allowed: Allowed<'_>,
) -> Result<String, SourceError> {
    let failed = |problem| SourceError::new(late, source, problem);
    allowed.check(late.kind, source).map_err(failed)?;
    let data = data(syncer, kind_of(late.kind), source)
        .await
        .map_err(|error| failed(SourceProblem::Unreadable(error::brief(&error))))?
        .ok_or_else(|| failed(SourceProblem::Missing))?;
    value_of(late.kind, source, &data).map_err(failed)
}

/// From the watch where it has the object; else from the API server. `None`: there is none.
async fn data(
    syncer: &Syncer,
    kind: &'static str,
    source: &LateBoundSource,
) -> Result<Option<Arc<SourceData>>, kube::Error> {
    let LateBoundSource { namespace, name, .. } = source;
    let (cluster, sources) = (&syncer.clients.cluster, &syncer.caches.sources);
    let (waker, key) = (syncer.clone(), followed::key(kind, namespace, name));
    let wake = move || waker.wake(|config| caches::uses_source(config, &key));
    match kind {
        "ConfigMap" => {
            sources
                .get(cluster, namespace, name, SourceData::of_config_map, wake)
                .await
        }
        "MachineDeployment" => machine_deployment(syncer, namespace, name).await,
        _ => {
            sources
                .get(cluster, namespace, name, SourceData::of_secret, wake)
                .await
        }
    }
}

async fn machine_deployment(
    syncer: &Syncer,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<SourceData>>, kube::Error> {
    let shown = watched_pools(syncer).get(&format!("{namespace}/{name}"));
    if let Some(Subscription::Texts(texts)) = shown.as_deref() {
        return Ok(Some(texts.clone()));
    }
    let client = syncer.clients.cluster.worker.client.clone();
    let pools: Api<MachineDeployment> = Api::namespaced(client, namespace);
    let found = read::get(
        &pools,
        name,
        |md: MachineDeployment| Ok(Arc::new(SourceData::of_machine_deployment(&md))),
        |unreadable| Err(kube::Error::Service(unreadable.problem.to_string().into())),
    );
    found.await?.transpose()
}

/// Watches all MachineDeployments, until no config takes a value from one. Of these, only the texts of RHEL subscriptions are kept.
fn watched_pools(syncer: &Syncer) -> Arc<Cache<Subscription>> {
    let (cluster, waker) = (&syncer.clients.cluster, syncer.clone());
    syncer.caches.watched_pools(&cluster.shutdown, |cache, end| {
        Watch::all(&cluster.worker, "machinedeployments")
            .project(|md: MachineDeployment| Subscription::of(&md))
            .into_cache(cache)
            .on_change(move |change| {
                let key = format!("MachineDeployment/{}", change.key);
                waker.wake(|config| caches::uses_source(config, &key));
            })
            .unawaited()
            .until(end)
            .spawn(cluster);
    })
}
