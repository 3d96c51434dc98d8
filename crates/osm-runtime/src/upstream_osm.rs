//! Finds out whether the upstream OSM writes the same objects, by the
//! [Leases](osm_api::rbac::Service::go_leases) of its leader election.
//!
//! Each implementation would replace what the other one writes. So osc-controller and secret-syncer start
//! nothing new while one of the Leases is being renewed. They are not ready until something is published in
//! this cluster. What is published is renewed, and restored if the upstream OSM deletes it together with its
//! config. osp-controller writes no default profile, because the upstream OSM restores those of the same
//! names.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use osm_api::names::GO_LEASE;
use osm_api::rbac::{ClusterKind, GoLease};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::{Cluster, GoLeases};
use crate::connection::Connection;
use crate::object::Unreadable;
use crate::queue::Queue;
use crate::readiness::Gate;
use crate::runner::{Key, Keys};
use crate::scope::Scope;
use crate::server_time::ServerTime;
use crate::shared_problem::SharedProblem;
use crate::startup_check::UNCHECKED;
use crate::watch::Watch;

/// Name of the gate that is closed while nothing new may be started.
pub const GATE: &str = "upstream OSM";

/// A Lease that nobody renews any more changes nothing, so the result is found anew after this time as well.
/// This sends no request.
const INTERVAL: Duration = Duration::from_secs(15);

/// How long the start waits for the first lists. Later, nothing new is started until they are there.
const FIRST_LISTS: Duration = Duration::from_secs(5);
/// How often the start looks whether they are there, which only reads memory.
const POLL: Duration = Duration::from_millis(20);
/// The same later.
const RETRY: Duration = Duration::from_secs(1);

/// A Lease that was renewed within this time is being renewed. Another replica takes it over after 15 seconds
/// and a pause between two attempts, and a pod that is restarted begins to wait for that when it is up. The
/// rest is for clocks that differ.
const RENEWED_WITHIN: Duration = Duration::from_secs(45);

/// Watches the Leases until shutdown. Each key is queued when the result changes. `is_published`: whether
/// anything is published in this cluster, or the service is ready without that. Nothing new is started before
/// each Lease was listed, and what is published is renewed all the time.
pub async fn watch<K: Key>(
    cluster: &Cluster,
    queue: &Arc<Queue<K>>,
    keys: impl Keys<K>,
    is_published: impl Fn() -> bool + Send + Sync + 'static,
) {
    let shown = Arc::new(Notify::new());
    let mut check = Check {
        leases: leases(cluster, &shown),
        gate: cluster.gates.gate(GATE),
        problem: cluster.upstream_osm.clone(),
    };
    let listed = async {
        while !check.is_listed() {
            tokio::time::sleep(POLL).await;
        }
    };
    let listed = tokio::time::timeout(FIRST_LISTS, listed);
    let _ = cluster.shutdown.run_until_cancelled(listed).await;
    check.look(&is_published);
    let queue = queue.clone();
    cluster.spawn(GATE, async move {
        loop {
            let longest = if check.is_listed() { INTERVAL } else { RETRY };
            let _ = tokio::time::timeout(longest, shown.notified()).await;
            if check.look(&is_published) {
                let known = keys.known().into_iter();
                known.for_each(|key| queue.add(key));
            }
        }
    });
}

fn leases(cluster: &Cluster, shown: &Arc<Notify>) -> Vec<WatchedLease> {
    let mut watched: Vec<WatchedLease> = Vec::new();
    for lease in cluster.process.service.go_leases(&cluster.installation) {
        let connection = match lease.cluster {
            ClusterKind::Worker => &cluster.worker,
            _ => &cluster.management,
        };
        let mut one = WatchedLease::new(connection, &lease);
        if let (ClusterKind::Management, Some(shared)) = (lease.cluster, &cluster.go_leases) {
            one.seen = shared.clone();
            watched.push(one);
            continue;
        }
        // Where configs are in kube-system, too, and there is one cluster, it is the same Lease.
        if watched.iter().any(|other| other.place == one.place) {
            continue;
        }
        let shown = shown.clone();
        let watch = Watch::namespaced(connection, &lease.namespace, lease.name).named(lease.name);
        follow(cluster, watch, &one.seen, move || shown.notify_one());
        watched.push(one);
    }
    watched
}

/// Watches the Leases of the upstream OSM for all clusters of a fleet.
pub(crate) fn of_fleet(seed: &Cluster) -> Arc<GoLeases> {
    let shown = Arc::default();
    let watch = Watch::all(&seed.management, GO_LEASE).fields(&format!("metadata.name={GO_LEASE}"));
    follow(seed, watch, &shown, || ());
    shown
}

fn follow(
    scope: &Scope,
    watch: Watch<Lease>,
    seen: &Arc<GoLeases>,
    shown: impl Fn() + Send + Sync + 'static,
) {
    watch
        .project(|lease: Lease| Some(lease.spec))
        .unreadable(decodable)
        .into_cache(seen)
        .on_change(move |_| shown())
        // Without this permission, what is published is still renewed.
        .awaited(false)
        .spawn(scope);
}

/// A Lease is an answer even if a time in it can't be decoded, such as in the year 10000, which the API
/// server stores: that would hold up everything for ever. Such a field counts as absent.
fn decodable(lease: &Unreadable) -> Option<Option<LeaseSpec>> {
    Some(lease.part("spec"))
}

struct Check {
    leases: Vec<WatchedLease>,
    gate: Gate,
    problem: SharedProblem,
}

impl Check {
    fn is_listed(&self) -> bool {
        self.leases.iter().all(|lease| lease.seen.is_listed())
    }

    /// Looks at each Lease. Returns whether the result is another one than before.
    fn look(&mut self, is_published: &impl Fn() -> bool) -> bool {
        let mut found = None;
        for lease in &mut self.leases {
            let problem = lease.problem();
            found = found.or(problem);
        }
        match &found {
            Some(found) if !is_published() => self.gate.close(found.clone()),
            _ => self.gate.open(),
        }
        let has_changed = self.problem.note(found.clone());
        if has_changed {
            match found {
                Some(found) => tracing::error!("upstream OSM: {found}"),
                None => tracing::info!("the upstream OSM does not run"),
            }
        }
        has_changed
    }
}

struct WatchedLease {
    /// Its key in `seen`.
    key: String,
    seen: Arc<GoLeases>,
    clock: ServerTime,
    /// `namespace/name`, and the cluster if there are two.
    place: String,
    /// When it was last seen to be renewed, or its watch was broken afterwards: while the API server is away,
    /// nobody can renew it.
    renewed: Option<Instant>,
}

impl WatchedLease {
    fn new(connection: &Connection, lease: &GoLease) -> Self {
        let key = format!("{}/{}", lease.namespace, lease.name);
        Self {
            seen: Arc::default(),
            clock: connection.server_time.clone(),
            place: format!("{key}{}", connection.role().place()),
            key,
            renewed: None,
        }
    }

    /// Why nothing new may be started. While the watch is broken, its last answer holds.
    fn problem(&mut self) -> Option<String> {
        if !self.seen.is_listed() {
            return Some(format!("the Lease {} {UNCHECKED}", self.place));
        }
        let spec = self.seen.get(&self.key).and_then(|spec| (*spec).clone());
        if self.seen.is_current() {
            self.renewed = match is_renewed(spec, self.clock.now()) {
                None => None,
                Some(true) => Some(Instant::now()),
                Some(false) => self.renewed,
            };
        } else if self.is_renewed() {
            self.renewed = Some(Instant::now());
        }
        self.is_renewed().then(|| {
            format!(
                "it renews the Lease {}; stop it with the script that `osmctl migrate script` prints (KKP: docs/kkp.md)",
                self.place
            )
        })
    }

    fn is_renewed(&self) -> bool {
        self.renewed.is_some_and(|at| at.elapsed() < RENEWED_WITHIN)
    }
}

/// Whether its holder has renewed the Lease lately, by the `clock` of the API server; `None`: nobody holds
/// it.
fn is_renewed(lease: Option<LeaseSpec>, clock: Timestamp) -> Option<bool> {
    let held = lease.filter(|lease| {
        lease
            .holder_identity
            .as_ref()
            .is_some_and(|holder| !holder.is_empty())
    });
    let renewed = held?.renew_time;
    // The holder's clock may be early or late.
    Some(renewed.is_some_and(|at| clock.duration_since(at.0).unsigned_abs() < RENEWED_WITHIN))
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use kube::Client;
    use kube::client::Body;
    use osm_api::rbac::{Installation, Service};
    use serde_json::json;
    use tower::BoxError;

    use super::*;
    use crate::cache::Version;
    use crate::{CommonArgs, Environment, Process, Readiness, object};

    fn renewed(at: Timestamp) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some("go".to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(at)),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_is_renewed_if_it_is_held_and_was_renewed_lately() {
        let clock = Timestamp::from_second(1_800_000_000).unwrap();
        for (seconds_ago, holder, expected) in [
            (0, "go", Some(true)),
            (44, "go", Some(true)),
            (45, "go", Some(false)),
            (-44, "go", Some(true)),
            (-45, "go", Some(false)),
            (0, "", None),
        ] {
            let lease = LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                ..renewed(clock - jiff::SignedDuration::from_secs(seconds_ago))
            };
            let is = is_renewed(Some(lease), clock);
            assert_eq!(is, expected, "{seconds_ago} s ago by {holder:?}");
        }
        assert_eq!(is_renewed(None, clock), None);
    }

    /// What the watches of a service have shown.
    struct Shown {
        check: Check,
        readiness: Readiness,
        version: u64,
    }

    impl Shown {
        /// Lists without any Lease.
        fn new(service: Service, namespace: &str) -> Self {
            let readiness = Readiness::default();
            let client = Client::new(tower::service_fn(no_request), "default");
            let args = CommonArgs::default();
            let process = Process::new(service, args, Environment::default()).unwrap();
            let connection = Connection::by(&process, [client.clone(), client]);
            let installation = Installation {
                namespace: namespace.to_owned(),
                ..Installation::default()
            };
            let leases = service.go_leases(&installation);
            let leases = leases.iter().map(|lease| WatchedLease::new(&connection, lease));
            let check = Check {
                leases: leases.collect(),
                gate: readiness.gate(GATE),
                problem: SharedProblem::default(),
            };
            check
                .leases
                .iter()
                .for_each(|lease| drop(lease.seen.list_ended()));
            Self {
                check,
                readiness,
                version: 0,
            }
        }

        /// The Lease at this place is like this, if the service watches it.
        fn show(&mut self, place: &str, spec: Option<LeaseSpec>) {
            self.version += 1;
            let meta = ObjectMeta {
                resource_version: Some(self.version.to_string()),
                ..ObjectMeta::default()
            };
            for lease in self.check.leases.iter().filter(|lease| lease.key == place) {
                lease.seen.shown(&lease.key, Version::of(&meta), spec.clone());
            }
        }

        fn renew(&mut self, place: &str) {
            self.show(place, Some(renewed(Timestamp::now())));
        }

        /// It was last renewed so long ago that it counts as abandoned.
        fn let_expire(&mut self, place: &str) {
            self.show(place, Some(renewed(Timestamp::now() - RENEWED_WITHIN)));
        }

        fn look(&mut self, is_published: bool) -> bool {
            self.check.look(&|| is_published)
        }
    }

    async fn no_request(request: Request<Body>) -> Result<Response<Body>, BoxError> {
        Err(format!("{} was sent", request.uri()).into())
    }

    const PLACES: [&str; 3] = [
        "osm/operating-system-manager",
        "kube-system/operating-system-manager",
        "kube-system/operating-system-manager-worker-manager",
    ];

    #[tokio::test(start_paused = true)]
    async fn each_lease_alone_holds_up_what_is_new_while_it_is_renewed() {
        for (service, places) in [
            (Service::OspController, &PLACES[..1]),
            (Service::OscController, &PLACES),
            (Service::SecretSyncer, &PLACES),
            (Service::CsrApprover, &[]),
        ] {
            for place in PLACES {
                let mut shown = Shown::new(service, "osm");
                shown.renew(place);
                let is_held = places.contains(&place);
                assert_eq!(shown.look(false), is_held, "{service:?} {place}");
                let words = format!("it renews the Lease {place}; ");
                let found = shown.check.problem.problem();
                assert_eq!(
                    found.is_some_and(|found| found.starts_with(&words)),
                    is_held,
                    "{place}"
                );
                assert_eq!(shown.readiness.waiting().is_empty(), !is_held);
                // It is published, and renewed all the time.
                shown.renew(place);
                assert!(!shown.look(true));
                assert!(shown.readiness.waiting().is_empty());
                shown.let_expire(place);
                assert!(!shown.look(true), "it may still be restarting");
                tokio::time::advance(RENEWED_WITHIN).await;
                assert_eq!(shown.look(true), is_held, "{service:?} {place}");
                assert!(shown.check.problem.problem().is_none());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_started_before_each_lease_was_listed() {
        let mut shown = Shown::new(Service::SecretSyncer, "osm");
        shown.check.leases[0].seen = Arc::default();
        assert!(shown.look(false) && !shown.check.is_listed());
        let found = shown.check.problem.problem().unwrap();
        assert_eq!(
            found,
            "the Lease osm/operating-system-manager can't be checked yet"
        );
        drop(shown.check.leases[0].seen.list_ended());
        assert!(shown.look(false) && shown.check.is_listed());
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_watch_is_broken_its_last_answer_holds() {
        let mut shown = Shown::new(Service::SecretSyncer, "osm");
        shown.renew(PLACES[2]);
        assert!(shown.look(false));
        shown.let_expire(PLACES[2]);
        shown.check.leases.iter().for_each(|lease| lease.seen.broke());
        for _ in 0..4 {
            tokio::time::advance(RENEWED_WITHIN - Duration::from_secs(1)).await;
            assert!(!shown.look(false));
        }
        // Once it is listed again, its holder has time to renew it.
        shown.check.leases.iter().for_each(|lease| {
            lease.seen.list_begins();
            lease.seen.shown(
                &lease.key,
                Version::of(&ObjectMeta::default()),
                lease.seen.get(&lease.key).and_then(|spec| (*spec).clone()),
            );
            drop(lease.seen.list_ended());
        });
        tokio::time::advance(RENEWED_WITHIN - Duration::from_secs(1)).await;
        assert!(!shown.look(false));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(shown.look(false));
        assert_eq!(shown.check.problem.problem(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_time_can_not_be_decoded_is_not_renewed() {
        // What the API server answers for 9999-12-31T23:59:59.999999-23:59, which it accepts.
        for time in ["10000-01-01T23:58:59.999999Z", "garbage"] {
            let with = |field: &str| {
                let mut spec = json!(renewed(Timestamp::now()));
                spec[field] = json!(time);
                let lease = json!({"metadata": {"name": "a"}, "spec": spec}).to_string();
                object::decode::<Lease>(&lease)
                    .unwrap()
                    .err()
                    .and_then(|lease| decodable(&lease))
                    .unwrap()
            };
            let mut shown = Shown::new(Service::SecretSyncer, "osm");
            shown.show(PLACES[1], with("renewTime"));
            assert!(!shown.look(false), "{time}: it was never renewed");

            shown.renew(PLACES[1]);
            assert!(shown.look(false), "{time}: now it is");
            shown.show(PLACES[1], with("renewTime"));
            tokio::time::advance(RENEWED_WITHIN / 2).await;
            assert!(!shown.look(false));
            tokio::time::advance(RENEWED_WITHIN / 2).await;
            assert!(shown.look(false), "{time}: it is not renewed any more");

            // Another time says nothing about that.
            shown.show(PLACES[1], with("acquireTime"));
            assert!(shown.look(false), "{time}: it is renewed");
        }
    }
}
