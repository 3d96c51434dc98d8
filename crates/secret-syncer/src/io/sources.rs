//! Reads values in objects of other owners, where [`Allowed`] permits it, and watches those objects from then on.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use osm_api::MachineDeployment;
use osm_api::config::{LateBound, LateBoundSource};
use osm_runtime::cache::Cache;
use osm_runtime::error;
use osm_runtime::watch::{Watch, Watchable};

use crate::io::syncer::Syncer;
use crate::model::source::{Allowed, SourceData, SourceError, SourceProblem, kind_of, value_of};

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
    let data = data(syncer, kind_of(late.kind), source).await.map_err(|error| {
        failed(if error::is_code(&error, 404) {
            SourceProblem::Missing
        } else {
            SourceProblem::Unreadable(error::brief(&error))
        })
    })?;
    value_of(late.kind, source, &data).map_err(failed)
}

/// From the watch where it has the object; else from the API server, whose answer says why it is not available.
async fn data(
    syncer: &Syncer,
    kind: &'static str,
    source: &LateBoundSource,
) -> Result<Arc<SourceData>, kube::Error> {
    let LateBoundSource { namespace, name, .. } = source;
    let followed = syncer
        .caches
        .sources
        .lock()
        .get(&format!("{kind}/{namespace}/{name}"))
        .cloned();
    match followed {
        Some(cache) => {
            if let Some(data) = cache.get(&format!("{namespace}/{name}")) {
                return Ok(data);
            }
        }
        None => follow(syncer, kind, source),
    }
    let client = syncer.clients.cluster.worker.client.clone();
    Ok(Arc::new(match kind {
        "ConfigMap" => {
            SourceData::of_config_map(Api::<ConfigMap>::namespaced(client, namespace).get(name).await?)
        }
        "MachineDeployment" => SourceData::of_machine_deployment(
            &Api::<MachineDeployment>::namespaced(client, namespace)
                .get(name)
                .await?,
        ),
        _ => SourceData::of_secret(Api::<Secret>::namespaced(client, namespace).get(name).await?),
    }))
}

/// Starts to watch the object, unless it is watched already.
fn follow(syncer: &Syncer, kind: &'static str, source: &LateBoundSource) {
    let LateBoundSource { namespace, name, .. } = source;
    let cache = Arc::<Cache<SourceData>>::default();
    match syncer
        .caches
        .sources
        .lock()
        .entry(format!("{kind}/{namespace}/{name}"))
    {
        // Another worker was faster.
        Entry::Occupied(_) => return,
        Entry::Vacant(place) => place.insert(cache.clone()),
    };
    match kind {
        "ConfigMap" => watch::<ConfigMap>(syncer, source, &cache, SourceData::of_config_map),
        "MachineDeployment" => watch::<MachineDeployment>(syncer, source, &cache, |md| {
            SourceData::of_machine_deployment(&md)
        }),
        _ => watch::<Secret>(syncer, source, &cache, SourceData::of_secret),
    }
}

/// A change requeues every config that refers to the object.
fn watch<K>(
    syncer: &Syncer,
    source: &LateBoundSource,
    cache: &Arc<Cache<SourceData>>,
    data: fn(K) -> SourceData,
) where
    K: Watchable + kube::Resource<Scope = NamespaceResourceScope>,
{
    let (cluster, waker) = (&syncer.clients.cluster, syncer.clone());
    let (namespace, name) = (source.namespace.clone(), source.name.clone());
    Watch::namespaced(&cluster.worker, &source.namespace, "sources")
        .named(&source.name)
        .project(move |object: K| Some(data(object)))
        .into_cache(cache)
        .on_change(move |_| {
            waker.wake(|config| {
                let mut sources = config.late_bound.iter().filter_map(|late| late.source.as_ref());
                sources.any(|source| source.namespace == namespace && source.name == name)
            });
        })
        .unawaited()
        .spawn(cluster);
}
