//! Keeps a cache in step with the API server.

use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Change, Version};
use crate::readiness::Gate;
use crate::{Context, Metrics, request};

/// So long a watch may be broken before the service says that it is not ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Start of the names of the gates that open once a watch is in step.
pub const GATE: &str = "watch of ";

/// Key of an object in caches and queues: `namespace/name`, or `name` where there is no namespace.
pub fn key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    meta.namespace.as_deref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// Watches `api` into `cache` until shutdown, in a task of its own.
///
/// `project` reduces an object to what decisions need (`None`: it is of no interest); `changed` is told of every
/// change, and of every key once a list has ended. Readiness waits for the first complete list.
pub fn spawn<K, V>(
    context: &Context,
    kind: &'static str,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    cache: Arc<Cache<V>>,
    project: impl Fn(K) -> Option<V> + Send + Sync + 'static,
    changed: impl Fn(Change<V>) + Send + Sync + 'static,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
    V: Send + Sync + 'static,
{
    let gate = context.readiness.gate(format!("{GATE}{kind}"));
    spawn_unawaited(context, kind, api, config, cache, project, changed, Some(gate));
}

/// As [`spawn`], but readiness waits for it only where a gate is given: for watches that start later on.
#[allow(clippy::too_many_arguments)]
pub fn spawn_unawaited<K, V>(
    context: &Context,
    kind: &'static str,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    cache: Arc<Cache<V>>,
    project: impl Fn(K) -> Option<V> + Send + Sync + 'static,
    changed: impl Fn(Change<V>) + Send + Sync + 'static,
    gate: Option<Gate>,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default,
    V: Send + Sync + 'static,
{
    let (metrics, shutdown) = (context.metrics.clone(), context.shutdown.clone());
    tokio::spawn(async move {
        let mut events = pin!(watcher(api, config).default_backoff());
        let project = |object: DeserializeGuard<K>, metrics: &Metrics| match object.0 {
            Ok(object) => {
                let (key, version) = (key(object.meta()), Version::of(object.meta()));
                (key, version, project(object))
            }
            Err(invalid) => {
                metrics.invalid_object(kind);
                let key = key(&invalid.metadata);
                tracing::warn!(
                    kind,
                    object = key,
                    "can't be decoded and is left out; mend it so that it fits its CRD"
                );
                (key, Version::of(&invalid.metadata), None)
            }
        };
        let tell = |change: Option<Change<V>>| {
            if let Some(change) = change {
                changed(change);
            }
        };
        let mut health = Health { gate, in_step: false, broken_since: None };
        while let Some(Some(event)) = next(&shutdown, &mut events).await {
            health.note(event.is_ok());
            match event {
                Ok(watcher::Event::Init) => cache.list_begins(),
                Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                    match project(object, &metrics) {
                        (key, version, Some(value)) => tell(cache.shown(&key, version, value)),
                        (key, version, None) => tell(cache.gone(&key, &version)),
                    }
                }
                Ok(watcher::Event::Delete(object)) => {
                    let (key, version, _) = project(object, &metrics);
                    tell(cache.gone(&key, &version));
                }
                Ok(watcher::Event::InitDone) => {
                    cache.list_ended().into_iter().for_each(&changed);
                    tracing::debug!(kind, objects = cache.len(), "in step");
                    health.in_step();
                }
                Err(error) => {
                    metrics.watch_failed(kind);
                    tracing::warn!(kind, error = %request::chain(&error), "watch broken, going on");
                }
            }
        }
    });
}

/// Keeps the gate of a watch true.
struct Health {
    gate: Option<Gate>,
    in_step: bool,
    broken_since: Option<Instant>,
}

impl Health {
    fn in_step(&mut self) {
        self.in_step = true;
        if let Some(gate) = &self.gate {
            gate.open();
        }
    }

    /// A watch that stays broken closes its gate; the first sign of life opens it again.
    fn note(&mut self, good: bool) {
        let broken_since = *self.broken_since.get_or_insert_with(Instant::now);
        if good {
            let was_closed = broken_since.elapsed() > PATIENCE;
            self.broken_since = None;
            if let Some(gate) = self.gate.as_ref().filter(|_| self.in_step && was_closed) {
                gate.open();
            }
        } else if let Some(gate) = self.gate.as_ref().filter(|_| broken_since.elapsed() > PATIENCE) {
            gate.close("broken for more than a minute; the log says why");
        }
    }
}

async fn next<S: futures::Stream + Unpin>(
    shutdown: &CancellationToken,
    events: &mut S,
) -> Option<Option<S::Item>> {
    shutdown.run_until_cancelled(events.next()).await
}
