//! Watches and Events against the API server in memory: more objects than are kept, and what fails.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use osm_api::Reason;
use osm_api::rbac::{Installation, Service};
use osm_runtime::cache::Cache;
use osm_runtime::followed::{Followed, MAX_FOLLOWED};
use osm_runtime::queue::Queue;
use osm_runtime::replicas::Replicas;
use osm_runtime::runner::{self, Keys};
use osm_runtime::watch::{GATE, Watch};
use osm_runtime::{Cluster, CommonArgs, Connection, Environment, Error, Process, Scope, settings};
use osm_sim::memory::{Call, Fault, Link, Network, Passage, Server, User};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::Dispatch;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;

fn config_map(name: &str) -> Value {
    config_map_in("kube-system", name)
}

fn config_map_in(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}})
}

/// Waits until it is so, for up to ten minutes of the paused clock.
async fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    tokio::time::timeout(Duration::from_secs(600), async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect(what);
}

/// The value of a metric; 0 if it does not exist.
fn metric(cluster: &Cluster, start: &str) -> u64 {
    let text = String::from_utf8(cluster.process.metrics.encode()).unwrap();
    let lines = text.lines().filter(|line| line.starts_with(start));
    let values = lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    values.sum()
}

/// What is logged in this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Collects until the guard is dropped.
    fn start() -> (Self, DefaultGuard) {
        // If a process has one subscriber, tracing asks the thread that reaches a line first whether it is
        // wanted, and most tests have none.
        static ANOTHER: LazyLock<Dispatch> = LazyLock::new(|| {
            Dispatch::new(
                tracing_subscriber::fmt()
                    .with_max_level(LevelFilter::OFF)
                    .finish(),
            )
        });
        LazyLock::force(&ANOTHER);
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn lines_with(&self, text: &str) -> usize {
        let log = String::from_utf8(self.0.lock().clone()).unwrap();
        log.lines().filter(|line| line.contains(text)).count()
    }
}

impl Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Notes the requests, each of which takes this time to the server. It refuses those with this verb.
struct Slow {
    takes: Duration,
    refused: &'static str,
    calls: Mutex<Vec<(Call, Instant)>>,
}

impl Slow {
    fn link(takes: Duration) -> (Arc<Self>, Link) {
        Self::that_refuses("", takes)
    }

    fn that_refuses(refused: &'static str, takes: Duration) -> (Arc<Self>, Link) {
        let calls = Mutex::default();
        let slow = Arc::new(Self {
            takes,
            refused,
            calls,
        });
        (slow.clone(), Link::new(slow))
    }

    /// When requests with this verb for ConfigMaps were sent.
    fn sent(&self, verb: &str) -> Vec<Instant> {
        let calls = self.calls.lock();
        let wanted = |call: &Call| call.verb == verb && call.resource == "configmaps";
        let calls = calls.iter().filter(|(call, _)| wanted(call));
        calls.map(|(_, at)| *at).collect()
    }
}

impl Network for Slow {
    fn passage(&self, call: &Call) -> Passage {
        let sent = (call.clone(), Instant::now());
        self.calls.lock().push(sent);
        Passage {
            there: self.takes,
            fault: (call.verb == self.refused).then_some(Fault::Refused(429)),
            ..Passage::default()
        }
    }

    fn lag(&self, _: &str, _: u64) -> Duration {
        Duration::ZERO
    }
}

fn cluster(server: &Server) -> Cluster {
    cluster_as(server, &User::Admin)
}

fn cluster_as(server: &Server, user: &User) -> Cluster {
    cluster_by(server, user, &Link::default(), Installation::default())
}

fn cluster_on(server: &Server, link: &Link) -> Cluster {
    cluster_by(server, &User::Admin, link, Installation::default())
}

/// The cluster of osc-controller, which reaches this server and shares the work with nobody.
pub fn cluster_by(server: &Server, user: &User, link: &Link, installation: Installation) -> Cluster {
    let args = CommonArgs {
        concurrency: 1,
        ..CommonArgs::default()
    };
    let process = Process::new(Service::OscController, args, Environment::default()).unwrap();
    let client = || server.client(user.clone(), link);
    let (scope, connection) = (
        Scope::of(&process),
        Connection::by(&process, [client(), client()]),
    );
    let replicas = Replicas::new("replica");
    let management = [connection.clone(), connection];
    Cluster::new(scope, installation, management, settings::none(), replicas)
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_watch_stops_the_service_and_is_named() {
    let server = Server::new(Timestamp::UNIX_EPOCH);
    server.load(&[config_map("a")]).unwrap();
    let cluster = cluster(&server);
    Watch::namespaced(&cluster.worker, "kube-system", "maps")
        .project(|map: ConfigMap| match map.name_any().as_str() {
            "b" => panic!("on purpose"),
            _ => Some(()),
        })
        .spawn(&cluster);
    cluster.gates.opened(GATE).await;
    assert!(!cluster.shutdown.is_cancelled());
    server.load(&[config_map("b")]).unwrap();
    tokio::time::timeout(Duration::from_secs(60), cluster.shutdown.cancelled())
        .await
        .expect("the service stops");
    let waiting = cluster.process.readiness.waiting();
    assert!(
        waiting
            .iter()
            .any(|line| line.starts_with("task watch of maps in namespace kube-system: the task panicked")),
        "{waiting:?}"
    );
}

#[derive(Clone)]
struct Panics;
impl Keys<String> for Panics {
    fn known(&self) -> Vec<String> {
        panic!("on purpose")
    }
    fn released(&self, _: &String) {}
}

#[tokio::test(start_paused = true)]
async fn a_panic_while_keys_are_divided_stops_the_service_and_is_named() {
    let cluster = cluster(&Server::new(Timestamp::UNIX_EPOCH));
    let queue = Arc::new(Queue::new(&Environment::default()));
    let reconcile = |_: String| async { Ok::<_, Error>(None) };
    let work = runner::work((&cluster, &cluster.replicas), queue, Panics, reconcile);
    tokio::time::timeout(Duration::from_secs(60), work)
        .await
        .expect("the service stops");
    let waiting = cluster.gates.waiting();
    let named = |line: &String| line.starts_with("task share of the work: the task panicked");
    assert!(waiting.iter().any(named), "{waiting:?}");
}

#[tokio::test(start_paused = true)]
async fn more_objects_than_are_followed_and_large_ones_are_read_each_time() {
    let server = Server::new(Timestamp::UNIX_EPOCH);
    let maps: Vec<Value> = (0..MAX_FOLLOWED + 2)
        .map(|i| config_map(&format!("map-{i}")))
        .collect();
    server.load(&maps).unwrap();
    let (calls, link) = Slow::link(Duration::ZERO);
    let cluster = cluster_on(&server, &link);
    let followed = Followed::new("maps", |name: &String| name != "map-0");
    let name_of = |map: ConfigMap| map.name_any();
    let read_all = async || {
        for map in &maps {
            let name = map["metadata"]["name"].as_str().unwrap();
            let shown = followed
                .get(
                    (&cluster.scope, &cluster.worker),
                    "kube-system",
                    name,
                    name_of,
                    || (),
                )
                .await
                .unwrap();
            assert_eq!(*shown.unwrap(), name);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
    };
    read_all().await;
    assert_eq!(calls.sent("watch").len(), MAX_FOLLOWED);
    let before = calls.sent("get").len();
    read_all().await;
    assert_eq!(calls.sent("watch").len(), MAX_FOLLOWED);
    // Those for which there is no watch, and the one that is too large to be kept.
    assert_eq!(calls.sent("get").len() - before, 2 + 1);
}

#[tokio::test(start_paused = true)]
async fn more_objects_than_are_kept_stop_no_watch_and_what_is_known_is_followed() {
    let (log, _logs) = Log::start();
    let server = Server::new(Timestamp::UNIX_EPOCH);
    let zone = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "zone"}});
    server.load(&[zone, config_map_in("zone", "flood")]).unwrap();
    let flood = |i: usize| config_map(&format!("flood-{i:03}"));
    server.load(&(0..120).map(flood).collect::<Vec<_>>()).unwrap();
    let (cluster, cache) = (cluster(&server), Arc::new(Cache::default()));
    Watch::all(&cluster.worker, "maps")
        .at_most(20)
        .project(|map: ConfigMap| Some(map.resource_version()))
        .into_cache(&cache)
        .spawn(&cluster);
    cluster.gates.opened(GATE).await;
    let ignored = || metric(&cluster, "osm_ignored_objects{cluster=\"single\",watch=\"maps\"}");
    assert_eq!((cache.len(), ignored()), (20, 101));
    assert_eq!(log.lines_with("keeps at most 20 objects of this kind"), 1);
    assert_eq!(log.lines_with("Most are in kube-system"), 1);
    assert_eq!(metric(&cluster, "osm_watch_errors_total"), 0);
    let version = |key: &str| cache.get(key).map(|version| (*version).clone());
    let (first, before) = ("kube-system/flood-000", version("kube-system/flood-000"));
    let patch = json!({"data": {"text": "x"}});
    server.with(|state| {
        state
            .patch("configmaps", "kube-system", "flood-000", &patch)
            .unwrap();
    });
    wait_until("the change of one that is known", || version(first) != before).await;

    // There is room again. What was ignored is listed.
    server.with(|state| {
        for i in 0..110 {
            let name = format!("flood-{i:03}");
            state.delete("configmaps", "kube-system", &name).unwrap();
        }
    });
    wait_until("what was ignored", || version("zone/flood").is_some()).await;
    assert_eq!((cache.len(), ignored()), (11, 0));
}

/// The name of a namespace can come from the spec of an object.
#[tokio::test(start_paused = true)]
async fn nothing_is_sent_for_a_namespace_that_can_not_be_in_a_path() {
    let server = Server::new(Timestamp::UNIX_EPOCH);
    let (calls, link) = Slow::link(Duration::ZERO);
    let cluster = cluster_on(&server, &link);
    Watch::namespaced(&cluster.worker, "kube-system/../other", "maps")
        .project(|_: ConfigMap| Some(()))
        .spawn(&cluster);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(calls.calls.lock().is_empty());
    let waiting = cluster.process.readiness.waiting();
    assert!(waiting[0].contains("can't be in the path"), "{waiting:?}");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_forbidden_is_retried_and_logged_once() {
    let (log, _logs) = Log::start();
    let server = Server::new(Timestamp::UNIX_EPOCH);
    server.load(&[config_map("a")]).unwrap();
    let user = User::ServiceAccount {
        namespace: "kube-system".to_owned(),
        name: "without-rights".to_owned(),
    };
    let cluster = cluster_as(&server, &user);
    Watch::namespaced(&cluster.worker, "kube-system", "maps")
        .project(|_: ConfigMap| Some(()))
        .spawn(&cluster);
    let errors = || metric(&cluster, "osm_watch_errors_total");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let attempts = errors();
    assert!((360..=720).contains(&attempts), "{attempts} in an hour");
    assert_eq!(log.lines_with("the watch has failed and is retried"), 1);

    let rbac = "rbac.authorization.k8s.io";
    server
        .load(&[
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": "r", "namespace": "kube-system"},
                "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]}),
            json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": "r", "namespace": "kube-system"},
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "r"},
                "subjects": [{"kind": "ServiceAccount", "name": "without-rights", "namespace": "kube-system"}]}),
        ])
        .unwrap();
    tokio::time::timeout(Duration::from_secs(70), cluster.gates.opened(GATE))
        .await
        .expect("the watch goes on");
    assert_eq!(log.lines_with("the watch works again"), 1);
}

/// A kube-apiserver that has just started can list objects before it can watch them.
#[tokio::test(start_paused = true)]
async fn what_can_be_listed_and_not_watched_is_listed_less_and_less_often() {
    let server = Server::new(Timestamp::UNIX_EPOCH);
    let (calls, link) = Slow::that_refuses("watch", Duration::ZERO);
    let cluster = cluster_on(&server, &link);
    Watch::namespaced(&cluster.worker, "kube-system", "maps")
        .project(|_: ConfigMap| Some(()))
        .spawn(&cluster);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let lists = calls.sent("list").len();
    assert!((360..=720).contains(&lists), "{lists} in an hour");
}

#[tokio::test(start_paused = true)]
async fn each_event_has_its_own_note_which_is_clipped() {
    let server = Server::new(Timestamp::UNIX_EPOCH);
    let events = cluster(&server).worker.events.clone();
    let about = |name: &str| ObjectReference {
        kind: Some("MachineDeployment".to_owned()),
        namespace: Some("kube-system".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(format!("uid of {name}")),
        ..ObjectReference::default()
    };
    // A name that would be too long in front of the name of an Event.
    let (long, note) = (about(&"n".repeat(250)), "x".repeat(1025));
    for (about, note) in [
        (about("pool"), "line 2"),
        (about("pool"), "line 2"),
        (about("pool"), "line 5"),
        (long, note.as_str()),
    ] {
        events.warning(&about, Reason::TemplateFailed, note).await;
    }
    events.recovery(&about("pool"), Reason::Rendered, "works").await;
    let mut stored: Vec<(String, String)> = server.with(|state| {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        let events = state.all("events");
        events
            .map(|event| (text(event, "type"), text(event, "note")))
            .collect()
    });
    stored.sort();
    let clipped = format!("{}…", "x".repeat(1021));
    let expected = [
        ("Normal", "works"),
        ("Warning", "line 2"),
        ("Warning", "line 2"),
        ("Warning", "line 5"),
        ("Warning", clipped.as_str()),
    ];
    assert_eq!(
        stored,
        expected.map(|(type_, note)| (type_.to_owned(), note.to_owned()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_one_of_many_sends_a_bookmark_each_minute() {
    let server = Server::new(Timestamp::UNIX_EPOCH);
    server.with(|state| state.set_number(1));
    let maps = Api::<ConfigMap>::namespaced(server.admin(), "kube-system");
    let version = maps.list(&ListParams::default()).await.unwrap().metadata;
    let version = version.resource_version.unwrap();
    let watch = maps.watch(&WatchParams::default(), &version).await.unwrap();
    let (mut events, began) = (watch.boxed(), Instant::now());
    for minute in 1..=3 {
        let event = events.next().await.unwrap().unwrap();
        assert!(matches!(event, WatchEvent::Bookmark(_)), "{event:?}");
        assert_eq!(began.elapsed().as_secs(), 60 * minute);
    }
}
