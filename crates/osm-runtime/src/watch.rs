//! Keeps a cache in step with the API server: lists the objects of a kind, and then watches them.
//!
//! [`crate`] says why this is not kube's watcher.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use futures::{AsyncBufRead, AsyncBufReadExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::{ObjectList, Request};
use kube::{Api, Resource};
use osm_api::Reason;
use osm_api::rbac::Installation;
use prometheus::IntGauge;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

use crate::bounds::{self, Bounds};
use crate::cache::{Cache, Change, Version};
use crate::connection::Connection;
use crate::connection_role::ConnectionRole;
use crate::decoded::Decoded;
use crate::environment::Environment;
use crate::error;
use crate::metrics::WatchMetrics;
use crate::object::Unreadable;
use crate::readiness::Gate;
use crate::scope::Scope;

/// The largest number of objects that one watch keeps, to bound the memory. The largest installation has
/// fewer of most kinds; others use `at_most`.
pub const MAX_OBJECTS: usize = 50_000;

/// A service stays ready while a watch is broken for no longer than this: a restart of the API server must
/// not make every service unready.
const MAX_FAULT: Duration = Duration::from_secs(60);

/// Pause after the first failure of a watch; it grows with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Short, because a service is not ready until it has listed these kinds.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);
/// For watches that readiness does not wait for. There can be many of them.
const LONGEST_PAUSE_OF_UNAWAITED: Duration = Duration::from_secs(45);

/// Time until everything is listed again after objects found no room, if there is room now. Lists of so many
/// objects are expensive.
const RELIST_INTERVAL: Duration = Duration::from_secs(300);

/// Objects in a page of a list. Most are smaller than 40 KiB, so that a page is smaller than 2 MiB, of which
/// kube has a second copy.
const PAGE: u32 = 50;

/// The same for kinds that can have hundreds of kilobytes.
const PAGE_OF_LARGE: u32 = 10;

/// Before a page that was refused is asked for again.
const PAUSES_OF_PAGES: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(4),
];

/// The API server ends a watch after this time.
const WATCH_SECONDS: u32 = 590;

/// A watch that is silent for longer is begun again, so that a connection that hangs is noticed within the ten
/// minutes that `docs/limits.md` names.
const LONGEST_SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);

/// Before each watch. A server or proxy that ends each at once would otherwise be asked thousands of times a
/// second.
const PAUSE_OF_WATCHES: Duration = Duration::from_millis(100);

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
pub trait Watchable: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + 'static {}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Send + 'static> Watchable for K {}

pub struct Watch<K> {
    api: Api<K>,
    /// The watch has the same selectors.
    params: ListParams,
    /// For logs, metrics and readiness.
    what: &'static str,
    role: ConnectionRole,
    /// The largest number of objects that are kept.
    most: usize,
    /// Of a user cluster of a fleet.
    bounds: Option<Bounds>,
    /// Whether what is kept of an object can be as large as it is.
    has_text: bool,
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
        let api = Api::namespaced(connection.client.clone(), namespace);
        Self::of(connection, what, api)
    }

    /// Objects of the management cluster, in the namespaces of all clusters that this process serves.
    pub fn of_clusters(management: &Connection, installation: &Installation, what: &'static str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        if installation.fleet {
            Self::all(management, what)
        } else {
            Self::namespaced(management, &installation.namespace, what)
        }
    }

    fn of(connection: &Connection, what: &'static str, api: Api<K>) -> Self {
        Self {
            api,
            params: ListParams::default().limit(PAGE),
            what,
            role: connection.role(),
            most: MAX_OBJECTS,
            bounds: connection.bounds().cloned(),
            has_text: false,
        }
    }

    /// Lists so few at once that a page of large objects takes little memory.
    pub fn large(mut self) -> Self {
        let page = self
            .bounds
            .as_ref()
            .map_or(PAGE_OF_LARGE, |_| bounds::PAGE_OF_LARGE);
        self.params = self.params.limit(page);
        self
    }

    /// Only those with these labels.
    pub fn labels(mut self, selector: &str) -> Self {
        self.params = self.params.labels(selector);
        self
    }

    /// Only those with these fields.
    pub fn fields(mut self, selector: &str) -> Self {
        self.params = self.params.fields(selector);
        self
    }

    /// Only the one of this name.
    pub fn named(self, name: &str) -> Self {
        self.fields(&format!("metadata.name={name}")).at_most(1)
    }

    /// Keeps so many objects. Further ones are counted and ignored.
    pub fn at_most(mut self, objects: usize) -> Self {
        self.most = objects;
        self
    }

    /// What is kept of an object can be as large as it is. In a fleet, the bytes of all are bounded.
    pub fn with_text(mut self) -> Self {
        self.has_text = true;
        self
    }

    /// Reduces each object to what decisions need; `None`: it is of no interest.
    pub fn project<V>(self, project: impl Fn(K) -> Option<V> + Send + Sync + 'static) -> Projection<K, V> {
        Projection {
            watch: self,
            project: Box::new(project),
            unreadable: Box::new(|_| None),
            cache: Arc::default(),
            on_change: Box::new(|_| ()),
            awaited: true,
            end: None,
        }
    }
}

impl<K: Watchable> Watch<K> {
    /// A page of a list. One that an overloaded API server refuses is asked for again, since a list that has
    /// failed begins with its first page.
    async fn page(&self, token: Option<String>) -> Result<ObjectList<Decoded<K>>, kube::Error> {
        let mut params = self.params.clone();
        params.continue_token = token;
        let mut pauses = PAUSES_OF_PAGES.into_iter();
        loop {
            let request = Request::new(self.api.resource_url());
            let request = if K::metadata_api() {
                request.list_metadata(&params)
            } else {
                request.list(&params)
            };
            let request = request.map_err(kube::Error::BuildRequest)?;
            let page = {
                let _turn = OptionFuture::from(self.bounds.as_ref().map(Bounds::list)).await;
                self.api.clone().into_client().request(request).await
            };
            let is_refused = |error| [429, 503, 504].iter().any(|code| error::is_code(error, *code));
            let is_refused = page.as_ref().is_err_and(is_refused);
            match pauses.next().filter(|_| is_refused) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return page,
            }
        }
    }

    /// Begins to watch what changes after this resourceVersion. Each line is an event.
    async fn open(&self, version: &str) -> Result<impl AsyncBufRead + Unpin + use<K>, kube::Error> {
        let params = WatchParams {
            label_selector: self.params.label_selector.clone(),
            field_selector: self.params.field_selector.clone(),
            ..WatchParams::default().timeout(WATCH_SECONDS)
        };
        let request = Request::new(self.api.resource_url());
        let request = if K::metadata_api() {
            request.watch_metadata(&params, version)
        } else {
            request.watch(&params, version)
        };
        let request = request.map_err(kube::Error::BuildRequest)?;
        self.api.clone().into_client().request_stream(request).await
    }
}

/// `None` at the end of a watch, also of one that is silent for too long.
async fn next_line(lines: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    match tokio::time::timeout(LONGEST_SILENCE, lines.read_until(b'\n', &mut line)).await {
        Ok(read) => read.map(|_| line.ends_with(b"\n").then_some(line)),
        Err(_) => Ok(None),
    }
}

fn known(version: Option<String>) -> Result<String, BoxError> {
    let version = version.filter(|version| !version.is_empty());
    version.ok_or_else(|| "the API server's answer has no resourceVersion".into())
}

/// What of the watched objects is kept, and what a change leads to.
pub struct Projection<K, V> {
    watch: Watch<K>,
    project: Project<K, V>,
    unreadable: ProjectUnreadable<V>,
    cache: Arc<Cache<V>>,
    on_change: Box<dyn Fn(Change<V>) + Send + Sync>,
    awaited: bool,
    /// Cancelled when the watch is to end before the service does.
    end: Option<CancellationToken>,
}

type Project<K, V> = Box<dyn Fn(K) -> Option<V> + Send + Sync>;
type ProjectUnreadable<V> = Box<dyn Fn(&Unreadable) -> Option<V> + Send + Sync>;

impl<K: Watchable, V: Send + Sync + 'static> Projection<K, V> {
    /// Keeps the values in this cache.
    pub fn into_cache(mut self, cache: &Arc<Cache<V>>) -> Self {
        self.cache = cache.clone();
        self
    }

    /// Calls `on_change` for every change, and for every key that a list no longer has.
    pub fn on_change(mut self, on_change: impl Fn(Change<V>) + Send + Sync + 'static) -> Self {
        self.on_change = Box::new(on_change);
        self
    }

    /// Whether readiness waits for the first complete list; by default, it does. It must not for a watch that
    /// starts later than the others, or that only some objects need.
    pub fn awaited(mut self, awaited: bool) -> Self {
        self.awaited = awaited;
        self
    }

    /// What is kept of an object that can't be decoded. Without this, such an object is ignored, but for a
    /// metric and a line in the log.
    pub fn unreadable(mut self, project: impl Fn(&Unreadable) -> Option<V> + Send + Sync + 'static) -> Self {
        self.unreadable = Box::new(project);
        self
    }

    /// The watch ends when `end` is cancelled, not only with the service.
    pub fn until(mut self, end: &CancellationToken) -> Self {
        self.end = Some(end.clone());
        self
    }

    /// Watches until the end of `scope`, in a task of its own.
    pub fn spawn(self, scope: &Scope) {
        let (what, role) = (self.watch.what, self.watch.role);
        let namespace = self.watch.api.namespace();
        let namespace = namespace.map_or_else(String::new, |namespace| format!(" in namespace {namespace}"));
        let name = format!("{GATE}{what}{namespace}{}", role.place());
        let metrics = scope.process.metrics.watch(role.label(), what);
        let gate = self.awaited.then(|| scope.gates.gate(&name));
        let end = self.end.clone().unwrap_or_else(|| scope.shutdown.clone());
        let longest = match gate {
            Some(_) => LONGEST_PAUSE,
            None => LONGEST_PAUSE_OF_UNAWAITED,
        };
        let mut running = RunningWatch {
            definitions: scope.process.outdated_definitions.subscribe(),
            environment: scope.process.environment.clone(),
            longest_pause: longest,
            failures: 0,
            health: Health {
                gate,
                in_step: false,
                failing_since: None,
            },
            reported: HashMap::new(),
            texts: Texts::default(),
            ignored: Ignored {
                keys: BTreeSet::new(),
                count: metrics.ignored.clone(),
                what: self.watch.what,
                bounds: self.watch.bounds.clone(),
            },
            listed: None,
            last_error: None,
            metrics,
            cluster: role.label(),
            of: self,
        };
        scope.spawn_endless(name, &end, async move { running.follow().await });
    }
}

struct RunningWatch<K, V> {
    of: Projection<K, V>,
    cluster: &'static str,
    metrics: WatchMetrics,
    /// Objects that were listed under older definitions lack fields.
    definitions: watch::Receiver<Option<String>>,
    environment: Environment,
    longest_pause: Duration,
    /// Since a list that a watch has followed for longer than the longest pause.
    failures: u32,
    health: Health,
    /// resourceVersions of the objects that can't be decoded, as they were last reported, by key.
    reported: HashMap<String, String>,
    /// Where their sum is bounded.
    texts: Texts,
    ignored: Ignored,
    /// When the last list ended; `None` after a failure.
    listed: Option<Instant>,
    /// The failure that was last logged, until the watch works again.
    last_error: Option<String>,
}

/// Bytes of JSON of the objects that are kept, by key.
#[derive(Default)]
struct Texts {
    each: HashMap<String, usize>,
    sum: usize,
}

impl Texts {
    /// Returns whether there is room for this one.
    fn put(&mut self, key: &str, bytes: usize, most: usize) -> bool {
        let before = self.each.get(key).copied().unwrap_or_default();
        let sum = self.sum.saturating_sub(before).saturating_add(bytes);
        if sum > most {
            return false;
        }
        self.sum = sum;
        self.each.insert(key.to_owned(), bytes);
        true
    }

    fn remove(&mut self, key: &str) {
        let bytes = self.each.remove(key).unwrap_or_default();
        self.sum = self.sum.saturating_sub(bytes);
    }
}

/// Objects that found no room.
struct Ignored {
    /// Since the last list began.
    keys: BTreeSet<String>,
    /// How many all watches of this kind ignore.
    count: IntGauge,
    what: &'static str,
    bounds: Option<Bounds>,
}

impl Ignored {
    /// Of further ones not even the names are kept.
    fn add(&mut self, key: &str, most: usize) {
        if self.keys.len() < most && self.keys.insert(key.to_owned()) {
            self.count.inc();
        }
    }

    fn remove(&mut self, key: &str) {
        if self.keys.remove(key) {
            self.count.dec();
            self.report(None);
        }
    }

    fn clear(&mut self) {
        while self.keys.pop_last().is_some() {
            self.count.dec();
        }
    }

    /// Reports the problem, or takes it back (`None`) if no object is ignored.
    fn report(&self, problem: Option<String>) {
        if let Some(bounds) = self
            .bounds
            .as_ref()
            .filter(|_| problem.is_some() || self.keys.is_empty())
        {
            bounds.stands(Reason::TooLarge, self.what, problem);
        }
    }
}

impl Drop for Ignored {
    fn drop(&mut self) {
        self.clear();
        self.report(None);
    }
}

impl<K: Watchable, V: Send + Sync + 'static> RunningWatch<K, V> {
    async fn follow(&mut self) {
        loop {
            let began = Instant::now();
            if let Err(error) = self.list_and_watch().await {
                self.failed(&*error);
                let listed = self.listed.take();
                // A list alone is not a success: if no watch can follow it, everything would be listed again
                // each second.
                if listed.is_some_and(|at| at.elapsed() > self.longest_pause) {
                    self.failures = 0;
                }
                self.failures = self.failures.saturating_add(1);
                let is_bounded = self.of.watch.bounds.is_some();
                let longest = if is_bounded && listed.is_none() && began.elapsed() >= bounds::TIME_OF_LIST {
                    bounds::LONGEST_PAUSE
                } else {
                    self.longest_pause
                };
                let pause = self.environment.delay(self.failures, FIRST_PAUSE, longest);
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Lists everything and watches what changes from then on, until everything is to be listed again: after
    /// any error, because an API server that was away may come back with a restored store. It accepts a watch
    /// from a resourceVersion that it has not reached yet, and shows nothing.
    async fn list_and_watch(&mut self) -> Result<(), BoxError> {
        self.definitions.mark_unchanged();
        let mut definitions = self.definitions.clone();
        let mut version = tokio::select! {
            biased;
            Ok(()) = definitions.changed() => return Ok(()),
            // In a box, which goes before the watch.
            version = Box::pin(self.list_in_time()) => version?,
        };
        loop {
            tokio::time::sleep(PAUSE_OF_WATCHES).await;
            let mut lines = self.of.watch.open(&version).await?;
            loop {
                let list_again_at = self.list_again_at();
                let line = tokio::select! {
                    biased;
                    Ok(()) = definitions.changed() => return Ok(()),
                    () = tokio::time::sleep_until(list_again_at.unwrap_or_else(Instant::now)), if list_again_at.is_some() => {
                        // Until that list has ended.
                        self.listed = None;
                        self.failures = 0;
                        return Ok(());
                    }
                    line = next_line(&mut lines) => line?,
                };
                let Some(line) = line else {
                    break;
                };
                version = self.show(&line)?;
                if let Some(bounds) = self.of.watch.bounds.clone() {
                    bounds.event(self.of.watch.what).await;
                }
                tokio::task::consume_budget().await;
            }
        }
    }

    async fn list_in_time(&mut self) -> Result<String, BoxError> {
        if self.of.watch.bounds.is_none() {
            return self.list().await;
        }
        match tokio::time::timeout(bounds::TIME_OF_LIST, self.list()).await {
            Ok(version) => version,
            Err(_) => Err(self.too_slow().into()),
        }
    }

    /// Shows all objects, and returns the resourceVersion that a watch goes on from.
    async fn list(&mut self) -> Result<String, BoxError> {
        self.of.cache.list_begins();
        self.ignored.clear();
        let mut token = None;
        loop {
            let page = self.of.watch.page(token).await?;
            for object in page.items {
                self.exists(object);
                tokio::task::consume_budget().await;
            }
            token = page.metadata.continue_.filter(|token| !token.is_empty());
            if token.is_none() {
                let version = known(page.metadata.resource_version)?;
                self.list_ended();
                return Ok(version);
            }
        }
    }

    fn list_ended(&mut self) {
        let gone = self.of.cache.list_ended();
        gone.iter().for_each(|change| self.texts.remove(&change.key));
        self.ignored.report(None);
        gone.into_iter().for_each(&self.of.on_change);
        let (cluster, watch) = (self.cluster, self.of.watch.what);
        tracing::debug!(cluster, watch, objects = self.of.cache.len(), "in step");
        self.health.listed();
        if self.last_error.take().is_some() {
            tracing::info!(cluster, watch, "the watch works again");
        }
        self.listed = Some(Instant::now());
    }

    /// Shows what an event of the watch says, and returns its resourceVersion.
    fn show(&mut self, event: &[u8]) -> Result<String, BoxError> {
        let event: WatchEvent<Decoded<K>> = serde_json::from_slice(event).map_err(kube::Error::SerdeError)?;
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = known(object.meta().resource_version.clone())?;
                self.exists(object);
                Ok(version)
            }
            WatchEvent::Deleted(object) => {
                let version = known(object.meta().resource_version.clone())?;
                self.is_gone(&object);
                Ok(version)
            }
            WatchEvent::Bookmark(bookmark) => known(Some(bookmark.metadata.resource_version)),
            WatchEvent::Error(status) => Err(kube::Error::Api(status).into()),
        }
    }

    fn exists(&mut self, object: Decoded<K>) {
        let change = match self.read(object) {
            (key, version, bytes, Some(value)) => self.keep(&key, version, bytes, value),
            (key, version, _, None) => self.of.cache.gone(&key, &version),
        };
        change.into_iter().for_each(&self.of.on_change);
    }

    fn is_gone(&mut self, object: &Decoded<K>) {
        let key = key(object.meta());
        self.reported.remove(&key);
        self.ignored.remove(&key);
        self.texts.remove(&key);
        let change = self.of.cache.gone(&key, &Version::of(object.meta()));
        change.into_iter().for_each(&self.of.on_change);
    }

    fn keep(&mut self, key: &str, version: Version, bytes: usize, value: V) -> Option<Change<V>> {
        let (cache, most) = (self.of.cache.clone(), self.most());
        let is_known = cache.get(key).is_some();
        let has_room = is_known || cache.len() < most;
        if has_room && self.has_room_for(key, bytes) {
            self.ignored.remove(key);
            return cache.shown(key, version, value);
        }
        if self.ignored.keys.is_empty() {
            let most = match (has_room, &self.of.watch.bounds) {
                (true, Some(bounds)) => format!("{} KiB of JSON in", bounds.text() >> 10),
                _ => most.to_string(),
            };
            let problem = format!(
                "{}: this service keeps at most {most} objects of this kind and ignores the others; delete objects that you do not need. Most are in {}",
                self.of.watch.what,
                cache.largest_namespace().unwrap_or_default()
            );
            tracing::warn!(cluster = self.cluster, watch = self.of.watch.what, "{problem}");
            self.ignored.report(Some(problem));
        }
        let remembered = self.of.watch.bounds.as_ref().map_or(MAX_OBJECTS, |_| most);
        self.ignored.add(key, remembered);
        None
    }

    /// The largest number of objects that are kept.
    fn most(&self) -> usize {
        let Watch { most, bounds, .. } = &self.of.watch;
        bounds
            .as_ref()
            .map_or(*most, |bounds| bounds.objects().min(*most))
    }

    /// Whether the text of all objects is small enough with this one. Where it is bounded, it is counted.
    fn has_room_for(&mut self, key: &str, bytes: usize) -> bool {
        let Watch { bounds, has_text, .. } = &self.of.watch;
        let Some(bounds) = bounds.as_ref().filter(|_| *has_text) else {
            return true;
        };
        self.texts.put(key, bytes, bounds.text())
    }

    /// When to list everything again because there is room for objects that were ignored.
    fn list_again_at(&self) -> Option<Instant> {
        let has_room = !self.ignored.keys.is_empty() && self.of.cache.len() < self.most();
        self.listed
            .filter(|_| has_room)
            .map(|listed| listed + RELIST_INTERVAL)
    }

    fn read(&mut self, object: Decoded<K>) -> (String, Version, usize, Option<V>) {
        let (key, version) = (key(object.meta()), Version::of(object.meta()));
        let bytes;
        let value = match object {
            Decoded::Object(object, size) => {
                bytes = size;
                self.reported.remove(&key);
                (self.of.project)(object)
            }
            Decoded::Unreadable(unreadable) => {
                bytes = unreadable.bytes();
                self.report(&key, &unreadable);
                (self.of.unreadable)(&unreadable)
            }
        };
        (key, version, bytes, value)
    }

    /// Counts and logs it, once for each resourceVersion.
    fn report(&mut self, key: &str, unreadable: &Unreadable) {
        let version = unreadable.metadata.resource_version.clone().unwrap_or_default();
        let is_full = self.reported.len() >= self.most() && !self.reported.contains_key(key);
        if is_full || self.reported.get(key) == Some(&version) {
            return;
        }
        self.metrics.invalid.inc();
        tracing::warn!(
            cluster = self.cluster,
            watch = self.of.watch.what,
            object = key,
            "the object can't be read: {}",
            unreadable.problem
        );
        self.reported.insert(key.to_owned(), version);
    }

    /// A list that goes on and on.
    fn too_slow(&self) -> String {
        let (what, time) = (self.of.watch.what, bounds::TIME_OF_LIST);
        let problem = format!("the list of {what} has not ended within {time:?}");
        if let Some(bounds) = &self.of.watch.bounds {
            bounds.late(&problem);
        }
        problem
    }

    /// The same failure is logged once, until the watch works again.
    fn failed(&mut self, error: &(dyn Error + 'static)) {
        self.metrics.errors.inc();
        let (cluster, watch, text) = (self.cluster, self.of.watch.what, error::chain(error));
        if self.last_error.as_ref() == Some(&text) {
            tracing::debug!(cluster, watch, error = %text, "the watch has failed again");
        } else {
            tracing::warn!(cluster, watch, error = %text, "the watch has failed and is retried");
            self.last_error = Some(text);
        }
        self.of.cache.broke();
        self.health.failed(error, Instant::now());
    }
}

/// Keeps the gate of a watch true.
struct Health {
    gate: Option<Gate>,
    in_step: bool,
    /// When the first of the failures since the last list happened.
    failing_since: Option<Instant>,
}

impl Health {
    /// A list has ended, so that everything is known.
    fn listed(&mut self) {
        self.in_step = true;
        self.failing_since = None;
        if let Some(gate) = &self.gate {
            gate.open();
        }
    }

    /// A watch that stays broken closes its gate.
    fn failed(&mut self, error: &(dyn Error + 'static), now: Instant) {
        let since = *self.failing_since.get_or_insert(now);
        if let Some(gate) = &self.gate {
            if !self.in_step {
                gate.close(format!("not yet: {}", error::chain(error)));
            } else if now - since > MAX_FAULT {
                gate.close(format!("broken for more than a minute: {}", error::chain(error)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, stream};
    use http::{Request, Response};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Client;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;
    use crate::connection::tests::of_fleet;
    use crate::readiness::Readiness;
    use crate::scope::tests::process;

    fn error() -> io::Error {
        io::Error::other("away")
    }

    fn health(readiness: &Readiness) -> Health {
        Health {
            gate: Some(readiness.gate("watch")),
            in_step: false,
            failing_since: None,
        }
    }

    #[test]
    fn a_fault_that_lasts_closes_the_gate_until_there_is_a_list() {
        let (readiness, start) = (Readiness::default(), Instant::now());
        let mut health = health(&readiness);
        // Failures with a list in between are not one fault.
        for minutes in [0, 5, 10] {
            health.listed();
            health.failed(&error(), start + Duration::from_secs(60 * minutes));
            assert_eq!(readiness.waiting(), [""; 0]);
        }
        health.failed(&error(), start + Duration::from_secs(660));
        assert_eq!(readiness.waiting(), [""; 0]);
        health.failed(&error(), start + Duration::from_secs(661));
        assert!(readiness.waiting()[0].contains("more than a minute"));
        health.listed();
        assert_eq!(readiness.waiting(), [""; 0]);
    }

    #[test]
    fn a_watch_that_was_never_in_step_is_waited_for() {
        let readiness = Readiness::default();
        let mut health = health(&readiness);
        health.failed(&error(), Instant::now());
        assert!(readiness.waiting()[0].contains("not yet"));
        health.listed();
        assert_eq!(readiness.waiting(), [""; 0]);
    }

    /// What a server answers to a request.
    #[derive(Clone, Default)]
    struct Reply {
        text: String,
        /// There is nothing after the text.
        ends: bool,
        is_refused: bool,
    }

    fn whole(text: impl ToString) -> Reply {
        let (text, ends) = (text.to_string(), true);
        Reply {
            text,
            ends,
            ..Reply::default()
        }
    }

    fn refused() -> Reply {
        let ends = true;
        Reply {
            ends,
            is_refused: true,
            ..Reply::default()
        }
    }

    /// Watches the ConfigMaps of a server that replies so to one request after the other, and is silent then. Returns the queries of the requests, and the changes.
    async fn watch_for(
        time: Duration,
        replies: impl IntoIterator<Item = Reply>,
    ) -> (Vec<String>, Vec<String>) {
        let replies: Vec<Reply> = replies.into_iter().collect();
        let (queries, replies) = (
            Arc::<Mutex<Vec<String>>>::default(),
            Arc::new(Mutex::new(replies.into_iter())),
        );
        let asked = queries.clone();
        let server = tower::service_fn(move |request: Request<kube::client::Body>| {
            asked
                .lock()
                .push(request.uri().query().unwrap_or_default().to_owned());
            let Reply {
                text,
                ends,
                is_refused,
            } = replies.lock().next().unwrap_or_default();
            let frame = stream::iter([Ok::<_, BoxError>(Frame::data(bytes::Bytes::from(text)))]);
            let rest = if ends {
                stream::empty().left_stream()
            } else {
                stream::pending().right_stream()
            };
            let answer = Response::builder().status(if is_refused { 429 } else { 200 });
            async move { Ok::<_, BoxError>(answer.body(StreamBody::new(frame.chain(rest).boxed()))?) }
        });
        let (scope, client) = (process(), Client::new(server, "default"));
        let connection = Connection::by(&scope.process, [client.clone(), client]);
        let changes = Arc::<Mutex<Vec<String>>>::default();
        let seen = changes.clone();
        Watch::all(&connection, "maps")
            .project(|map: ConfigMap| map.metadata.resource_version)
            .on_change(move |change| {
                let new = change.new.as_deref().map_or("gone", String::as_str);
                seen.lock().push(format!("{} {new}", change.key));
            })
            .spawn(&scope);
        tokio::time::sleep(time).await;
        (queries.lock().clone(), changes.lock().clone())
    }

    fn map(name: &str, version: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "a", "resourceVersion": version}})
    }

    fn event(of: &str, object: &Value) -> String {
        format!("{}\n", json!({"type": of, "object": object}))
    }

    /// A page of a list. `more`: there are further ones.
    fn page(items: &[Value], version: &str, more: &str) -> Reply {
        whole(json!({"metadata": {"resourceVersion": version, "continue": more}, "items": items}))
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_watch_goes_on_from_where_it_ended_and_lists_again_after_an_error() {
        let bookmark = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": "7"}});
        let gone = json!({"kind": "Status", "status": "Failure", "code": 410, "message": "too old", "reason": "Expired"});
        let cut = event("ADDED", &map("cut", "9"));
        let replies = [
            page(&[map("a", "1")], "3", "next"),
            page(&[map("b", "2")], "3", ""),
            whole(event("ADDED", &map("c", "4")) + &event("DELETED", &map("a", "5"))),
            whole(event("BOOKMARK", &bookmark)),
            // What has no end of its line was not sent whole.
            whole(cut.trim_end()),
            whole(event("MODIFIED", &map("b", "8")) + &event("ERROR", &gone)),
            page(&[map("c", "4")], "11", ""),
        ];
        let (queries, changes) = watch_for(MINUTE, replies).await;
        assert_eq!(
            changes,
            [
                "a/a 1", "a/b 2", "a/c 4", "a/a gone", "a/b 8", "a/c 4", "a/b gone"
            ]
        );
        assert_eq!(
            asked(&queries),
            ["list", "list next", "3", "5", "7", "7", "list", "11"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_refused_is_asked_for_again_thrice() {
        let first = || page(&[], "1", "next");
        let again = [first(), refused(), refused(), refused(), page(&[], "1", "")];
        let next = ["list next"; 4];
        let (queries, _) = watch_for(MINUTE, again).await;
        assert_eq!(asked(&queries), [&["list"], &next[..], &["1"]].concat());
        let begins_again = [
            first(),
            refused(),
            refused(),
            refused(),
            refused(),
            page(&[], "2", ""),
        ];
        let (queries, _) = watch_for(MINUTE, begins_again).await;
        assert_eq!(asked(&queries), [&["list"], &next[..], &["list", "2"]].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_ends_each_watch_is_not_asked_all_the_time() {
        let ended = std::iter::repeat_n(whole(""), 10_000);
        let (queries, _) = watch_for(MINUTE, std::iter::once(page(&[], "1", "")).chain(ended)).await;
        assert!((500..=601).contains(&queries.len()), "{}", queries.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_whose_connection_hangs_is_begun_again() {
        let list = || [page(&[], "1", "")];
        assert_eq!(asked(&watch_for(LONGEST_SILENCE, list()).await.0), ["list", "1"]);
        let later = LONGEST_SILENCE + Duration::from_secs(1);
        assert_eq!(asked(&watch_for(later, list()).await.0), ["list", "1", "1"]);
    }

    /// What queries ask for: the resourceVersion of a watch, or the page of a list.
    fn asked(queries: &[String]) -> Vec<String> {
        let what = |query: &String| {
            let value = |of: &str| query.split('&').find_map(|pair| pair.strip_prefix(of));
            if query.contains("watch=true") {
                value("resourceVersion=").unwrap_or_default().to_owned()
            } else {
                format!("list {}", value("continue=").unwrap_or_default())
                    .trim_end()
                    .to_owned()
            }
        };
        queries.iter().map(what).collect()
    }

    /// A ConfigMap of a megabyte.
    fn large(number: u32, version: u32) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "a".repeat(1_000_000)},
            "metadata": {"name": format!("map-{number}"), "namespace": "a", "resourceVersion": version.to_string()}})
    }

    /// Seven of them. After a while, the first is deleted and the last one changed.
    async fn seven(request: Request<kube::client::Body>) -> Result<Response<AnswerOfSeven>, BoxError> {
        let is_watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let answer = stream::once(async move {
            if !is_watch {
                let items: Vec<Value> = (0..7).map(|number| large(number, 1)).collect();
                return json!({"metadata": {"resourceVersion": "1"}, "items": items}).to_string();
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            let deleted = json!({"type": "DELETED", "object": large(0, 2)});
            let modified = json!({"type": "MODIFIED", "object": large(6, 3)});
            format!("{deleted}\n{modified}\n")
        });
        let frames = answer.map(|text| Ok::<_, BoxError>(Frame::data(text.into_bytes().into())));
        let rest = if is_watch {
            stream::pending().left_stream()
        } else {
            stream::empty().right_stream()
        };
        Ok(Response::new(StreamBody::new(frames.chain(rest).boxed())))
    }

    type AnswerOfSeven = StreamBody<stream::BoxStream<'static, Result<Frame<bytes::Bytes>, BoxError>>>;

    #[tokio::test(start_paused = true)]
    async fn the_text_that_is_kept_of_a_user_cluster_of_a_fleet_has_a_bound() {
        let (scope, cache) = (process(), Arc::<Cache<()>>::default());
        let connection = of_fleet(&scope.process, Client::new(tower::service_fn(seven), "default"));
        Watch::all(&connection, "maps")
            .with_text()
            .project(|_: ConfigMap| Some(()))
            .into_cache(&cache)
            .spawn(&scope);
        scope.gates.opened(GATE).await;
        // 32 KiB for each of 200 pools.
        assert_eq!((cache.len(), cache.get("a/map-6")), (6, None));
        let (reason, message) = connection.bounds().unwrap().problem().unwrap();
        assert_eq!(reason, Reason::TooLarge);
        assert!(
            message.contains("at most 6400 KiB of JSON in objects"),
            "{message}"
        );
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(cache.get("a/map-0").is_none() && cache.get("a/map-6").is_some());
        assert_eq!(connection.bounds().unwrap().problem(), None);
    }
}
