//! Keeps a cache in step with the API server.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::cache::{Cache, Change, Version};
use crate::connection_role::ConnectionRole;
use crate::readiness::Gate;
use crate::{Cluster, Connection, Metrics, error};

/// A service stays ready while a watch is broken for no longer than this.
const MAX_FAULT: Duration = Duration::from_secs(60);

/// Two failures further apart than this belong to two faults: between them the watch worked, and nothing happened.
const MAX_FAULT_GAP: Duration = Duration::from_secs(180);

/// Pauses after failures of a watch.
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Start of the names of the gates that open once a watch is in step.
pub const GATE: &str = "watch of ";

/// Key of an object in caches and queues: `namespace/name`, or `name` where there is no namespace.
pub fn key(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    meta.namespace
        .as_deref()
        .map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// A kind that can be watched.
pub trait Watchable: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static {}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static> Watchable for K {}

/// Which objects are watched.
pub struct Watch<K> {
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    /// For logs, metrics and readiness.
    what: &'static str,
    /// Part of the gate's name where several namespaces are watched.
    namespace: Option<String>,
    role: ConnectionRole,
}

impl<K: Watchable> Watch<K> {
    /// All objects of the cluster. `what` names them in logs, metrics and readiness.
    pub fn all(connection: &Connection, what: &'static str) -> Self {
        Self::of(connection, what, Api::all(connection.client.clone()))
    }

    /// The objects of a namespace.
    pub fn namespaced(connection: &Connection, namespace: &str, what: &'static str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self::of(
            connection,
            what,
            Api::namespaced(connection.client.clone(), namespace),
        )
    }

    /// The objects of one of several namespaces that are watched. Readiness waits for each of them, and names it.
    pub fn each_namespace(connection: &Connection, namespace: &str, what: &'static str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self {
            namespace: Some(namespace.to_owned()),
            ..Self::namespaced(connection, namespace, what)
        }
    }

    fn of(connection: &Connection, what: &'static str, api: Api<DeserializeGuard<K>>) -> Self {
        Self {
            api,
            config: watcher::Config::default(),
            what,
            namespace: None,
            role: connection.role(),
        }
    }

    /// Only those with these labels.
    pub fn labels(mut self, selector: &str) -> Self {
        self.config = self.config.labels(selector);
        self
    }

    /// Only those with these fields.
    pub fn fields(mut self, selector: &str) -> Self {
        self.config = self.config.fields(selector);
        self
    }

    /// Only the one of this name.
    pub fn named(self, name: &str) -> Self {
        self.fields(&format!("metadata.name={name}"))
    }

    /// Reduces each object to what decisions need; `None`: it is of no interest.
    pub fn project<V>(self, project: impl Fn(K) -> Option<V> + Send + Sync + 'static) -> Projection<K, V> {
        Projection {
            watch: self,
            project: Box::new(project),
            cache: Arc::default(),
            on_change: Box::new(|_| ()),
            awaited: true,
        }
    }
}

/// What of the watched objects is kept, and what a change leads to.
pub struct Projection<K, V> {
    watch: Watch<K>,
    project: Project<K, V>,
    cache: Arc<Cache<V>>,
    on_change: Box<dyn Fn(Change<V>) + Send + Sync>,
    awaited: bool,
}

type Project<K, V> = Box<dyn Fn(K) -> Option<V> + Send + Sync>;

impl<K: Watchable, V: Send + Sync + 'static> Projection<K, V> {
    /// Keeps the values in this cache.
    pub fn into_cache(self, cache: &Arc<Cache<V>>) -> Self {
        Self {
            cache: cache.clone(),
            ..self
        }
    }

    /// Calls `on_change` for every change, and for every key that a list no longer has.
    pub fn on_change(self, on_change: impl Fn(Change<V>) + Send + Sync + 'static) -> Self {
        Self {
            on_change: Box::new(on_change),
            ..self
        }
    }

    /// Readiness does not wait for the first complete list: for a watch that starts later than the others.
    pub fn unawaited(self) -> Self {
        Self {
            awaited: false,
            ..self
        }
    }

    /// Watches until shutdown, in a task of its own.
    pub fn spawn(self, cluster: &Cluster) {
        let Watch {
            api,
            config,
            what,
            namespace,
            role,
        } = self.watch;
        let gate = self
            .awaited
            .then(|| cluster.gates.gate(gate_name(what, namespace.as_deref(), role)));
        let running = RunningWatch {
            api,
            config,
            what,
            cluster: role.label(),
            project: self.project,
            cache: self.cache,
            on_change: self.on_change,
            metrics: cluster.process.metrics.clone(),
            shutdown: cluster.shutdown.clone(),
            relist: cluster.relist.subscribe(),
            backoff: Backoff::new(&cluster.process.environment, FIRST_PAUSE, LONGEST_PAUSE),
            health: Health {
                gate,
                in_step: false,
                fault: None,
            },
        };
        tokio::spawn(running.run());
    }
}

fn gate_name(what: &str, namespace: Option<&str>, role: ConnectionRole) -> String {
    let namespace = namespace.map_or_else(String::new, |namespace| format!(" in namespace {namespace}"));
    format!("{GATE}{what}{namespace}{}", role.place())
}

/// A watch that runs.
struct RunningWatch<K, V> {
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    what: &'static str,
    cluster: &'static str,
    project: Project<K, V>,
    cache: Arc<Cache<V>>,
    on_change: Box<dyn Fn(Change<V>) + Send + Sync>,
    metrics: Metrics,
    shutdown: CancellationToken,
    relist: watch::Receiver<()>,
    backoff: Backoff,
    health: Health,
}

type Events<K> = BoxStream<'static, watcher::Result<watcher::Event<DeserializeGuard<K>>>>;

impl<K: Watchable, V: Send + Sync + 'static> RunningWatch<K, V> {
    async fn run(mut self) {
        let mut events = self.list_and_watch();
        loop {
            let event = tokio::select! {
                biased;
                () = self.shutdown.cancelled() => return,
                Ok(()) = self.relist.changed() => {
                    events = self.list_and_watch();
                    continue;
                }
                Some(event) = events.next() => event,
                else => return,
            };
            match event {
                Ok(event) => {
                    self.health.lives();
                    self.show(event);
                    self.backoff.reset();
                }
                Err(error) => {
                    let list_again = self.failed(&error);
                    let pause = tokio::time::sleep(self.backoff.failed());
                    if self.shutdown.run_until_cancelled(pause).await.is_none() {
                        return;
                    }
                    if list_again {
                        events = self.list_and_watch();
                    }
                }
            }
        }
    }

    fn list_and_watch(&self) -> Events<K> {
        watcher(self.api.clone(), self.config.clone()).boxed()
    }

    fn show(&mut self, event: watcher::Event<DeserializeGuard<K>>) {
        let change = match event {
            watcher::Event::Init => {
                self.cache.list_begins();
                None
            }
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => match self.read(object) {
                (key, version, Some(value)) => self.cache.shown(&key, version, value),
                (key, version, None) => self.cache.gone(&key, &version),
            },
            watcher::Event::Delete(object) => {
                let (key, version, _) = self.read(object);
                self.cache.gone(&key, &version)
            }
            watcher::Event::InitDone => {
                self.cache.list_ended().into_iter().for_each(&self.on_change);
                tracing::debug!(
                    cluster = self.cluster,
                    kind = self.what,
                    objects = self.cache.len(),
                    "in step"
                );
                self.health.in_step();
                None
            }
        };
        if let Some(change) = change {
            (self.on_change)(change);
        }
    }

    fn read(&self, object: DeserializeGuard<K>) -> (String, Version, Option<V>) {
        match object.0 {
            Ok(object) => {
                let (key, version) = (key(object.meta()), Version::of(object.meta()));
                (key, version, (self.project)(object))
            }
            Err(invalid) => {
                self.metrics.invalid_object(self.what);
                let key = key(&invalid.metadata);
                tracing::warn!(
                    cluster = self.cluster,
                    kind = self.what,
                    object = key,
                    "the object does not match its schema and is ignored; correct it"
                );
                (key, Version::of(&invalid.metadata), None)
            }
        }
    }

    /// Returns whether to list everything again.
    fn failed(&mut self, error: &watcher::Error) -> bool {
        self.metrics.watch_failed(self.cluster, self.what);
        tracing::warn!(
            cluster = self.cluster,
            kind = self.what,
            error = %error::chain(error),
            "the watch has failed and is retried"
        );
        self.health.failed(error, Instant::now()) || has_not_restarted(error)
    }
}

/// Whether a watch could not be restarted where it had stopped. An API server that was away may come back with a restored
/// store. It accepts a watch from a resourceVersion that it has not reached yet, and shows nothing. So the watch lists
/// everything again.
fn has_not_restarted(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::WatchStartFailed(_))
}

/// Keeps the gate of a watch true.
struct Health {
    gate: Option<Gate>,
    in_step: bool,
    fault: Option<Fault>,
}

/// Failures of a watch without an event in between.
#[derive(Clone, Copy)]
struct Fault {
    since: Instant,
    last: Instant,
}

impl Fault {
    fn lasts(self) -> bool {
        self.last - self.since > MAX_FAULT
    }
}

impl Health {
    fn in_step(&mut self) {
        self.in_step = true;
        if let Some(gate) = &self.gate {
            gate.open();
        }
    }

    /// The first event opens the gate again, if the watch was in step.
    fn lives(&mut self) {
        let ended = self.fault.take().is_some_and(Fault::lasts);
        if let Some(gate) = self.gate.as_ref().filter(|_| self.in_step && ended) {
            gate.open();
        }
    }

    /// A watch that stays broken closes its gate. Returns whether it does. Only a new list then shows that it works again,
    /// since a watch is silent as long as nothing happens.
    fn failed(&mut self, error: &watcher::Error, now: Instant) -> bool {
        let before = self.fault.filter(|fault| now - fault.last < MAX_FAULT_GAP);
        let fault = Fault {
            since: before.map_or(now, |fault| fault.since),
            last: now,
        };
        self.fault = Some(fault);
        if let Some(gate) = &self.gate {
            if !self.in_step {
                gate.close(format!("not yet: {}", error::chain(error)));
            } else if fault.lasts() {
                gate.close(format!("broken for more than a minute: {}", error::chain(error)));
            }
        }
        fault.lasts()
    }
}

#[cfg(test)]
mod tests {
    use osm_api::rbac::ClusterKind;

    use super::*;
    use crate::readiness::Readiness;

    #[test]
    fn a_namespace_of_several_has_a_gate_of_its_own() {
        let management = ConnectionRole::Of(ClusterKind::Management);
        let cases = [
            (None, ConnectionRole::Only, "watch of profiles"),
            (None, management, "watch of profiles in the management cluster"),
            (
                Some("a"),
                ConnectionRole::Only,
                "watch of profiles in namespace a",
            ),
            (
                Some("b"),
                management,
                "watch of profiles in namespace b in the management cluster",
            ),
        ];
        for (namespace, role, expected) in cases {
            assert_eq!(gate_name("profiles", namespace, role), expected);
        }
    }

    fn error() -> watcher::Error {
        watcher::Error::NoResourceVersion
    }

    fn in_step(readiness: &Readiness) -> Health {
        let mut health = Health {
            gate: Some(readiness.gate("watch")),
            in_step: false,
            fault: None,
        };
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
        assert!(
            health.failed(&error(), start + Duration::from_secs(61)),
            "it is to be listed anew"
        );
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
        let mut health = Health {
            gate: Some(readiness.gate("watch")),
            in_step: false,
            fault: None,
        };
        health.failed(&error(), Instant::now());
        assert!(readiness.waiting()[0].contains("not yet"));
        health.lives();
        assert_eq!(readiness.waiting().len(), 1);
        health.in_step();
        assert_eq!(readiness.waiting(), [""; 0]);
    }
}
