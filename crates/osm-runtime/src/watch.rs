//! Keeps a cache in step with the API server.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::cache::{Cache, Change, Version};
use crate::connection::Watched;
use crate::readiness::Gate;
use crate::{Context, Metrics, request};

/// So long a watch may be broken before the service says that it is not ready.
const PATIENCE: Duration = Duration::from_secs(60);

/// Failures further apart than this are not of one fault: in between, the watch was well and nothing happened.
const APART: Duration = Duration::from_secs(180);

/// Pauses after failures of a watch.
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Start of the names of the gates that open once a watch is in step.
pub const GATE: &str = "watch of ";

/// Key of an object in caches and queues: `namespace/name`, or `name` where there is no namespace.
pub fn key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    meta.namespace.as_deref().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// Has every watch list everything anew. Clones are of one.
#[derive(Clone, Debug, Default)]
pub struct Relist(Arc<tokio::sync::watch::Sender<()>>);

impl Relist {
    /// Now.
    pub(crate) fn now(&self) {
        self.0.send_replace(());
    }
}

/// Watches `api` into `cache` until shutdown, in a task of its own.
///
/// `project` reduces an object to what decisions need (`None`: it is of no interest); `changed` is told of every
/// change, and of every key once a list has ended. Readiness waits for the first complete list.
pub fn spawn<K, V>(
    context: &Context,
    watched: Watched,
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
    let gate = context.readiness.gate(format!("{GATE}{}{}", watched.kind, watched.part.place()));
    spawn_unawaited(context, watched, api, config, cache, project, changed, Some(gate));
}

/// As [`spawn`], but readiness waits for it only where a gate is given: for watches that start later on.
#[allow(clippy::too_many_arguments)]
pub fn spawn_unawaited<K, V>(
    context: &Context,
    watched: Watched,
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
    let Watched { kind, part } = watched;
    let cluster = part.label();
    let mut backoff = Backoff::new(&context.surroundings, FIRST_PAUSE, LONGEST_PAUSE);
    let mut relist = context.relist.0.subscribe();
    tokio::spawn(async move {
        let anew = || Box::pin(watcher(api.clone(), config.clone()));
        let mut events = anew();
        let project = |object: DeserializeGuard<K>, metrics: &Metrics| match object.0 {
            Ok(object) => {
                let (key, version) = (key(object.meta()), Version::of(object.meta()));
                (key, version, project(object))
            }
            Err(invalid) => {
                metrics.invalid_object(kind);
                let key = key(&invalid.metadata);
                tracing::warn!(
                    cluster,
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
        let mut health = Health { gate, in_step: false, fault: None };
        loop {
            let event = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                Ok(()) = relist.changed() => {
                    events = anew();
                    continue;
                }
                Some(event) = events.next() => event,
                else => return,
            };
            let broken = match &event {
                Ok(_) => {
                    health.lives();
                    None
                }
                Err(error) => Some(health.failed(error, Instant::now()) || is_away(error)),
            };
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
                    tracing::debug!(cluster, kind, objects = cache.len(), "in step");
                    health.in_step();
                }
                Err(error) => {
                    metrics.watch_failed(cluster, kind);
                    tracing::warn!(cluster, kind, error = %request::chain(&error), "watch broken, going on");
                }
            }
            let Some(list_anew) = broken else {
                backoff.reset();
                continue;
            };
            let pause = tokio::time::sleep(backoff.failed());
            if shutdown.run_until_cancelled(pause).await.is_none() {
                return;
            }
            if list_anew {
                events = anew();
            }
        }
    });
}

/// Whether a watch could not be taken up again where it had stopped. An API server that was away may come back with a store
/// that was restored: a watch from a resourceVersion that it has yet to reach is accepted, and shows nothing. So
/// everything is listed anew.
fn is_away(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(_))
}

/// Keeps the gate of a watch true.
struct Health {
    gate: Option<Gate>,
    in_step: bool,
    fault: Option<Fault>,
}

/// Failures of a watch without a sign of life in between.
#[derive(Clone, Copy)]
struct Fault {
    since: Instant,
    last: Instant,
}

impl Fault {
    fn lasts(self) -> bool {
        self.last - self.since > PATIENCE
    }
}

impl Health {
    fn in_step(&mut self) {
        self.in_step = true;
        if let Some(gate) = &self.gate {
            gate.open();
        }
    }

    /// The first sign of life opens the gate again, if the watch was in step.
    fn lives(&mut self) {
        let ended = self.fault.take().is_some_and(Fault::lasts);
        if let Some(gate) = self.gate.as_ref().filter(|_| self.in_step && ended) {
            gate.open();
        }
    }

    /// A watch that stays broken closes its gate. Whether it does: only a new list then shows that it lives again, since a
    /// watch tells of nothing as long as nothing happens.
    fn failed(&mut self, error: &watcher::Error, now: Instant) -> bool {
        let before = self.fault.filter(|fault| now - fault.last < APART);
        let fault = Fault { since: before.map_or(now, |fault| fault.since), last: now };
        self.fault = Some(fault);
        if let Some(gate) = &self.gate {
            if !self.in_step {
                gate.close(format!("not yet: {}", request::chain(error)));
            } else if fault.lasts() {
                gate.close(format!("broken for more than a minute: {}", request::chain(error)));
            }
        }
        fault.lasts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::Readiness;

    fn error() -> watcher::Error {
        watcher::Error::NoResourceVersion
    }

    fn in_step(readiness: &Readiness) -> Health {
        let mut health = Health { gate: Some(readiness.gate("watch")), in_step: false, fault: None };
        health.in_step();
        health
    }

    #[test]
    fn a_fault_that_lasts_closes_the_gate_until_there_is_a_sign_of_life() {
        let (readiness, start) = (Readiness::default(), Instant::now());
        let mut health = in_step(&readiness);
        for second in [0, 20, 60] {
            assert!(!health.failed(&error(), start + Duration::from_secs(second)));
            assert_eq!(readiness.waiting(), [""; 0]);
        }
        assert!(health.failed(&error(), start + Duration::from_secs(61)), "it is to be listed anew");
        assert!(readiness.waiting()[0].contains("more than a minute"));
        health.lives();
        assert_eq!(readiness.waiting(), [""; 0]);
    }

    #[test]
    fn failures_with_a_quiet_time_in_between_are_not_one_fault() {
        let (readiness, start) = (Readiness::default(), Instant::now());
        let mut health = in_step(&readiness);
        for minutes in [0, 5, 10] {
            assert!(!health.failed(&error(), start + Duration::from_secs(60 * minutes)));
            assert_eq!(readiness.waiting(), [""; 0]);
        }
    }

    #[test]
    fn a_watch_that_was_never_in_step_is_waited_for_through_signs_of_life() {
        let readiness = Readiness::default();
        let mut health = Health { gate: Some(readiness.gate("watch")), in_step: false, fault: None };
        health.failed(&error(), Instant::now());
        assert!(readiness.waiting()[0].contains("not yet"));
        health.lives();
        assert_eq!(readiness.waiting().len(), 1);
        health.in_step();
        assert_eq!(readiness.waiting(), [""; 0]);
    }
}
