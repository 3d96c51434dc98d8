//! An API server in memory, for models. A case runs in one thread, in tokio's paused time, and depends on its
//! seed alone.
//!
//! The server does what the services ask of a real one, in the same way:
//!
//! - lists and watches with selectors, resourceVersions, bookmarks, and 410 in the stream,
//! - writes with a resourceVersion, a uid and other preconditions,
//! - server-side apply of status by several managers,
//! - immutable Secrets, generations and namespaces,
//! - a restart with a restored etcd,
//! - bound tokens, and authorization by the Roles that exist.
//!
//! It answers everything else with 501, which makes a test fail: see [`Server::unsupported`].
//! `tests/it/memory.rs` sends the same requests to a real API server.
//!
//! It is not a general API server. Known differences: there are no kinds but those in `kinds`; schemas count
//! only once the definition of their kind is stored; the rules in CRDs are Rust code here; finalizers and
//! admission policies are stored, and do nothing; the authorizer knows of every write at once;
//! `managedFields` are kept, but not shown.
//!
//! [`serve`] offers it on a port, with what kubectl needs besides. It is for trying and measuring only.
//!
//! A [`Network`] lies between a client and the server. It decides how long each request takes, whether the
//! request or its answer is lost or refused, and whether the process that sent it dies right before or right
//! after the server handles it.

mod authorizer;
mod kinds;
mod patch;
mod request;
mod schema;
mod served;
mod state;
mod watch;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::client::ClientBuilder;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use self::authorizer::User;
pub use self::served::{serve, tls};
pub use self::state::{Admission, Backup, Failure, State};
pub use self::wire::{Call, Calm, Fault, Link, Network, Passage};

use crate::invariants::Change;

/// Called with each change in the instant in which it was made.
pub type OnChange = Box<dyn FnMut(&State, &Change) + Send>;

/// An API server; cheap to clone.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    on_change: Mutex<Option<OnChange>>,
    /// Wakes the watches of each kind, in the order in which they wait (a `tokio::sync::watch` would wake
    /// them in any).
    news: BTreeMap<&'static str, Notify>,
}

impl Server {
    /// A server as it comes, whose clock stands at `now` and goes with tokio's.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let mut state = State::new(Clock {
            at: now,
            since: Instant::now(),
        });
        for object in of_the_system() {
            // Nothing is there that could be in the way.
            let _ = state.create(object);
        }
        state.take_changes();
        let news = kinds::plurals().map(|plural| (plural, Notify::new())).collect();
        let inner = Inner {
            state: Mutex::new(state),
            on_change: Mutex::default(),
            news,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Subscribes to every later change.
    pub fn on_change(&self, told: impl FnMut(&State, &Change) + Send + 'static) {
        *self.inner.on_change.lock() = Some(Box::new(told));
    }

    /// A client for `user`, whose requests go over `link`. (Requests that carry a token are its owner's.)
    #[must_use]
    pub fn client(&self, user: User, link: &Link) -> Client {
        self.client_builder(user, link).build()
    }

    /// As [`Self::client`], for further layers.
    #[must_use]
    pub fn client_builder(&self, user: User, link: &Link) -> ClientBuilder<wire::Wire> {
        ClientBuilder::new(wire::Wire::new(self.clone(), user, link.clone()), "default")
    }

    /// A client that may do everything, without faults or delays.
    #[must_use]
    pub fn admin(&self) -> Client {
        self.client(User::Admin, &Link::default())
    }

    /// Creates objects, those that are not there yet.
    ///
    /// # Errors
    /// What the server says to one of them.
    pub fn load(&self, objects: &[Value]) -> Result<(), Failure> {
        let create = |object: &Value| match self.with(|state| state.create(object.clone())) {
            Err(failure) if failure.reason == "AlreadyExists" => Ok(()),
            result => result.map(drop),
        };
        objects.iter().try_for_each(create)
    }

    /// Reads or changes the state, and notifies watchers of changes.
    pub fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.inner.state.lock();
        let result = act(&mut state);
        let changes = state.take_changes();
        if !changes.is_empty() {
            if let Some(told) = self.inner.on_change.lock().as_mut() {
                changes.iter().for_each(|change| told(&state, change));
            }
            let kinds: BTreeSet<&str> = changes
                .iter()
                .filter_map(|change| kinds::of_object(&change.object))
                .collect();
            kinds
                .iter()
                .filter_map(|kind| self.inner.news.get(kind))
                .for_each(Notify::notify_waiters);
        }
        result
    }

    /// Is away for so long, and comes back with this backup: resourceVersions go back, and are given a second
    /// time.
    pub fn restore(&self, backup: Backup, away: Duration) {
        self.with(|state| state.restore(backup, away));
        self.inner.news.values().for_each(Notify::notify_waiters);
    }

    /// The time by the server's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.state.lock().now()
    }

    /// Requests that a real server might have understood.
    #[must_use]
    pub fn unsupported(&self) -> Vec<String> {
        self.inner.state.lock().unsupported().to_vec()
    }

    /// Tells of changes of this kind (plural).
    fn news(&self, kind: &str) -> Option<&Notify> {
        self.inner.news.get(kind)
    }
}

/// What every server has.
fn of_the_system() -> Vec<Value> {
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let role = |name: &str, resource: &str, verbs: &[&str]| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": [resource], "verbs": verbs}]})
    };
    let requests = "certificatesigningrequests";
    vec![
        namespace("default"),
        namespace("kube-system"),
        namespace("kube-public"),
        role(
            "system:node-bootstrapper",
            requests,
            &["create", "get", "list", "watch"],
        ),
    ]
}

/// A clock that goes with tokio's.
#[derive(Clone, Copy, Debug)]
struct Clock {
    at: Timestamp,
    since: Instant,
}

impl Clock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.since.elapsed()).unwrap_or(SignedDuration::MAX);
        self.at.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }
}
