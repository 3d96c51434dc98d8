//! Reads values in objects of other owners, where [`Allowed`] permits it, and watches Secrets and ConfigMaps
//! from then on.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use osm_api::MachineDeployment;
use osm_api::config::{LateBound, LateBoundSource};
use osm_runtime::Api;
use osm_runtime::{error, followed, read};

use crate::io::caches;
use crate::io::context::Context;
use crate::model::source::{Allowed, Inputs, SourceData, SourceError, SourceProblem, kind_of, value_of};

/// Bytes of all values of a pool. No Secret holds more.
const MAX_BYTES: usize = 1024 * 1024;

/// The objects that were read for one reconcile. Each is read once, however many values it holds.
type Read = HashMap<String, Arc<SourceData>>;

/// The values of everything in `late_bound_values` that an object holds.
///
/// # Errors
/// The first value that is not available, or for which there is no room.
pub async fn inputs(
    context: &Context,
    late_bound_values: &[LateBound],
    allowed: Allowed<'_>,
) -> Result<Inputs, SourceError> {
    let (mut values, mut read, mut bytes) = (BTreeMap::new(), Read::new(), 0);
    for late in late_bound_values {
        let Some(source) = &late.source else { continue };
        let value = value(context, late, source, allowed, &mut read).await?;
        bytes += value.len();
        if bytes > MAX_BYTES {
            return Err(SourceError::new(late, source, SourceProblem::TooLarge(MAX_BYTES)));
        }
        values.insert(late.id.clone(), value);
    }
    let references = read.iter().map(|(key, data)| format!("{key}={}", data.reference));
    Ok(Inputs {
        values,
        references: references.collect(),
    })
}

async fn value(
    context: &Context,
    late: &LateBound,
    source: &LateBoundSource,
    allowed: Allowed<'_>,
    read: &mut Read,
) -> Result<String, SourceError> {
    let failed = |problem| SourceError::new(late, source, problem);
    allowed.check(late.kind, source).map_err(failed)?;
    let kind = kind_of(late.kind);
    let key = followed::key(kind, &source.namespace, &source.name);
    let data = match read.get(&key) {
        Some(data) => data.clone(),
        None => {
            let data = data(context, kind, source)
                .await
                .map_err(|error| failed(SourceProblem::Unreadable(error::brief(&error))))?
                .ok_or_else(|| failed(SourceProblem::Missing))?;
            read.insert(key, data.clone());
            data
        }
    };
    value_of(late.kind, source, &data).map_err(failed)
}

/// From a watch of the object where there is one; else from the API server. `None`: there is none.
async fn data(
    context: &Context,
    kind: &'static str,
    source: &LateBoundSource,
) -> Result<Option<Arc<SourceData>>, kube::Error> {
    let LateBoundSource { namespace, name, .. } = source;
    let (cluster, sources) = (&context.cluster, &context.caches.sources);
    let of = (&cluster.scope, &cluster.worker);
    let (waker, key) = (context.clone(), followed::key(kind, namespace, name));
    let wake = move || waker.wake(|config| caches::uses_source(config, &key));
    match kind {
        "ConfigMap" => {
            sources
                .get(of, namespace, name, SourceData::of_config_map, wake)
                .await
        }
        "MachineDeployment" => machine_deployment(context, namespace, name).await,
        _ => {
            sources
                .get(of, namespace, name, SourceData::of_secret, wake)
                .await
        }
    }
}

/// It is not watched: an edit of it takes effect with the revision that follows, for which the config is
/// rendered again.
async fn machine_deployment(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<SourceData>>, kube::Error> {
    let client = context.cluster.worker.client.clone();
    let pools: Api<MachineDeployment> = Api::namespaced(client, namespace);
    let found = read::get(
        &pools,
        name,
        |md: MachineDeployment| Ok(Arc::new(SourceData::of_machine_deployment(&md))),
        |unreadable| Err(kube::Error::Service(unreadable.problem.to_string().into())),
    );
    found.await?.transpose()
}
