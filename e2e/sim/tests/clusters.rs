//! One process serves clusters that come and go. It is a test program of its own, because it measures its own
//! memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use csr_approver::CsrApprover;
use jiff::Timestamp;
use osc_controller::OscController;
use osm_api::definitions;
use osm_api::rbac::{Installation, Service};
use osm_runtime::Controller;
use osm_runtime::replicas::Replicas;
use osm_runtime::{Cluster, CommonArgs, Connection, Environment, Process, Scope, settings_watch};
use osm_sim::memory::{Link, Server, User};
use osm_testkit::procfs::Usage;
use osm_testkit::{fixtures, installation};
use secret_syncer::SecretSyncer;
use serde_json::json;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

/// How often a cluster begins to be served.
const TIMES: usize = 1_000;
/// After so many, caches of the process are as large as they get.
const SETTLED: usize = 100;
const MORE_BYTES: u64 = 2 * 1024 * 1024;

/// A pool whose profile doesn't exist, the config that osc-controller makes for it, and a machine that does
/// not join.
fn server() -> Result<Server> {
    let server = Server::new(Timestamp::from_second(1_790_000_000)?);
    let installation = Installation::default();
    server.load(&[definitions::PROFILES, definitions::CONFIGS].map(definitions::parse))?;
    server.load(&installation::manifests(&installation))?;
    let machine = json!({
        "apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "machine", "namespace": "kube-system", "labels": {"pool": "pool"},
            "creationTimestamp": "2020-01-01T00:00:00Z"},
        "spec": {},
    });
    server.load(&[
        installation::settings(&installation, ""),
        fixtures::machine_deployment("pool", "no-profile"),
        machine,
    ])?;
    Ok(server)
}

/// The metric lines, with their values.
fn series(process: &Process) -> Vec<String> {
    let text = String::from_utf8_lossy(&process.metrics.encode()).into_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

fn names(process: &Process) -> BTreeSet<String> {
    let lines = series(process).into_iter();
    lines
        .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
        .collect()
}

/// The objects that are counted by condition.
fn counted(process: &Process) -> u64 {
    let lines = series(process).into_iter();
    let objects =
        lines.filter(|line| line.starts_with("osm_objects{") || line.starts_with("osm_owned_objects"));
    let values = objects.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    values.sum()
}

async fn until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    let waited = timeout(Duration::from_secs(120), waiting).await;
    ensure!(waited.is_ok(), "{what}");
    Ok(())
}

async fn clusters_come_and_go<C: Controller>(service: Service, server: &Server) -> Result<()> {
    let link = Link::default();
    let process = Process::new(service, CommonArgs::default(), Environment::default())?;
    let connect = || Connection::by(&process, [(); 2].map(|()| server.client(User::Admin, &link)));
    let (scope, management) = (Scope::of(&process), connect());
    let installation = Installation::default();
    let settings = settings_watch::spawn(&scope, &management, &installation);
    let replicas = Replicas::watch(&scope, &management, &installation)
        .replicas()
        .clone();
    let cluster = |scope: Scope| {
        let connections = [management.clone(), connect()];
        Cluster::new(
            scope,
            installation.clone(),
            connections,
            settings.clone(),
            replicas.clone(),
        )
    };
    let controller = Arc::new(C::start(&cluster(scope.clone()))?);
    scope.gates.opened("watch of ").await;
    sleep(Duration::from_secs(1)).await;
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let mut settled = None;
    for time in 1..=TIMES {
        let part = scope.part();
        let (controller, served) = (controller.clone(), cluster(part.clone()));
        let serving = tokio::spawn(async move { controller.serve(served).await });
        until("the cluster is served", || counted(&process) > 0).await?;
        part.shutdown.cancel();
        serving.await?;
        until("nothing is counted of it", || counted(&process) == 0).await?;
        if time == SETTLED {
            // The Lease of the process is renewed by then.
            sleep(Duration::from_secs(60)).await;
            let rss = Usage::of(std::process::id())?.rss;
            settled = Some((tasks(), names(&process), rss));
        }
    }
    let (tasks_before, names_before, rss_before) = settled.unwrap_or_default();
    let (name, rss) = (service.name(), Usage::of(std::process::id())?.rss);
    println!("{name}: {rss_before} bytes after {SETTLED} times, {rss} after {TIMES}");
    ensure!(
        tasks() == tasks_before,
        "{name}: {} tasks, {tasks_before} before",
        tasks()
    );
    let names = names(&process);
    let more: Vec<&String> = names.difference(&names_before).collect();
    ensure!(more.is_empty(), "{name}: {more:#?}");
    ensure!(
        rss <= rss_before + MORE_BYTES,
        "{name}: {rss} bytes, {rss_before} before"
    );
    process.shutdown.cancel();
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_no_longer_served_leaves_nothing_behind() -> Result<()> {
    let server = server()?;
    clusters_come_and_go::<OscController>(Service::OscController, &server).await?;
    clusters_come_and_go::<SecretSyncer>(Service::SecretSyncer, &server).await?;
    clusters_come_and_go::<CsrApprover>(Service::CsrApprover, &server).await?;
    Ok(())
}
