//! Replicas of a service divide its keys. Each key belongs to one replica, and moves when a replica starts or ends.
//!
//! Each replica has a Lease in the namespace of the settings, renews it, and watches the Leases of the others. The set of live
//! Leases alone determines the owner of each key ([`membership`]); there is no leader. Leases do not fence: for a moment, two
//! replicas may work on one key. Every write carries the resourceVersion or uid of the object that it was decided from, so the
//! API server refuses the outdated one.
//!
//! - Among others, a replica renews its Lease every second. A Lease that has not changed for [`EXPIRY`] belongs to a dead replica.
//! - A single replica renews its Lease every five minutes. It renews at once when a second one starts, which so learns that it is
//!   not alone.
//! - A replica that could not renew in time (the API server was unavailable, or the process was stopped) must expect that others
//!   have taken over. It starts no reconcile until it has renewed its Lease.
//! - A replica that is not [fit](fitness) has another label on its Lease. It owns keys only while no fit replica lives.
//! - At shutdown, a replica deletes its Lease and the others take over at once. After a crash the Lease is left behind; any
//!   other replica deletes it after a quarter of an hour.

pub mod fitness;
pub mod membership;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Api;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use osm_api::names;
use osm_api::rbac::Service;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Change};
use crate::readiness::{LEASE, ProblemGate};
use crate::watch::Watch;
use crate::{Cluster, CommonArgs, Environment, error};

use self::fitness::Fitness;
use self::membership::{EXPIRY, Live, Membership};

/// Interval of renewals while there are other replicas.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of renewals by a single replica, for which no other waits.
const RENEWAL_INTERVAL_ALONE: Duration = Duration::from_secs(300);
/// Validity of the Lease of a single replica.
const EXPIRY_ALONE: Duration = Duration::from_secs(750);
/// Limit for a request about a Lease, so that there is time for another attempt.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of looking for Leases of dead replicas, and of counting the objects of this replica.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(15);
/// Delay after a failed renewal.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Name of this replica's Lease: after the pod, or else after the host with a random suffix.
pub fn name(service: Service, args: &CommonArgs, environment: &Environment) -> String {
    let replica = args.replica.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        format!(
            "{}-{}",
            host.trim(),
            osm_api::digest::hex(&environment.bytes::<4>())
        )
    });
    let replica = replica.to_ascii_lowercase();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '-' {
            c
        } else {
            '-'
        }
    };
    let name: String = format!("{}-{replica}", service.name())
        .chars()
        .map(plain)
        .take(names::MAX_NAME)
        .collect();
    name.trim_end_matches('-').to_owned()
}

/// The replicas of this service, as this one sees them. Cheap to clone.
#[derive(Clone)]
pub struct Replicas(Arc<Inner>);

struct Inner {
    own: String,
    lease: Mutex<LeaseState>,
    membership: Mutex<Membership>,
    lease_changed: Notify,
    /// This replica's Lease was renewed.
    renewed: Notify,
}

/// What this replica's Lease allows it to do.
#[derive(Clone, Debug)]
struct LeaseState {
    live: Live,
    /// Until when the Lease is valid; `None`: there is none yet.
    good_until: Option<Instant>,
}

impl LeaseState {
    fn is_good(&self) -> bool {
        self.good_until.is_some_and(|until| Instant::now() < until)
    }
}

impl Replicas {
    fn new(own: &str) -> Self {
        Self(Arc::new(Inner {
            own: own.to_owned(),
            lease: Mutex::new(LeaseState {
                live: Live::default(),
                good_until: None,
            }),
            membership: Mutex::new(Membership::new(own, Instant::now())),
            lease_changed: Notify::new(),
            renewed: Notify::new(),
        }))
    }

    /// A replica that needs no Lease, since there is never another one.
    #[cfg(test)]
    pub(crate) fn only() -> Self {
        Self::among("only", &[])
    }

    /// One replica while others live as well.
    #[cfg(test)]
    pub(crate) fn among(own: &str, others: &[&str]) -> Self {
        let replicas = Self::new(own);
        let live = others.iter().copied().chain([own]).collect();
        let good_until = Some(Instant::now() + Duration::from_secs(1_000_000));
        replicas.membership().set_fit(true);
        *replicas.0.lease.lock() = LeaseState { live, good_until };
        replicas
    }

    /// Returns once this replica's Lease is valid. Before that, others may work on its keys.
    pub async fn hold(&self) {
        loop {
            let renewed = self.0.renewed.notified();
            tokio::pin!(renewed);
            renewed.as_mut().enable();
            if self.0.lease.lock().is_good() {
                return;
            }
            renewed.await;
        }
    }

    /// Whether this replica owns the key.
    pub fn own(&self, key: &str) -> bool {
        self.is_ours(&self.0.lease.lock().live, key)
    }

    fn is_ours(&self, live: &Live, key: &str) -> bool {
        live.owner(key) == Some(self.0.own.as_str())
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.0.membership.lock()
    }

    /// Watches the Leases of all replicas of this service that serve `installation`.
    pub fn watch(cluster: &Cluster, installation: &str) -> Member {
        let process = &cluster.process;
        let replicas = Self::new(&name(process.service, &process.args, &process.environment));
        let service = process.service.name();
        let leases: Arc<Cache<SeenLease>> = Arc::default();
        let observer = replicas.clone();
        let changed = move |change: Change<SeenLease>| {
            let name = change
                .key
                .split_once('/')
                .map_or(change.key.as_str(), |(_, name)| name);
            let (mut membership, now) = (observer.membership(), Instant::now());
            match change.new {
                Some(lease) => membership.changed(name, lease.is_fit, now),
                None => membership.gone(name, now),
            }
            drop(membership);
            observer.0.lease_changed.notify_one();
        };
        let namespace = cluster.installation.namespace.as_str();
        Watch::namespaced(&cluster.management, namespace, "leases")
            .labels(&format!("{}={installation}", names::INSTALLATION))
            .project(move |lease: Lease| SeenLease::of(&lease.metadata, service))
            .into_cache(&leases)
            .on_change(changed)
            .spawn(cluster);
        let gate = ProblemGate::new(cluster.gates.gate(LEASE), cluster.management.role().label());
        Member {
            cluster: cluster.clone(),
            api: Api::namespaced(cluster.management.client.clone(), namespace),
            installation: installation.to_owned(),
            leases,
            replicas,
            fitness: Fitness::default(),
            held: None,
            clean_up_at: Instant::now() + CLEANUP_INTERVAL,
            gate,
        }
    }
}

/// A Lease of a replica of this service.
#[derive(Clone, Debug)]
struct SeenLease {
    fence: Fence,
    is_fit: bool,
}

impl SeenLease {
    /// `None`: it is another service's.
    fn of(meta: &ObjectMeta, service: &str) -> Option<Self> {
        let is = |label: &str| {
            let labels = meta.labels.as_ref();
            labels
                .and_then(|labels| labels.get(label))
                .is_some_and(|of| of == service)
        };
        let is_fit = is(names::REPLICA_OF);
        (is_fit || is(names::STANDBY_OF)).then(|| Self {
            fence: Fence::of(meta),
            is_fit,
        })
    }
}

/// The precondition of a write to a Lease.
#[derive(Clone, Debug)]
struct Fence {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Fence {
    fn of(meta: &ObjectMeta) -> Self {
        Self {
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
        }
    }

    fn delete(&self) -> DeleteParams {
        let Self {
            uid,
            resource_version,
        } = self.clone();
        DeleteParams::default().preconditions(Preconditions {
            uid,
            resource_version,
        })
    }
}

/// This replica, and its Lease.
pub struct Member {
    cluster: Cluster,
    api: Api<Lease>,
    installation: String,
    /// The Leases of all replicas, as the watch shows them.
    leases: Arc<Cache<SeenLease>>,
    replicas: Replicas,
    fitness: Fitness,
    /// This replica's Lease as it was last written.
    held: Option<Fence>,
    clean_up_at: Instant,
    gate: ProblemGate,
}

/// A replica that has joined the others.
pub struct Joined {
    task: JoinHandle<()>,
    leaving: CancellationToken,
}

impl Joined {
    /// Returns only if the task has ended unexpectedly, so that the Lease is no longer renewed.
    pub async fn panicked(&mut self) {
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the Lease is no longer renewed; please report this");
        }
    }

    /// Deletes the Lease, so that others take over at once.
    pub async fn leave(self) {
        self.leaving.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the Lease was not deleted");
        }
    }
}

/// Called with the replicas that were alive before and those that are now. Queues the keys that this replica has gained or lost,
/// and returns how many it owns.
pub type OnChange = Box<dyn Fn(&Replicas, &Live, &Live) -> usize + Send + Sync>;

impl Replicas {
    /// Whether this replica has gained or lost the key.
    pub fn moved(&self, key: &str, before: &Live, after: &Live) -> bool {
        self.is_ours(before, key) != self.is_ours(after, key)
    }
}

impl Member {
    pub fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// Joins the others, which leave this replica's keys to it at once. So every watch must be in step before.
    pub fn join(self, changed: OnChange) -> Joined {
        let leaving = CancellationToken::new();
        let task = tokio::spawn(self.take_part(changed, leaving.clone()));
        Joined { task, leaving }
    }

    async fn take_part(mut self, changed: OnChange, leaving: CancellationToken) {
        self.replicas.membership().trust(Instant::now());
        let mut renew_at = Instant::now();
        loop {
            let closed = self.cluster.gates.closed();
            let is_fit = self.fitness.judge(&closed, Instant::now());
            if self.replicas.membership().set_fit(is_fit) {
                self.report_fitness(is_fit, &closed);
                renew_at = Instant::now();
            }
            if Instant::now() >= renew_at {
                renew_at = self.renew(&changed).await;
            }
            self.clean_up(&changed).await;
            let lease_changed = self.replicas.0.lease_changed.notified();
            if self.judge(&changed) {
                // A new replica has to learn that this one is alive.
                renew_at = Instant::now();
                continue;
            }
            let due = self.replicas.membership().due(Instant::now());
            let next = [due, self.fitness.due(), Some(renew_at), Some(self.clean_up_at)]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(renew_at);
            tokio::select! {
                biased;
                () = leaving.cancelled() => break,
                () = lease_changed => {}
                () = self.cluster.gates.until(|now| *now != closed) => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
        self.give_back().await;
    }

    fn report_fitness(&self, is_fit: bool, closed: &[String]) {
        let own = &self.replicas.0.own;
        if is_fit {
            tracing::info!(own, "this replica is ready for its share of the work");
        } else {
            tracing::warn!(own, ?closed, "this replica is not ready, standing by");
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let is_fit = self.replicas.membership().is_fit();
        let role = if is_fit {
            names::REPLICA_OF
        } else {
            names::STANDBY_OF
        };
        BTreeMap::from([
            (names::INSTALLATION.to_owned(), self.installation.clone()),
            (role.to_owned(), self.cluster.process.service.name().to_owned()),
        ])
    }

    /// Renews the Lease; returns when to do it again.
    async fn renew(&mut self, changed: &OnChange) -> Instant {
        let sent = Instant::now();
        let alone = self.replicas.membership().judge(sent).len() == 1;
        let good = if alone { EXPIRY_ALONE } else { EXPIRY };
        let renewed = match tokio::time::timeout(WRITE_TIMEOUT, self.write(good)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error::chain(&error)),
            Err(_) => Err(format!("no answer within {WRITE_TIMEOUT:?}")),
        };
        let good_before = self.replicas.0.lease.lock().is_good();
        match renewed {
            Ok(()) => {
                if !good_before {
                    // Perhaps no replica has handled the events of the meantime.
                    self.replicas.membership().trust(Instant::now());
                    self.switch_to_live(&Live::default(), changed);
                }
                let again = {
                    let mut lease = self.replicas.0.lease.lock();
                    // Others may have come while it was being written.
                    let alone = lease.live.len() == 1;
                    lease.good_until = Some(sent + if alone { good } else { EXPIRY });
                    if alone {
                        RENEWAL_INTERVAL_ALONE
                    } else {
                        RENEWAL_INTERVAL
                    }
                };
                self.replicas.0.renewed.notify_waiters();
                self.gate.resolve();
                sent + again
            }
            Err(why) => {
                tracing::debug!(lease = self.replicas.0.own, why, "the Lease can't be renewed");
                if !good_before {
                    self.gate
                        .report(format!("{} can't be renewed: {why}", self.replicas.0.own));
                }
                Instant::now() + RETRY_DELAY
            }
        }
    }

    /// Writes the Lease, valid for this time.
    async fn write(&mut self, good: Duration) -> Result<(), kube::Error> {
        if let Some(held) = self.held.clone() {
            match self.put(Some(held), good).await {
                Err(error) if error::is_code(&error, 404) || error::is_code(&error, 409) => self.held = None,
                outcome => return outcome,
            }
        }
        let existing = self.find().await?;
        self.put(existing, good).await
    }

    /// This replica's Lease as the server has it. It may come from the previous process in the same pod, or from a renewal whose
    /// answer was lost.
    async fn find(&self) -> Result<Option<Fence>, kube::Error> {
        let named = ListParams::default().fields(&format!("metadata.name={}", self.replicas.0.own));
        Ok(self
            .api
            .list(&named)
            .await?
            .items
            .first()
            .map(|lease| Fence::of(&lease.metadata)))
    }

    /// The pod owns its Lease. Uninstalling a release removes the RBAC before the pod ends; the garbage collector then deletes the
    /// Lease.
    fn owner(&self) -> Option<Vec<OwnerReference>> {
        let args = &self.cluster.process.args;
        let (name, uid) = args.replica.clone().zip(args.pod_uid.clone())?;
        let of_pod = OwnerReference {
            api_version: "v1".into(),
            kind: "Pod".into(),
            name,
            uid,
            ..Default::default()
        };
        Some(vec![of_pod])
    }

    async fn put(&mut self, existing: Option<Fence>, good: Duration) -> Result<(), kube::Error> {
        let own = self.replicas.0.own.clone();
        let fence = existing.unwrap_or(Fence {
            uid: None,
            resource_version: None,
        });
        let creates = fence.uid.is_none();
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(own.clone()),
                labels: Some(self.labels()),
                uid: fence.uid.clone(),
                resource_version: fence.resource_version.clone(),
                owner_references: self.owner(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(own.clone()),
                lease_duration_seconds: i32::try_from(good.as_secs()).ok(),
                renew_time: Some(MicroTime(self.cluster.management.server_time.now())),
                ..LeaseSpec::default()
            }),
        };
        let written = if creates {
            self.api.create(&PostParams::default(), &lease).await?
        } else {
            self.api.replace(&own, &PostParams::default(), &lease).await?
        };
        self.held = Some(Fence::of(&written.metadata));
        Ok(())
    }

    /// Finds the live replicas and moves keys accordingly; returns whether there is a new replica.
    fn judge(&self, changed: &OnChange) -> bool {
        let LeaseState {
            live: before,
            good_until,
        } = self.replicas.0.lease.lock().clone();
        let now = Instant::now();
        let after = self.replicas.membership().judge(now).clone();
        if good_until.is_none() || after == before {
            return false;
        }
        self.switch_to_live(&before, changed);
        let has_newcomer = after
            .iter()
            .any(|replica| before.iter().all(|known| known != replica));
        if has_newcomer {
            // It takes this replica for dead unless the Lease is renewed soon.
            self.replicas.0.lease.lock().good_until = good_until.map(|until| until.min(now + EXPIRY));
        }
        has_newcomer
    }

    /// Divides the keys among the replicas that are alive now.
    fn switch_to_live(&self, before: &Live, changed: &OnChange) {
        let live = self.replicas.membership().judge(Instant::now()).clone();
        let known = std::mem::replace(&mut self.replicas.0.lease.lock().live, live.clone());
        let owned = self.count(changed(&self.replicas, before, &live));
        if known != live {
            let replicas = live.iter().collect::<Vec<_>>().join(", ");
            let standby = live.standby().collect::<Vec<_>>().join(", ");
            tracing::info!(
                replicas,
                standby,
                owned,
                own = self.replicas.0.own,
                "these replicas share the work"
            );
        }
    }

    fn count(&self, owned: usize) -> usize {
        let metrics = &self.cluster.process.metrics;
        let live = self.replicas.0.lease.lock().live.len();
        metrics.replicas.set(i64::try_from(live).unwrap_or(i64::MAX));
        metrics.owned.set(i64::try_from(owned).unwrap_or(i64::MAX));
        owned
    }

    async fn clean_up(&mut self, changed: &OnChange) {
        let now = Instant::now();
        if now < self.clean_up_at {
            return;
        }
        self.clean_up_at = now + CLEANUP_INTERVAL;
        let LeaseState { live, good_until } = self.replicas.0.lease.lock().clone();
        if good_until.is_none() {
            return;
        }
        // The replicas are the same, but there may be other objects.
        self.count(changed(&self.replicas, &live, &live));
        self.delete_dead_leases(now).await;
    }

    async fn delete_dead_leases(&self, now: Instant) {
        let forgotten = self.replicas.membership().forgotten(now);
        for name in forgotten {
            let key = format!("{}/{name}", self.cluster.installation.namespace.as_str());
            let Some(lease) = self.leases.get(&key) else {
                continue;
            };
            let deleted =
                tokio::time::timeout(WRITE_TIMEOUT, self.api.delete(&name, &lease.fence.delete())).await;
            if matches!(deleted, Ok(Ok(_))) {
                tracing::info!(
                    lease = name,
                    "deleted the Lease of a replica that no longer exists"
                );
            }
        }
    }

    async fn give_back(&mut self) {
        let lease = self.replicas.0.own.clone();
        match tokio::time::timeout(WRITE_TIMEOUT, self.delete()).await {
            Ok(Ok(())) => tracing::info!(lease, "deleted the Lease"),
            Ok(Err(error)) => {
                tracing::warn!(lease, error = error::brief(&error), "the Lease can't be deleted")
            }
            Err(_) => tracing::warn!(
                lease,
                "the Lease can't be deleted: no answer within {WRITE_TIMEOUT:?}"
            ),
        }
    }

    async fn delete(&self) -> Result<(), kube::Error> {
        let own = self.replicas.0.own.as_str();
        if let Some(held) = &self.held {
            match self.api.delete(own, &held.delete()).await {
                // A renewal whose answer was lost has changed it.
                Err(error) if error::conflict(&error) => {}
                outcome => return outcome.map(drop),
            }
        }
        let Some(existing) = self.find().await? else {
            return Ok(());
        };
        self.api.delete(own, &existing.delete()).await.map(drop)
    }
}
