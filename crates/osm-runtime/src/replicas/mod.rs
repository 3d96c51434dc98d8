//! Replicas of a service divide its keys. Each key belongs to one replica, and moves when a replica starts or
//! ends.
//!
//! Each replica has a Lease in the namespace of the settings, renews it, and watches the Leases of the
//! others. The set of live Leases alone determines the owner of each key ([`membership`]); there is no
//! leader. Leases do not fence: for a moment, two replicas may work on one key. Every write carries the
//! resourceVersion or uid of the object that it was decided from, so the API server refuses the outdated one.
//!
//! - A replica renews its Lease every few seconds. A Lease that has not changed for [`EXPIRY`] belongs to a
//!   dead replica.
//! - A replica that could not renew in time (the API server was unavailable, or the process was stopped) must
//!   expect that others have taken over. It starts no reconcile until it has renewed its Lease.
//! - A replica that is not fit has a label on its Lease. It owns keys only while no fit replica lives. It
//!   becomes fit when it is ready: before that, it may lack a right, the settings or newer
//!   CustomResourceDefinitions, and the replicas that it is to replace keep every key.
//! - At shutdown, a replica deletes its Lease and the others take over at once. After a crash the Lease is
//!   left behind until the pod, which owns it, is deleted.

pub mod membership;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use osm_api::names;
use osm_api::rbac::{Installation, Service};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::args::CommonArgs;
use crate::cache::{Cache, Change};
use crate::connection::Connection;
use crate::environment::Environment;
use crate::error;
use crate::readiness::{Gate, LEASE};
use crate::scope::Scope;
use crate::server_time::ServerTime;
use crate::watch::Watch;

use self::membership::{EXPIRY, Live, Membership};

/// Interval of renewals, like that of kubelets for the Leases of their nodes.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);
/// Limit for a request about a Lease. A slow API server must not end every Lease, and there is time for
/// another attempt.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a failed request about the Lease, short enough for many attempts before the Lease expires.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// At shutdown, the Lease is given up after this time even if reconciles still run, so that the other
/// replicas can take over.
const MAX_HANDOVER_DELAY: Duration = Duration::from_secs(2);

/// Name of this replica's Lease: after the pod, or else after the host with a random suffix.
pub fn name(service: Service, args: &CommonArgs, environment: &Environment) -> String {
    let replica = args.pod_name.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        format!(
            "{}-{}",
            host.trim(),
            osm_api::digest::hex(&environment.bytes::<4>())
        )
    });
    format!("{}-{}", service.name(), replica.to_ascii_lowercase())
}

/// The replicas of this service, as this one sees them. Cheap to clone.
#[derive(Clone)]
pub struct Replicas {
    inner: Arc<Inner>,
    /// What decides the owner in place of the key.
    whole: Option<Arc<str>>,
}

struct Inner {
    own: String,
    lease: watch::Sender<LeaseState>,
    /// Cancelled when this replica is to take part.
    joined: CancellationToken,
    /// Held by the one that waits for the Lease. A watch wakes all that wait in random order, but keys are
    /// worked on in the order of the queue.
    turn: tokio::sync::Mutex<()>,
    membership: Mutex<Membership>,
    lease_changed: Notify,
}

/// What this replica's Lease allows it to do.
#[derive(Clone, Debug, Default)]
pub struct LeaseState {
    live: Live,
    /// Until when the Lease is valid; `None`: there is none yet.
    good_until: Option<Instant>,
    /// How often it became valid. Meanwhile, no replica may have handled the events.
    terms: u64,
}

impl LeaseState {
    fn is_good(&self) -> bool {
        self.good_until.is_some_and(|until| Instant::now() < until)
    }
}

impl Replicas {
    /// The replica with a Lease of this name, which nobody watches or renews yet.
    pub fn new(own: &str) -> Self {
        let inner = Inner {
            own: own.to_owned(),
            lease: watch::Sender::default(),
            joined: CancellationToken::new(),
            turn: tokio::sync::Mutex::default(),
            membership: Mutex::new(Membership::new(own, Instant::now())),
            lease_changed: Notify::new(),
        };
        Self {
            inner: Arc::new(inner),
            whole: None,
        }
    }

    /// The same replicas, of which one owns all keys of a cluster.
    pub fn of_whole(&self, cluster: &str) -> Self {
        Self {
            inner: self.inner.clone(),
            whole: Some(cluster.into()),
        }
    }

    /// Returns once this replica's Lease is valid. Before that, others may work on its keys.
    pub async fn hold(&self) {
        let _turn = self.inner.turn.lock().await;
        // The sender lives as long as `self`, so that this can't fail.
        let _ = self.inner.lease.subscribe().wait_for(LeaseState::is_good).await;
    }

    /// Whether this replica owns the key.
    pub fn own(&self, key: &str) -> bool {
        self.owns(&self.inner.lease.borrow().live, key)
    }

    fn owns(&self, live: &Live, key: &str) -> bool {
        live.owner(self.whole.as_deref().unwrap_or(key)) == Some(self.inner.own.as_str())
    }

    /// Takes part in the work, now that this process knows what there is: the others leave this replica's
    /// share to it at once.
    pub fn join(&self) {
        self.inner.joined.cancel();
    }

    /// Shows each renewal of the Lease and each change of the replicas that are alive.
    pub fn subscribe(&self) -> watch::Receiver<LeaseState> {
        self.inner.lease.subscribe()
    }

    /// Whether this replica owns the key in the second state; and whether that is new since the first.
    pub fn moved(&self, [before, after]: [&LeaseState; 2], key: &str) -> (bool, bool) {
        let has = self.owns(&after.live, key);
        let had = before.terms == after.terms && self.owns(&before.live, key);
        (has, had != has)
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.inner.membership.lock()
    }

    /// Watches the Leases of all replicas of this service that serve `installation`. Once it [joins](Self::join),
    /// this replica renews its own.
    pub fn watch(scope: &Scope, management: &Connection, installation: &Installation) -> Member {
        let process = &scope.process;
        let replicas = Self::new(&name(process.service, &process.args, &process.environment));
        let service = process.service.name();
        let observer = replicas.clone();
        let seen = Arc::default();
        let namespace = installation.namespace.as_str();
        Watch::namespaced(management, namespace, "leases")
            .labels(&format!("{}={}", names::INSTALLATION, installation.id))
            .project(move |lease: Lease| {
                let is_fit = is_fit_replica(&lease.metadata, service)?;
                let has_pod = has_pod(&lease.metadata, service);
                let renewed = lease.spec.and_then(|spec| spec.renew_time);
                Some(SeenLease {
                    is_fit,
                    has_pod,
                    renewed,
                })
            })
            .into_cache(&seen)
            .on_change(move |change| observer.see(change))
            .spawn(scope);
        let own = OwnLease {
            scope: scope.clone(),
            api: Api::namespaced(management.client.clone(), namespace),
            clock: management.server_time.clone(),
            installation: installation.clone(),
            replicas: replicas.clone(),
            seen,
            gate: scope.gates.gate(LEASE),
        };
        let done = CancellationToken::new();
        let renewing = scope.spawn_until(LEASE, &scope.shutdown, own.take_part(done.clone()));
        Member {
            replicas,
            done,
            renewing,
        }
    }

    /// The watch shows a Lease. After each new list it shows even those that have not changed, perhaps
    /// because their replicas are dead.
    fn see(&self, change: Change<SeenLease>) {
        if change.old == change.new {
            return;
        }
        let name = change
            .key
            .split_once('/')
            .map_or(change.key.as_str(), |(_, name)| name);
        let (mut membership, now) = (self.membership(), Instant::now());
        match change.new {
            Some(lease) => membership.changed(name, lease.is_fit, now),
            None => membership.gone(name, now),
        }
        drop(membership);
        self.inner.lease_changed.notify_one();
    }
}

/// What counts of the Lease of a replica of this service.
#[derive(Debug, PartialEq)]
struct SeenLease {
    is_fit: bool,
    has_pod: bool,
    renewed: Option<MicroTime>,
}

/// Whether the replica of this service that has the Lease is fit; `None`: it is another service's.
fn is_fit_replica(lease: &ObjectMeta, service: &str) -> Option<bool> {
    let labels = lease.labels.as_ref()?;
    let is = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
    is(names::REPLICA_OF, service).then(|| is(names::STANDBY, "false"))
}

/// Whether the pod after which the Lease is named owns it, as that of each replica in a pod of this cluster.
/// The garbage collector deletes a Lease whose owner does not exist.
fn has_pod(lease: &ObjectMeta, service: &str) -> bool {
    let name = lease.name.as_deref().unwrap_or_default();
    let mut owners = lease.owner_references.iter().flatten();
    owners.any(|owner| owner.kind == "Pod" && name == format!("{service}-{}", owner.name))
}

/// How many of these replicas have no pod.
fn without_pod(seen: &Cache<SeenLease>, namespace: &str, live: &Live) -> usize {
    let is_without = |replica: &&str| {
        let lease = seen.get(&format!("{namespace}/{replica}"));
        lease.is_some_and(|lease| !lease.has_pod)
    };
    let replicas = [live.names(true), live.names(false)].into_iter().flatten();
    replicas.filter(is_without).count()
}

/// Whether a replica may own keys while other replicas live. `closed`: the names of the gates that are
/// closed. This replica's own Lease says nothing about what it can do.
fn is_fit(was_fit: bool, closed: &[String]) -> bool {
    was_fit || closed.iter().all(|gate| gate == LEASE)
}

/// This process as one of the replicas.
pub struct Member {
    replicas: Replicas,
    done: CancellationToken,
    renewing: JoinHandle<()>,
}

impl Member {
    pub fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// Leaves after the shutdown, when the last reconcile has ended, and returns once the Lease is deleted.
    pub async fn leave(self) {
        self.done.cancel();
        // It has reported a panic.
        let _ = self.renewing.await;
    }
}

/// This replica's Lease.
struct OwnLease {
    scope: Scope,
    api: Api<Lease>,
    clock: ServerTime,
    installation: Installation,
    replicas: Replicas,
    seen: Arc<Cache<SeenLease>>,
    gate: Gate,
}

impl OwnLease {
    /// Renews the Lease, and deletes it after the shutdown, so that others take over at once. `done` is
    /// cancelled when the last reconcile has ended.
    async fn take_part(self, done: CancellationToken) {
        tokio::select! {
            biased;
            () = self.scope.shutdown.cancelled() => return,
            () = self.replicas.inner.joined.cancelled() => {}
        }
        self.replicas.membership().trust(Instant::now());
        let mut renew_at = Instant::now();
        loop {
            let closed = self.scope.gates.closed();
            let was_fit = self.replicas.membership().is_fit();
            let is_fit = is_fit(was_fit, &closed);
            if self.replicas.membership().set_fit(is_fit) {
                tracing::info!(
                    own = self.replicas.inner.own,
                    "this replica is ready for its share of the work"
                );
                renew_at = Instant::now();
            }
            if Instant::now() >= renew_at {
                renew_at = self.renew().await;
            }
            let lease_changed = self.replicas.inner.lease_changed.notified();
            self.judge();
            let due = self.replicas.membership().due(Instant::now());
            let next = due.map_or(renew_at, |due| due.min(renew_at));
            tokio::select! {
                biased;
                () = self.scope.shutdown.cancelled() => break,
                () = lease_changed => {}
                () = self.scope.gates.until(|now| *now != closed) => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
        let _ = tokio::time::timeout(MAX_HANDOVER_DELAY, done.cancelled()).await;
        self.give_back().await;
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let is_standby = !self.replicas.membership().is_fit();
        BTreeMap::from([
            (names::INSTALLATION.to_owned(), self.installation.id.clone()),
            (
                names::REPLICA_OF.to_owned(),
                self.scope.process.service.name().to_owned(),
            ),
            (names::STANDBY.to_owned(), is_standby.to_string()),
        ])
    }

    /// Renews the Lease; returns when to do it again.
    async fn renew(&self) -> Instant {
        let sent = Instant::now();
        let renewed = in_time(self.write()).await;
        let good_before = self.replicas.inner.lease.borrow().is_good();
        match renewed {
            Ok(_) => {
                let lease = &self.replicas.inner.lease;
                let mut renewed = LeaseState {
                    good_until: Some(sent + EXPIRY),
                    ..lease.borrow().clone()
                };
                if !good_before {
                    let mut membership = self.replicas.membership();
                    membership.trust(Instant::now());
                    renewed.terms += 1;
                    renewed.live = membership.judge(Instant::now()).unwrap_or(renewed.live);
                }
                self.replace(renewed);
                self.gate.open();
                sent + RENEWAL_INTERVAL
            }
            Err(why) => {
                tracing::debug!(lease = self.replicas.inner.own, why, "the Lease can't be renewed");
                if !good_before {
                    self.gate
                        .report(format!("{} can't be renewed: {why}", self.replicas.inner.own));
                }
                Instant::now() + RETRY_DELAY
            }
        }
    }

    async fn write(&self) -> Result<Lease, kube::Error> {
        let own = &self.replicas.inner.own;
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(own.clone()),
                labels: Some(self.labels()),
                owner_references: self.owner(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(own.clone()),
                lease_duration_seconds: i32::try_from(EXPIRY.as_secs()).ok(),
                renew_time: Some(MicroTime(self.clock.now())),
                ..LeaseSpec::default()
            }),
        };
        let (create, change) = (PostParams::default(), PatchParams::default());
        match self.api.patch(own, &change, &Patch::Merge(&lease)).await {
            Err(error) if error::is_code(&error, 404) => self.api.create(&create, &lease).await,
            written => written,
        }
    }

    /// The pod owns its Lease. Uninstalling a release removes the RBAC before the pod ends; the garbage
    /// collector then deletes the Lease.
    fn owner(&self) -> Option<Vec<OwnerReference>> {
        let args = &self.scope.process.args;
        let (name, uid) = args.pod_name.clone().zip(args.pod_uid.clone())?;
        let of_pod = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name,
            uid,
            ..Default::default()
        };
        Some(vec![of_pod])
    }

    /// Finds the live replicas.
    fn judge(&self) {
        let known = self.replicas.inner.lease.borrow().clone();
        let judged = self.replicas.membership().judge(Instant::now());
        if known.good_until.is_some()
            && let Some(live) = judged
            && live != known.live
        {
            self.replace(LeaseState { live, ..known });
        }
    }

    /// Shows the state of the Lease to the controllers, and to people.
    fn replace(&self, state: LeaseState) {
        let live = state.live.clone();
        let before = self.replicas.inner.lease.send_replace(state);
        let metrics = &self.scope.process.metrics;
        metrics
            .replicas
            .set(i64::try_from(live.count()).unwrap_or(i64::MAX));
        // Where this one has no pod in this cluster, the others need none either.
        let without = match self.owner() {
            Some(_) => without_pod(&self.seen, &self.installation.namespace, &live),
            None => 0,
        };
        metrics
            .without_pod
            .set(i64::try_from(without).unwrap_or(i64::MAX));
        if before.live != live {
            tracing::info!(
                replicas = live.names(true).join(", "),
                standby = live.names(false).join(", "),
                own = self.replicas.inner.own,
                "these replicas share the work"
            );
        }
    }

    async fn give_back(&self) {
        let lease = &self.replicas.inner.own;
        let delete = async {
            match self.api.delete(lease, &DeleteParams::default()).await {
                Err(error) if !error::is_code(&error, 404) => Err(error),
                _ => Ok(()),
            }
        };
        match in_time(delete).await {
            Ok(()) => tracing::info!(lease, "deleted the Lease"),
            Err(why) => tracing::warn!(
                lease,
                why,
                "the Lease can't be deleted, and stays until it expires"
            ),
        }
    }
}

/// The answer to a request about a Lease, or why there is none.
async fn in_time<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, String> {
    match tokio::time::timeout(WRITE_TIMEOUT, request).await {
        Ok(answer) => answer.map_err(|error| error::brief(&error)),
        Err(_) => Err(format!("no answer within {WRITE_TIMEOUT:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Version;
    use crate::readiness::RIGHTS;
    use jiff::Timestamp;

    impl Replicas {
        /// A replica that needs no Lease, since there is never another one.
        pub(crate) fn only() -> Self {
            Self::among("only", &[])
        }

        /// One replica while others live as well.
        pub(crate) fn among(own: &str, others: &[&str]) -> Self {
            let replicas = Self::new(own);
            let live = others.iter().copied().chain([own]).collect();
            let good_until = Some(Instant::now() + Duration::from_secs(1_000_000));
            replicas.membership().set_fit(true);
            replicas.inner.lease.send_replace(LeaseState {
                live,
                good_until,
                terms: 1,
            });
            replicas
        }
    }

    #[test]
    fn a_replica_is_fit_once_it_was_ready() {
        let settings = "settings (ConfigMap n/s)";
        for (closed, of_new) in [
            (&["watch of secrets", LEASE][..], false),
            (&[settings], false),
            (&[RIGHTS, LEASE], false),
            (&[LEASE], true),
            (&[], true),
        ] {
            let names: Vec<String> = closed.iter().map(ToString::to_string).collect();
            assert_eq!(
                (is_fit(false, &names), is_fit(true, &names)),
                (of_new, true),
                "{closed:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_another_list_shows_unchanged_does_not_live_longer() {
        let replicas = Replicas::new("me");
        let lease = |second: i64| {
            Some(Arc::new(SeenLease {
                is_fit: true,
                has_pod: true,
                renewed: Some(MicroTime(Timestamp::from_second(second).unwrap())),
            }))
        };
        let see = |name: &str, [old, new]: [Option<Arc<SeenLease>>; 2]| {
            let key = format!("osm/{name}");
            replicas.see(Change { key, old, new });
        };
        see("dead", [None, lease(0)]);
        see("slow", [None, lease(0)]);
        tokio::time::advance(EXPIRY).await;
        see("me", [lease(0), lease(1)]);
        see("dead", [lease(0), lease(0)]);
        see("slow", [lease(0), lease(1)]);
        let live = replicas.membership().judge(Instant::now()).unwrap();
        assert_eq!(live.names(true), ["slow"]);
        assert_eq!(live.names(false), ["me"]);
    }

    #[test]
    fn a_lease_that_no_pod_of_its_name_owns_is_counted_while_it_lives() {
        let owned = |kind: &str, name: &str| {
            let owner = OwnerReference {
                kind: kind.to_owned(),
                name: name.to_owned(),
                ..OwnerReference::default()
            };
            Some(vec![owner])
        };
        let seen = Cache::default();
        let mut leases = Vec::new();
        for (name, owner_references) in [
            ("secret-syncer-a", owned("Pod", "a")),
            ("secret-syncer-ghost", None),
            ("secret-syncer-other", owned("Pod", "a")),
            ("secret-syncer-node", owned("Node", "node")),
            ("secret-syncer-dead", None),
        ] {
            let meta = ObjectMeta {
                name: Some(name.to_owned()),
                owner_references,
                ..ObjectMeta::default()
            };
            let lease = SeenLease {
                is_fit: true,
                has_pod: has_pod(&meta, "secret-syncer"),
                renewed: None,
            };
            drop(seen.wrote(&format!("osm/{name}"), Version::of(&meta), lease));
            leases.push(name);
        }
        let live: Live = leases.iter().copied().take(4).collect();
        assert_eq!(without_pod(&seen, "osm", &live), 3);
    }
}
