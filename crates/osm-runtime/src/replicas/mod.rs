//! Replicas of a service share its work: each key belongs to one of them, and moves when one comes or goes.
//!
//! Each replica has a Lease of its own in the installation's namespace, renews it, and watches those of the others; who lives and
//! whose a key is follows from that alone ([`membership`]), with nobody in charge. Leases do not fence. For a moment two replicas may
//! work on one key, or one go on that was taken for dead; every write carries the resourceVersion or uid of what it was decided
//! from, so that the API server refuses the stale one.
//!
//! - With others, a Lease is renewed each second, and one that has not changed for [`EXPIRY`] is a dead replica's. Who is alone
//!   renews every five minutes, and at once when somebody new is there, who so learns that it is not alone.
//! - Who could not renew its own Lease in time (the API server was away, or the process was stopped) must expect that others have
//!   taken over, and begins nothing until it has renewed it.
//! - At its end a replica deletes its Lease, and the others take over at once. Leases of those that had no such end are deleted by
//!   whoever sees that they have been dead for a quarter of an hour.

pub mod membership;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use osm_api::names;
use osm_api::rbac::Service;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::{Cache, Change};
use crate::readiness::Gate;
use crate::{CommonArgs, Context, Surroundings, request, status};

use self::membership::{EXPIRY, Live, Membership};

/// How often a Lease is renewed while there are others.
const RENEWAL: Duration = Duration::from_secs(1);
/// How often by who is alone: nobody waits for it.
const RENEWAL_ALONE: Duration = Duration::from_secs(300);
/// How long the Lease of who is alone is good.
const GOOD_ALONE: Duration = Duration::from_secs(750);
/// A renewal that takes longer is given up, so that there is time for another one.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often it is looked for Leases that nobody will renew, and counted how many objects are ours.
const TIDY: Duration = Duration::from_secs(15);
/// A renewal that has failed is tried again after this.
const RETRY: Duration = Duration::from_millis(500);

/// Which replica this is, for the name of its Lease: the pod's name, else the host's with something random.
pub fn name(service: Service, args: &CommonArgs, surroundings: &Surroundings) -> String {
    let replica = args.replica.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        format!("{}-{}", host.trim(), osm_api::digest::hex(&surroundings.bytes::<4>()))
    });
    let replica = replica.to_ascii_lowercase();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' };
    let name: String =
        format!("{}-{replica}", service.name()).chars().map(plain).take(names::MAX_NAME).collect();
    name.trim_end_matches('-').to_owned()
}

/// The replicas of this service, as this one sees them; cheap to clone.
#[derive(Clone)]
pub struct Replicas(Arc<Inner>);

struct Inner {
    own: String,
    standing: Mutex<Standing>,
    membership: Mutex<Membership>,
    /// A Lease has changed.
    news: Notify,
    /// Our own was renewed.
    renewed: Notify,
}

/// What this replica may do.
#[derive(Clone, Debug)]
struct Standing {
    live: Live,
    /// Until when our own Lease is good; `None`: there is none yet.
    good_until: Option<Instant>,
}

impl Standing {
    fn is_good(&self) -> bool {
        self.good_until.is_some_and(|until| Instant::now() < until)
    }
}

impl Replicas {
    fn new(own: &str) -> Self {
        Self(Arc::new(Inner {
            own: own.to_owned(),
            standing: Mutex::new(Standing { live: Live::default(), good_until: None }),
            membership: Mutex::new(Membership::new(own, Instant::now())),
            news: Notify::new(),
            renewed: Notify::new(),
        }))
    }

    /// A replica that needs no Lease, since it is the only one for ever.
    #[cfg(test)]
    pub(crate) fn only() -> Self {
        let only = Self::new("only");
        let live = std::iter::once("only").collect();
        let good_until = Some(Instant::now() + Duration::from_secs(1_000_000));
        *lock(&only.0.standing) = Standing { live, good_until };
        only
    }

    /// Returns once our own Lease is good. Before, others may be at work on what is ours.
    pub async fn hold(&self) {
        loop {
            let renewed = self.0.renewed.notified();
            tokio::pin!(renewed);
            renewed.as_mut().enable();
            if lock(&self.0.standing).is_good() {
                return;
            }
            renewed.await;
        }
    }

    /// Whether this key is ours.
    pub fn own(&self, key: &str) -> bool {
        self.is_ours(&lock(&self.0.standing).live, key)
    }

    fn is_ours(&self, live: &Live, key: &str) -> bool {
        live.owner(key) == Some(self.0.own.as_str())
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        lock(&self.0.membership)
    }

    /// Watches the Leases of all replicas of `context`'s service that serve `installation`; in step when the other watches are.
    pub fn watch(context: &Context, installation: &str) -> Member {
        let replicas = Self::new(&name(context.service, &context.args, &context.surroundings));
        let labels = BTreeMap::from([
            (names::INSTALLATION.to_owned(), installation.to_owned()),
            (names::REPLICA_OF.to_owned(), context.service.name().to_owned()),
        ]);
        let selector: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let (client, namespace) = (context.management.client.clone(), context.args.namespace.as_str());
        let api: Api<DeserializeGuard<Lease>> = Api::namespaced(client.clone(), namespace);
        let leases: Arc<Cache<Fence>> = Arc::default();
        let told = replicas.clone();
        let changed = move |change: Change<Fence>| {
            let name = change.key.split_once('/').map_or(change.key.as_str(), |(_, name)| name);
            let (mut membership, now) = (told.membership(), Instant::now());
            match change.new {
                Some(_) => membership.changed(name, now),
                None => membership.gone(name, now),
            }
            drop(membership);
            told.0.news.notify_one();
        };
        let (watched, config) =
            (context.management.watched("leases"), watcher::Config::default().labels(&selector.join(",")));
        let project = |lease: Lease| Some(Fence::of(&lease.metadata));
        crate::watch::spawn(context, watched, api, config, leases.clone(), project, changed);
        let gate = context.readiness.gate("Lease");
        Member {
            context: context.clone(),
            api: Api::namespaced(client, namespace),
            labels,
            leases,
            replicas,
            held: None,
            tidy_at: Instant::now() + TIDY,
            gate,
        }
    }
}

/// Which state of a Lease a write is about.
#[derive(Clone, Debug)]
struct Fence {
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Fence {
    fn of(meta: &ObjectMeta) -> Self {
        Self { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() }
    }

    fn delete(&self) -> DeleteParams {
        let Self { uid, resource_version } = self.clone();
        DeleteParams::default().preconditions(Preconditions { uid, resource_version })
    }
}

/// This replica, and its Lease.
pub struct Member {
    context: Context,
    api: Api<Lease>,
    labels: BTreeMap<String, String>,
    /// Leases of all, as the watch shows them.
    leases: Arc<Cache<Fence>>,
    replicas: Replicas,
    /// Our own Lease as we last wrote it.
    held: Option<Fence>,
    tidy_at: Instant,
    gate: Gate,
}

/// A replica that has joined the others.
pub struct Joined {
    task: JoinHandle<()>,
    leaving: CancellationToken,
}

impl Joined {
    /// Returns only if something has gone wrong: nobody renews the Lease any more.
    pub async fn broke_off(&mut self) {
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "nobody renews the Lease any more; please report this");
        }
    }

    /// Gives the Lease back, so that others take over at once.
    pub async fn leave(self) {
        self.leaving.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the Lease was not given back");
        }
    }
}

/// Told who lived and who lives; wakes the keys that have come to us or gone from us, and returns how many are ours.
pub type OnChange = Box<dyn Fn(&Replicas, &Live, &Live) -> usize + Send + Sync>;

impl Replicas {
    /// Whether a key has come to us, or gone.
    pub fn moved(&self, key: &str, before: &Live, after: &Live) -> bool {
        self.is_ours(before, key) != self.is_ours(after, key)
    }
}

impl Member {
    /// The replicas, of which this is one.
    pub fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    /// Takes part from now on. To be called when the watches are in step: others leave its keys to this replica at once.
    pub fn join(self, changed: OnChange) -> Joined {
        let leaving = CancellationToken::new();
        let task = tokio::spawn(self.take_part(changed, leaving.clone()));
        Joined { task, leaving }
    }

    async fn take_part(mut self, changed: OnChange, leaving: CancellationToken) {
        self.replicas.membership().trust(Instant::now());
        let mut renew_at = Instant::now();
        loop {
            if Instant::now() >= renew_at {
                renew_at = self.renew(&changed).await;
            }
            self.tidy(&changed).await;
            let news = self.replicas.0.news.notified();
            if self.judge(&changed) {
                // Who is new has to learn that we live.
                renew_at = Instant::now();
                continue;
            }
            let due = self.replicas.membership().due(Instant::now());
            let next =
                [due, Some(renew_at), Some(self.tidy_at)].into_iter().flatten().min().unwrap_or(renew_at);
            tokio::select! {
                biased;
                () = leaving.cancelled() => break,
                () = news => {}
                () = tokio::time::sleep_until(next) => {}
            }
        }
        self.give_back().await;
    }

    /// Renews our Lease; returns when to do it again.
    async fn renew(&mut self, changed: &OnChange) -> Instant {
        let sent = Instant::now();
        let alone = self.replicas.membership().judge(sent).len() == 1;
        let good = if alone { GOOD_ALONE } else { EXPIRY };
        let renewed = match tokio::time::timeout(TIMEOUT, self.write(good)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(request::chain(&error)),
            Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
        };
        let good_before = lock(&self.replicas.0.standing).is_good();
        match renewed {
            Ok(()) => {
                if !good_before {
                    // What came in the meantime was perhaps done by nobody.
                    self.replicas.membership().trust(Instant::now());
                    self.stand(&Live::default(), changed);
                }
                let again = {
                    let mut standing = lock(&self.replicas.0.standing);
                    // Others may have come while it was being written.
                    let alone = standing.live.len() == 1;
                    standing.good_until = Some(sent + if alone { good } else { EXPIRY });
                    if alone { RENEWAL_ALONE } else { RENEWAL }
                };
                self.replicas.0.renewed.notify_waiters();
                self.gate.open();
                sent + again
            }
            Err(why) => {
                tracing::debug!(lease = self.replicas.0.own, why, "can't be renewed");
                if !good_before {
                    self.gate.close(format!("{} can't be renewed: {why}", self.replicas.0.own));
                }
                Instant::now() + RETRY
            }
        }
    }

    /// Writes our Lease, good for so long.
    async fn write(&mut self, good: Duration) -> Result<(), kube::Error> {
        if let Some(held) = self.held.clone() {
            match self.put(Some(held), good).await {
                Err(error) if status::is_code(&error, 404) || status::is_code(&error, 409) => {
                    self.held = None
                }
                outcome => return outcome,
            }
        }
        let standing = self.find().await?;
        self.put(standing, good).await
    }

    /// Our Lease as it stands: that of the process before this one in the same pod, or of a renewal whose answer was lost.
    async fn find(&self) -> Result<Option<Fence>, kube::Error> {
        let named = ListParams::default().fields(&format!("metadata.name={}", self.replicas.0.own));
        Ok(self.api.list(&named).await?.items.first().map(|lease| Fence::of(&lease.metadata)))
    }

    /// Our pod: what takes our rights away before we end, as uninstalling a release does, leaves the Lease to the garbage collector.
    fn owner(&self) -> Option<Vec<OwnerReference>> {
        let args = &self.context.args;
        let (name, uid) = args.replica.clone().zip(args.pod_uid.clone())?;
        let of_pod =
            OwnerReference { api_version: "v1".into(), kind: "Pod".into(), name, uid, ..Default::default() };
        Some(vec![of_pod])
    }

    async fn put(&mut self, standing: Option<Fence>, good: Duration) -> Result<(), kube::Error> {
        let own = self.replicas.0.own.clone();
        let fence = standing.unwrap_or(Fence { uid: None, resource_version: None });
        let creates = fence.uid.is_none();
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(own.clone()),
                labels: Some(self.labels.clone()),
                uid: fence.uid.clone(),
                resource_version: fence.resource_version.clone(),
                owner_references: self.owner(),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                holder_identity: Some(own.clone()),
                lease_duration_seconds: i32::try_from(good.as_secs()).ok(),
                renew_time: Some(MicroTime(self.context.management.server_time.now())),
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

    /// Looks who lives, and passes keys on; whether somebody new does.
    fn judge(&self, changed: &OnChange) -> bool {
        let Standing { live: before, good_until } = lock(&self.replicas.0.standing).clone();
        let now = Instant::now();
        let after = self.replicas.membership().judge(now).clone();
        if good_until.is_none() || after == before {
            return false;
        }
        self.stand(&before, changed);
        let somebody_new = after.iter().any(|replica| before.iter().all(|known| known != replica));
        if somebody_new {
            // It takes us for dead unless we renew our Lease soon.
            lock(&self.replicas.0.standing).good_until = good_until.map(|until| until.min(now + EXPIRY));
        }
        somebody_new
    }

    /// Has everybody here go by who lives now.
    fn stand(&self, before: &Live, changed: &OnChange) {
        let live = self.replicas.membership().judge(Instant::now()).clone();
        let known = std::mem::replace(&mut lock(&self.replicas.0.standing).live, live.clone());
        let owned = self.count(changed(&self.replicas, before, &live));
        if known != live {
            let replicas = live.iter().collect::<Vec<_>>().join(", ");
            tracing::info!(
                replicas,
                owned,
                own = self.replicas.0.own,
                "the work is shared by these replicas"
            );
        }
    }

    fn count(&self, owned: usize) -> usize {
        let metrics = &self.context.metrics;
        let live = lock(&self.replicas.0.standing).live.len();
        metrics.replicas.set(i64::try_from(live).unwrap_or(i64::MAX));
        metrics.owned.set(i64::try_from(owned).unwrap_or(i64::MAX));
        owned
    }

    /// Now and then: what is due, and nobody waits for.
    async fn tidy(&mut self, changed: &OnChange) {
        let now = Instant::now();
        if now < self.tidy_at {
            return;
        }
        self.tidy_at = now + TIDY;
        let Standing { live, good_until } = lock(&self.replicas.0.standing).clone();
        if good_until.is_none() {
            return;
        }
        // Nobody has come or gone, but objects have.
        self.count(changed(&self.replicas, &live, &live));
        self.bury(now).await;
    }

    /// Deletes Leases that nobody will renew.
    async fn bury(&self, now: Instant) {
        let forgotten = self.replicas.membership().forgotten(now);
        for name in forgotten {
            let key = format!("{}/{name}", self.context.args.namespace);
            let Some(lease) = self.leases.get(&key) else { continue };
            let deleted = tokio::time::timeout(TIMEOUT, self.api.delete(&name, &lease.delete())).await;
            if matches!(deleted, Ok(Ok(_))) {
                tracing::info!(lease = name, "the Lease of a replica that is gone is deleted");
            }
        }
    }

    async fn give_back(&mut self) {
        let lease = self.replicas.0.own.clone();
        match tokio::time::timeout(TIMEOUT, self.delete()).await {
            Ok(Ok(())) => tracing::info!(lease, "given back"),
            Ok(Err(error)) => tracing::warn!(lease, error = status::brief(&error), "can't be given back"),
            Err(_) => tracing::warn!(lease, "can't be given back: no answer within {TIMEOUT:?}"),
        }
    }

    async fn delete(&self) -> Result<(), kube::Error> {
        let own = self.replicas.0.own.as_str();
        if let Some(held) = &self.held {
            match self.api.delete(own, &held.delete()).await {
                // Written by a renewal whose answer was lost.
                Err(error) if status::conflict(&error) => {}
                outcome => return outcome.map(drop),
            }
        }
        let Some(standing) = self.find().await? else { return Ok(()) };
        self.api.delete(own, &standing.delete()).await.map(drop)
    }
}

/// A lock whose holder panicked is still good: nothing here is left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
