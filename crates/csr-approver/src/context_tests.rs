use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use osm_api::machine_deployment::MachineDeploymentSpec;
use osm_api::node_name::NodeName;
use osm_api::rbac::{Installation, Service};
use osm_api::{Machine, MachineDeployment};
use osm_runtime::cache::Version;
use osm_runtime::replicas::Replicas;
use osm_runtime::{CommonArgs, Connection, Environment, Process, Scope, settings};
use osm_sim::memory::{Calm, Link, Network, Server, User};
use serde_json::json;

use crate::request::Request;

use super::*;

/// The context of a service that reaches an empty API server over this network.
pub fn context(network: impl Network + 'static) -> Context {
    let (server, link) = (
        Server::new(jiff::Timestamp::UNIX_EPOCH),
        Link::new(Arc::new(network)),
    );
    let args = CommonArgs::default();
    let process = Process::new(Service::CsrApprover, args, Environment::default()).unwrap();
    let connection = Connection::by(&process, [(); 2].map(|()| server.client(User::Admin, &link)));
    let installation = Installation {
        worker_namespace: Some("records".to_owned()),
        ..Installation::default()
    };
    let scope = Scope::of(&process);
    let replicas = Replicas::new("replica");
    let cluster = Cluster::new(
        scope,
        installation,
        [connection.clone(), connection],
        settings::none(),
        replicas,
    );
    let metrics = JoiningMetrics::new(&process.metrics).unwrap();
    Context::new(&Arc::new(metrics), &cluster)
}

fn version(uid: &str) -> Version {
    Version::of(&ObjectMeta {
        uid: Some(uid.to_owned()),
        ..ObjectMeta::default()
    })
}

fn pending(name: &str, node: &str) -> Arc<Request> {
    let (created, asked) = (jiff::Timestamp::UNIX_EPOCH, Ok(node.to_owned()));
    Arc::new(Request::for_test(name, created, asked))
}

fn keep(context: &Context, request: Arc<Request>) {
    let name = request.name.clone();
    drop(
        context
            .requests
            .wrote(&name, version(&name), RequestView::Pending(request)),
    );
}

#[tokio::test]
async fn a_flood_for_one_machine_leaves_room_for_the_others_and_for_edge_pools() {
    let context = context(Calm);
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
    for i in 1..MAX_OF_REQUESTER {
        let node = if i > MAX_OF_MACHINE { "unknown" } else { "flooded" };
        keep(&context, pending(&format!("csr-{i}"), node));
    }
    let last = pending("last", "unknown");
    assert!(context.is_kept(&last));
    keep(&context, last);
    for (node, kept) in [
        ("unknown", false),
        ("flooded", false),
        ("joined", false),
        ("joins", true),
        ("edge", true),
    ] {
        assert_eq!(context.is_kept(&pending("csr", node)), kept, "{node}");
    }
    assert_eq!(context.reporting.metrics.dropped.get(), 3);
}

#[tokio::test]
async fn only_those_who_ask_for_a_node_are_woken_for_it() {
    let context = context(Calm);
    for (account, node) in [("a", "node"), ("b", "other")] {
        let request = Request {
            requester: Requester(account.to_owned()),
            ..Request::for_test(account, jiff::Timestamp::UNIX_EPOCH, Ok(node.to_owned()))
        };
        keep(&context, Arc::new(request));
    }
    context.wake_for("node");
    let woken = context.queue.next().await;
    assert_eq!(woken, Key::Requester(Requester("a".to_owned())));
    assert_eq!(context.queue.depth(), 1, "which is worked on");
}
