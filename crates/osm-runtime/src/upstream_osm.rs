//! Finds out whether the upstream OSM writes the same objects, by the [Leases](osm_api::rbac::Service::go_leases) of its leader election.
//!
//! Each implementation would replace what the other one writes. So osc-controller and secret-syncer start nothing new while one of the Leases is
//! being renewed. They are not ready until something is published in this cluster. What is published is renewed, and restored if the upstream OSM
//! deletes it together with its config. osp-controller writes no default profile, because the upstream OSM restores those of the same names.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use osm_api::rbac::{ClusterKind, GoLease};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::connection::Connection;
use crate::error::brief;
use crate::object::Unreadable;
use crate::queue::Queue;
use crate::read;
use crate::readiness::Gate;
use crate::runner::{Key, Shared};
use crate::server_time::ServerTime;
use crate::shared_problem::SharedProblem;
use kube::Api;

/// Interval of the checks: for about this long, both can publish after an upstream OSM has started.
const INTERVAL: Duration = Duration::from_secs(15);

/// A Lease that was renewed within this time is being renewed. Another replica takes it over after 15 seconds and a pause between two attempts,
/// and a pod that is restarted begins to wait for that when it is up. The rest is for clocks that differ.
const RENEWED_WITHIN: Duration = Duration::from_secs(45);

/// Checks once, and then regularly until shutdown. Each key is queued when the result changes. `is_published`: whether anything is published
/// in this cluster, or the service is ready without that.
pub async fn watch<K: Key>(
    cluster: &Cluster,
    queue: &Arc<Queue<K>>,
    shared: impl Shared<K>,
    is_published: impl Fn() -> bool + Send + Sync + 'static,
) {
    let mut check = Check {
        leases: leases(cluster),
        gate: cluster.gates.gate("upstream OSM"),
        problem: cluster.upstream_osm.clone(),
    };
    // Nothing may be started before the first answer.
    let first = check.look(&is_published);
    let _ = cluster.shutdown.run_until_cancelled(first).await;
    let queue = queue.clone();
    cluster.spawn("upstream OSM", async move {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if check.look(&is_published).await {
                let known = shared.known().into_iter();
                known.for_each(|key| queue.add(key));
            }
        }
    });
}

fn leases(cluster: &Cluster) -> Vec<WatchedLease> {
    let leases = cluster.process.service.go_leases(&cluster.installation);
    let watched = leases.iter().map(|lease| match lease.cluster {
        ClusterKind::Worker => WatchedLease::new(&cluster.worker, lease),
        _ => WatchedLease::new(&cluster.management, lease),
    });
    watched.collect()
}

struct Check {
    leases: Vec<WatchedLease>,
    gate: Gate,
    problem: SharedProblem,
}

impl Check {
    /// Looks at each Lease. Returns whether the result is another one than before.
    async fn look(&mut self, is_published: &(impl Fn() -> bool + Sync)) -> bool {
        let mut found = None;
        for lease in &mut self.leases {
            let problem = lease.problem().await;
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
    api: Api<Lease>,
    clock: ServerTime,
    name: &'static str,
    /// `namespace/name`, and the cluster if there are two.
    place: String,
    was_read: bool,
    /// When it was last seen to be renewed, or there was no answer afterwards: while the API server is away, nobody can renew it.
    renewed: Option<Instant>,
}

impl WatchedLease {
    fn new(connection: &Connection, lease: &GoLease) -> Self {
        let GoLease { namespace, name, .. } = lease;
        Self {
            api: Api::namespaced(connection.client.clone(), namespace),
            clock: connection.server_time.clone(),
            name,
            place: format!("{namespace}/{name}{}", connection.role().place()),
            was_read: false,
            renewed: None,
        }
    }

    /// Why nothing new may be started. If there is no answer, the last one holds. A Lease is an answer even if a time in it can't be decoded, such
    /// as in the year 10000, which the API server stores: that would hold up everything for ever. Such a field counts as absent.
    async fn problem(&mut self) -> Option<String> {
        let decodable = |lease: &Unreadable| Some(lease.part::<LeaseSpec>("spec"));
        match read::get(&self.api, self.name, |lease| lease.spec, decodable).await {
            Ok(spec) => {
                self.was_read = true;
                self.renewed = match is_renewed(spec.flatten(), self.clock.now()) {
                    None => None,
                    Some(true) => Some(Instant::now()),
                    Some(false) => self.renewed,
                };
            }
            Err(error) if !self.was_read => {
                return Some(format!(
                    "the Lease {} can't be read yet: {}",
                    self.place,
                    brief(&error)
                ));
            }
            Err(_) if self.is_renewed() => self.renewed = Some(Instant::now()),
            Err(_) => {}
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

/// Whether its holder has renewed the Lease lately, by the `clock` of the API server; `None`: nobody holds it.
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
    use kube::Client;
    use kube::client::Body;
    use osm_api::rbac::{Installation, Service};
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tower::BoxError;

    use super::*;
    use crate::{Environment, Metrics, Readiness};

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

    /// An API server with one Lease, at the path that ends so, or without a permission to read any.
    #[derive(Clone)]
    struct Server(Arc<Mutex<Option<(&'static str, Value)>>>);

    impl Server {
        fn connection(&self) -> Connection {
            let served = self.clone();
            let fake = tower::service_fn(move |request: Request<Body>| {
                let answer = served.answer(request.uri().path());
                async move { Ok::<_, BoxError>(answer) }
            });
            let client = Client::new(fake, "default");
            let (metrics, environment) = (
                Metrics::of(osm_api::rbac::Service::OscController).unwrap(),
                Environment::default(),
            );
            let clients = [client.clone(), client];
            let timeout = Duration::from_secs(10);
            Connection::by(Service::OscController, clients, &metrics, timeout, &environment)
        }

        fn answer(&self, path: &str) -> Response<Body> {
            let status = |code: u16, reason: &str| {
                let details = json!({"kind": "leases", "name": path.rsplit('/').next()});
                let status = json!({"kind": "Status", "status": "Failure", "reason": reason, "message": "", "code": code,
                    "details": details});
                (code, status)
            };
            let (code, body) = match &*self.0.lock() {
                Some((place, spec)) if path.ends_with(place) => {
                    (200, json!({"metadata": {"name": "a"}, "spec": spec}))
                }
                Some(_) => status(404, "NotFound"),
                None => status(403, "Forbidden"),
            };
            let answer = Response::builder().status(code);
            answer.body(body.to_string().into_bytes().into()).unwrap()
        }

        fn new(place: Option<&'static str>) -> Self {
            let server = Self(Arc::default());
            server.serve(place);
            server
        }

        fn serve(&self, place: Option<&'static str>) {
            *self.0.lock() = place.map(|place| (place, json!(renewed(Timestamp::now()))));
        }

        fn let_expire(&self) {
            if let Some((_, lease)) = &mut *self.0.lock() {
                *lease = json!(renewed(Timestamp::now() - RENEWED_WITHIN));
            }
        }

        fn set(&self, field: &str, value: &str) {
            if let Some((_, lease)) = &mut *self.0.lock() {
                lease[field] = json!(value);
            }
        }
    }

    /// The Leases that a service looks at if the server has all of them.
    fn check(server: &Server, service: Service, readiness: &Readiness) -> Check {
        let connection = server.connection();
        let installation = Installation {
            namespace: "osm".to_owned(),
            ..Installation::default()
        };
        let leases = service.go_leases(&installation);
        Check {
            leases: leases
                .iter()
                .map(|lease| WatchedLease::new(&connection, lease))
                .collect(),
            gate: readiness.gate("upstream OSM"),
            problem: SharedProblem::default(),
        }
    }

    const PLACES: [&str; 3] = [
        "osm/leases/operating-system-manager",
        "kube-system/leases/operating-system-manager",
        "kube-system/leases/operating-system-manager-worker-manager",
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
                let (readiness, server) = (Readiness::default(), Server::new(Some(place)));
                let mut check = check(&server, service, &readiness);
                let is_held = places.contains(&place);
                assert_eq!(check.look(&|| false).await, is_held, "{service:?} {place}");
                let named = place.replace("/leases", "");
                let found = check.problem.problem();
                let words = format!("it renews the Lease {named}; ");
                assert_eq!(
                    found.is_some_and(|found| found.starts_with(&words)),
                    is_held,
                    "{place}"
                );
                assert_eq!(readiness.waiting().is_empty(), !is_held);
                // It is published, and renewed all the time.
                server.serve(Some(place));
                assert!(!check.look(&|| true).await);
                assert!(readiness.waiting().is_empty());
                server.let_expire();
                assert!(!check.look(&|| true).await, "it may still be restarting");
                tokio::time::advance(RENEWED_WITHIN).await;
                assert_eq!(check.look(&|| true).await, is_held, "{service:?} {place}");
                assert!(check.problem.problem().is_none());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_started_before_each_lease_was_read_and_later_the_last_answer_holds() {
        let server = Server::new(None);
        let mut check = check(&server, Service::SecretSyncer, &Readiness::default());
        assert!(check.look(&|| false).await);
        let found = check.problem.problem().unwrap();
        assert!(
            found.contains("osm/operating-system-manager can't be read yet"),
            "{found}"
        );
        server.serve(Some(PLACES[2]));
        assert!(!check.look(&|| false).await);
        server.serve(None);
        assert!(!check.look(&|| false).await);
        let found = check.problem.problem().unwrap();
        assert!(found.contains("-worker-manager; "), "{found}");
        // Once it can be read again, its holder has time to renew it.
        tokio::time::advance(RENEWED_WITHIN - Duration::from_secs(1)).await;
        assert!(!check.look(&|| false).await);
        server.serve(Some(PLACES[2]));
        server.let_expire();
        tokio::time::advance(RENEWED_WITHIN - Duration::from_secs(1)).await;
        assert!(!check.look(&|| false).await);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(check.look(&|| false).await);
        assert_eq!(check.problem.problem(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_whose_time_can_not_be_decoded_is_not_renewed() {
        // What the API server answers for 9999-12-31T23:59:59.999999-23:59, which it accepts.
        for time in ["10000-01-01T23:58:59.999999Z", "garbage"] {
            let server = Server::new(Some(PLACES[1]));
            server.set("renewTime", time);
            let mut check = check(&server, Service::SecretSyncer, &Readiness::default());
            assert!(!check.look(&|| false).await, "{time}: it was never renewed");

            server.serve(Some(PLACES[1]));
            assert!(check.look(&|| false).await, "{time}: now it is");
            server.set("renewTime", time);
            tokio::time::advance(RENEWED_WITHIN / 2).await;
            assert!(!check.look(&|| false).await);
            tokio::time::advance(RENEWED_WITHIN / 2).await;
            assert!(check.look(&|| false).await, "{time}: it is not renewed any more");

            // Another time says nothing about that.
            server.serve(Some(PLACES[1]));
            server.set("acquireTime", time);
            assert!(check.look(&|| false).await, "{time}: it is renewed");
        }
    }
}
