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
//! - A replica that is not fit has another label on its Lease. It owns keys only while no fit replica lives. It becomes fit when it is ready: before
//!   that, it may lack a right, the settings or newer CustomResourceDefinitions, and the replicas that it is to replace keep every key. It stays fit
//!   until it is known to be unable to work.
//! - At shutdown, a replica deletes its Lease and the others take over at once. After a crash the Lease is left behind until the pod, which owns it,
//!   is deleted.

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
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::Change;
use crate::readiness::{LEASE, ProblemGate, is_vital};
use crate::watch::Watch;
use crate::{Cluster, CommonArgs, Environment, error};

use self::membership::{EXPIRY, Live, Membership};

/// Interval of renewals while there are other replicas.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of renewals by a single replica, for which no other waits.
const RENEWAL_INTERVAL_ALONE: Duration = Duration::from_secs(300);
/// Validity of the Lease of a single replica.
const EXPIRY_ALONE: Duration = Duration::from_secs(750);
/// Limit for a request about a Lease, so that there is time for another attempt.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of counting the objects of this replica.
const COUNT_INTERVAL: Duration = Duration::from_secs(15);
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
    lease: watch::Sender<LeaseState>,
    /// Held by the one that waits for the Lease. A watch wakes all that wait in random order, but keys are worked on in the order of the queue.
    turn: tokio::sync::Mutex<()>,
    membership: Mutex<Membership>,
    lease_changed: Notify,
}

/// What this replica's Lease allows it to do.
#[derive(Clone, Debug, Default)]
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
            lease: watch::Sender::default(),
            turn: tokio::sync::Mutex::default(),
            membership: Mutex::new(Membership::new(own, Instant::now())),
            lease_changed: Notify::new(),
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
        replicas.0.lease.send_replace(LeaseState { live, good_until });
        replicas
    }

    /// Returns once this replica's Lease is valid. Before that, others may work on its keys.
    pub async fn hold(&self) {
        let _turn = self.0.turn.lock().await;
        // The sender lives as long as `self`, so that this can't fail.
        let _ = self.0.lease.subscribe().wait_for(LeaseState::is_good).await;
    }

    /// Whether this replica owns the key.
    pub fn own(&self, key: &str) -> bool {
        self.is_ours(&self.0.lease.borrow().live, key)
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
        let observer = replicas.clone();
        let namespace = cluster.installation.namespace.as_str();
        Watch::namespaced(&cluster.management, namespace, "leases")
            .labels(&format!("{}={installation}", names::INSTALLATION))
            .project(move |lease: Lease| {
                let is_fit = is_fit_replica(&lease.metadata, service)?;
                let renewed = lease.spec.and_then(|spec| spec.renew_time);
                Some(SeenLease { is_fit, renewed })
            })
            .on_change(move |change| observer.see(change))
            .spawn(cluster);
        let gate = ProblemGate::new(cluster.gates.gate(LEASE), cluster.management.role().label());
        Member {
            cluster: cluster.clone(),
            api: Api::namespaced(cluster.management.client.clone(), namespace),
            installation: installation.to_owned(),
            replicas,
            held: None,
            count_at: Instant::now() + COUNT_INTERVAL,
            gate,
        }
    }

    /// The watch shows a Lease. After each new list it shows even those that have not changed, perhaps because their replicas are dead.
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
        self.0.lease_changed.notify_one();
    }
}

/// What counts of the Lease of a replica of this service.
#[derive(Debug, PartialEq)]
struct SeenLease {
    is_fit: bool,
    renewed: Option<MicroTime>,
}

/// Whether the replica of this service that has the Lease is fit; `None`: it is another service's.
fn is_fit_replica(lease: &ObjectMeta, service: &str) -> Option<bool> {
    let labels = lease.labels.as_ref()?;
    let is = |label: &str| labels.get(label).is_some_and(|of| of == service);
    let is_fit = is(names::REPLICA_OF);
    (is_fit || is(names::STANDBY_OF)).then_some(is_fit)
}

/// The precondition of a write to a Lease.
fn version(meta: &ObjectMeta) -> Preconditions {
    Preconditions {
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
    }
}

/// Whether a replica may own keys while other replicas live. `closed`: the names of the gates that are closed.
fn is_fit(was_fit: bool, closed: &[String]) -> bool {
    match was_fit {
        true => !closed.iter().any(|gate| is_vital(gate)),
        // This replica's own Lease says nothing about what it can do.
        false => closed.iter().all(|gate| gate == LEASE),
    }
}

/// This replica, and its Lease.
pub struct Member {
    cluster: Cluster,
    api: Api<Lease>,
    installation: String,
    replicas: Replicas,
    /// This replica's Lease as it was last written.
    held: Option<Preconditions>,
    count_at: Instant,
    gate: ProblemGate,
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

    /// Joins the others, which leave this replica's keys to it at once. So every watch must be in step before. Deletes the Lease when `leaving` is
    /// cancelled, so that others take over at once.
    pub async fn take_part(mut self, changed: OnChange, leaving: CancellationToken) {
        self.replicas.membership().trust(Instant::now());
        let mut renew_at = Instant::now();
        loop {
            let closed = self.cluster.gates.closed();
            let was_fit = self.replicas.membership().is_fit();
            let is_fit = is_fit(was_fit, &closed);
            if self.replicas.membership().set_fit(is_fit) {
                self.report_fitness(is_fit, &closed);
                renew_at = Instant::now();
            }
            if Instant::now() >= renew_at {
                renew_at = self.renew(&changed).await;
            }
            self.count_now_and_then(&changed);
            let lease_changed = self.replicas.0.lease_changed.notified();
            if self.judge(&changed) {
                // A new replica has to learn that this one is alive.
                renew_at = Instant::now();
                continue;
            }
            let due = self.replicas.membership().due(Instant::now());
            let next = renew_at.min(self.count_at);
            let next = due.map_or(next, |due| due.min(next));
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
        let good_before = self.replicas.0.lease.borrow().is_good();
        match renewed {
            Ok(()) => {
                if !good_before {
                    // Perhaps no replica has handled the events of the meantime.
                    self.replicas.membership().trust(Instant::now());
                    self.switch_to_live(&Live::default(), changed);
                }
                let mut again = RENEWAL_INTERVAL;
                self.replicas.0.lease.send_modify(|lease| {
                    // Others may have come while it was being written.
                    let alone = lease.live.len() == 1;
                    lease.good_until = Some(sent + if alone { good } else { EXPIRY });
                    if alone {
                        again = RENEWAL_INTERVAL_ALONE;
                    }
                });
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
    async fn find(&self) -> Result<Option<Preconditions>, kube::Error> {
        let named = ListParams::default().fields(&format!("metadata.name={}", self.replicas.0.own));
        let found = self.api.list(&named).await?;
        Ok(found.items.first().map(|lease| version(&lease.metadata)))
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

    async fn put(&mut self, existing: Option<Preconditions>, good: Duration) -> Result<(), kube::Error> {
        let own = self.replicas.0.own.clone();
        let creates = existing.is_none();
        let Preconditions {
            uid,
            resource_version,
        } = existing.unwrap_or_default();
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(own.clone()),
                labels: Some(self.labels()),
                uid,
                resource_version,
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
        self.held = Some(version(&written.metadata));
        Ok(())
    }

    /// Finds the live replicas and moves keys accordingly; returns whether there is a new replica.
    fn judge(&self, changed: &OnChange) -> bool {
        let LeaseState {
            live: before,
            good_until,
        } = self.replicas.0.lease.borrow().clone();
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
            let sooner = good_until.map(|until| until.min(now + EXPIRY));
            self.replicas
                .0
                .lease
                .send_modify(|lease| lease.good_until = sooner);
        }
        has_newcomer
    }

    /// Divides the keys among the replicas that are alive now.
    fn switch_to_live(&self, before: &Live, changed: &OnChange) {
        let live = self.replicas.membership().judge(Instant::now()).clone();
        let mut known = live.clone();
        self.replicas
            .0
            .lease
            .send_modify(|lease| std::mem::swap(&mut lease.live, &mut known));
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
        let live = self.replicas.0.lease.borrow().live.len();
        metrics.replicas.set(i64::try_from(live).unwrap_or(i64::MAX));
        metrics.owned.set(i64::try_from(owned).unwrap_or(i64::MAX));
        owned
    }

    fn count_now_and_then(&mut self, changed: &OnChange) {
        let now = Instant::now();
        if now < self.count_at {
            return;
        }
        self.count_at = now + COUNT_INTERVAL;
        let LeaseState { live, good_until } = self.replicas.0.lease.borrow().clone();
        if good_until.is_some() {
            // The replicas are the same, but there may be other objects.
            self.count(changed(&self.replicas, &live, &live));
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
        // A renewal whose answer was lost may have changed it.
        match self.find().await? {
            Some(existing) => {
                let only = DeleteParams::default().preconditions(existing);
                self.api.delete(&self.replicas.0.own, &only).await
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::CREDENTIALS;
    use jiff::Timestamp;

    #[test]
    fn fit_once_ready_and_unfit_only_if_unable() {
        let settings = "settings (ConfigMap n/s)";
        for (closed, of_new, of_fit) in [
            (&["watch of secrets", LEASE][..], false, true),
            (&[settings], false, true),
            (&[CREDENTIALS, LEASE], false, false),
            (&[LEASE], true, true),
            (&[], true, true),
        ] {
            let names: Vec<String> = closed.iter().map(ToString::to_string).collect();
            assert_eq!(
                (is_fit(false, &names), is_fit(true, &names)),
                (of_new, of_fit),
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
        let live = replicas.membership().judge(Instant::now()).clone();
        assert_eq!((live.contains("dead"), live.contains("slow")), (false, true));
    }
}
