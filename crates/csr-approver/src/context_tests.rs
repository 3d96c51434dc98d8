use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::machine_deployment::MachineDeploymentSpec;
use osm_api::node_name::NodeName;
use osm_api::rbac::{Installation, Service};
use osm_api::{Machine, MachineDeployment};
use osm_runtime::args::{CommonArgs, LogFormat};
use osm_runtime::cache::Version;
use osm_runtime::{Connection, Connections, Environment, Metrics, Readiness};
use osm_sim::memory::{Calm, Link, Network, Server, User};
use serde_json::json;

use crate::request::Request;

use super::*;

/// Of a service that reaches an empty API server over this network.
pub fn context(network: impl Network + 'static) -> Context {
    let (server, link) = (
        Server::new(jiff::Timestamp::UNIX_EPOCH),
        Link::new(Arc::new(network)),
    );
    let service = Service::CsrApprover;
    let (metrics, environment) = (Metrics::of(service).unwrap(), Environment::default());
    let clients = [(); 2].map(|()| server.client(User::Admin, &link));
    let connection = Connection::by(service, clients, &metrics, Duration::from_secs(10), &environment);
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
        service,
        args,
        environment,
        metrics,
        readiness: Readiness::default(),
        shutdown: Default::default(),
    });
    let connections = Connections::only(connection);
    let (cluster, _) = Cluster::new(&process, Installation::default(), connections);
    Context::new(&process, &cluster).unwrap()
}

#[test]
fn requests_beyond_the_bounds_are_kept_only_for_machines_that_exist() {
    for (of_requester, of_all, any, any_at_start, awaited) in [
        (999, 19_999, true, true, true),
        (1_000, 1_000, false, true, true),
        (0, 20_000, false, true, true),
        (0, 40_000, false, false, true),
        (2_000, 2_000, false, false, true),
        (2_999, 100_000, false, false, true),
        (3_000, 3_000, false, false, false),
    ] {
        let has_room = |is_listed, is_awaited| has_room(of_requester, of_all, is_listed, || is_awaited);
        let case = format!("{of_requester} of {of_all}");
        assert_eq!(has_room(true, false), any, "{case}");
        assert_eq!(has_room(false, false), any_at_start, "{case}");
        assert_eq!(has_room(true, true), awaited, "{case}");
    }
}

fn pending(name: String, node: &str) -> Seen {
    let (created, asked) = (jiff::Timestamp::UNIX_EPOCH, Ok(node.to_owned()));
    Seen::Pending(Arc::new(Request::for_test(&name, created, asked)))
}

/// All tokens of `osm-node-bootstrap` are one requester.
#[tokio::test]
async fn a_flood_for_one_machine_leaves_room_for_the_others_and_for_edge_pools() {
    let context = context(Calm);
    let version = |uid: &str| {
        Version::of(&ObjectMeta {
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        })
    };
    for name in ["flooded", "joins", "joined"] {
        let machine = json!({"metadata": {"name": name, "namespace": "n"}, "spec": {}});
        let mut machine = MachineView::from(serde_json::from_value::<Machine>(machine).unwrap());
        machine.node = NodeName::Known(name.to_owned());
        drop(context.machines.wrote(name, version(name), machine));
    }
    drop(context.nodes.wrote("joined", version("joined"), ()));
    let md = MachineDeployment::new("edge", MachineDeploymentSpec::default());
    let edge = PoolView {
        edge_node: Some("edge".to_owned()),
        ..PoolView::of(&md)
    };
    drop(context.pools.wrote("n/edge", version("edge"), edge));
    for i in 0..2 * MAX_OF_REQUESTER {
        let node = if i < 1_900 { "unknown" } else { "flooded" };
        let (name, seen) = (format!("csr-{i}"), pending(format!("csr-{i}"), node));
        drop(context.requests.wrote(&name, version(&name), seen));
    }
    for (node, kept) in [
        ("unknown", false),
        ("flooded", false),
        ("joined", false),
        ("joins", true),
        ("edge", true),
    ] {
        let seen = pending("csr".to_owned(), node);
        assert_eq!(context.is_kept(&seen), kept, "{node}");
    }
    assert_eq!(context.reporting.metrics.dropped.get(), 3);
}
