//! Watches against the API server in memory: pages, objects that can't be decoded, and a task that fails.

// The lints' exceptions for tests don't reach helpers of tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use osm_api::MachineDeployment;
use osm_api::rbac::{Installation, Service};
use osm_runtime::args::{CommonArgs, LogFormat};
use osm_runtime::cache::Cache;
use osm_runtime::watch::{GATE, Watch};
use osm_runtime::{Cluster, Connection, Environment, Metrics, Process, Readiness};
use osm_sim::memory::{Link, Server, User};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kube-system", "name": name}})
}

fn pool(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "MachineDeployment",
        "metadata": {"namespace": "kube-system", "name": name}, "spec": spec})
}

fn cluster(server: &Server) -> Cluster {
    let (metrics, environment) = (Metrics::new().unwrap(), Environment::default());
    let client = || server.client(User::Admin, &Link::default());
    let connection = Connection::by(
        Service::OscController,
        [client(), client()],
        &metrics,
        Duration::from_secs(10),
        &environment,
    );
    let args = CommonArgs {
        namespace: "kube-system".to_owned(),
        kubeconfig: None,
        settings: "osm-settings".to_owned(),
        listen: ([127, 0, 0, 1], 0).into(),
        log_format: LogFormat::Text,
        log: String::new(),
        concurrency: 1,
        request_timeout: 10,
        reconcile_timeout: 60,
        replica: None,
        pod_uid: None,
    };
    let process = Arc::new(Process {
        service: Service::OscController,
        args,
        environment,
        metrics,
        readiness: Readiness::default(),
        shutdown: CancellationToken::new(),
    });
    let gates = process.readiness.gates("");
    Cluster::new(
        &process,
        gates,
        Installation::default(),
        connection.clone(),
        connection,
    )
    .0
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
            .any(|line| line.starts_with("task watch of maps: the task panicked")),
        "{waiting:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn every_page_is_read_and_what_comes_later_is_watched() {
    let server = Server::new(Timestamp::UNIX_EPOCH);
    let maps: Vec<Value> = (0..120).map(|i| config_map(&format!("map-{i:03}"))).collect();
    server.load(&maps).unwrap();
    let (cluster, cache) = (cluster(&server), Arc::new(Cache::default()));
    Watch::namespaced(&cluster.worker, "kube-system", "maps")
        .project(|map: ConfigMap| Some(map.name_any()))
        .into_cache(&cache)
        .spawn(&cluster);
    cluster.gates.opened(GATE).await;
    let listed = cache.select(|name| name.starts_with("map-")).len();
    assert_eq!(listed, 120);
    server.load(&[config_map("map-later")]).unwrap();
    tokio::time::timeout(Duration::from_secs(60), async {
        while cache.get("kube-system/map-later").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("the new one");
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_decoded_is_shown_by_its_metadata() {
    let server = Server::new(Timestamp::UNIX_EPOCH);
    let good = json!({"template": {}});
    server
        .load(&[pool("bad", &json!("text")), pool("good", &good)])
        .unwrap();
    let (cluster, cache) = (cluster(&server), Arc::new(Cache::default()));
    Watch::all(&cluster.worker, "pools")
        .project(|md: MachineDeployment| Some(format!("{} is good", md.name_any())))
        .unreadable(|md| Some(format!("{:?}: {}", md.metadata.name, md.problem)))
        .into_cache(&cache)
        .spawn(&cluster);
    cluster.gates.opened(GATE).await;
    let shown = |name: &str| {
        cache
            .get(&format!("kube-system/{name}"))
            .map(|text| (*text).clone())
    };
    assert_eq!(shown("good").as_deref(), Some("good is good"));
    assert_eq!(
        shown("bad").as_deref(),
        Some(
            "Some(\"bad\"): this version does not know the value of spec; correct the value, or upgrade to the version that knows it"
        )
    );
    let counted = String::from_utf8(cluster.process.metrics.encode()).unwrap();
    assert!(
        counted.contains(r#"osm_invalid_objects_total{cluster="only",kind="pools"} 1"#),
        "{counted}"
    );
}
