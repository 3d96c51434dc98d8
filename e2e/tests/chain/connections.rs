//! A service has one connection to the API server for all requests and watches. Watches do not grow with what pools name: one ends with
//! the last pool that needs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{ClusterKind, Service};
use osm_runtime::transport;
use osm_testkit::{ControlPlane, Options, check, procfs, wait_for};
use serde_json::json;

use crate::fake_server::FakeServer;
use crate::world::{DEADLINE, World, machine_deployment, profile};

/// A watch ends soon after its last user has gone.
const WATCH_ENDS: Duration = Duration::from_secs(60);

impl World {
    /// Checks each service: it has one connection to each cluster that it needs, for its requests and for those that carry tokens of pools.
    fn has_one_connection_each(&self) -> Result<()> {
        for service in Service::ALL {
            let pid = self.installed.process(service)?.pid();
            let clusters: Vec<&ControlPlane> = match &self.management {
                None => vec![&self.plane],
                Some(management) => {
                    let cluster = |kind: &ClusterKind| match kind {
                        ClusterKind::Management | ClusterKind::Home => management,
                        ClusterKind::Worker => &self.plane,
                    };
                    service.clusters().iter().map(cluster).collect()
                }
            };
            for cluster in clusters {
                let now = procfs::connections(pid, cluster.port())?;
                ensure!(now == 1, "{}: {now} to {}", service.name(), cluster.url());
            }
        }
        Ok(())
    }

    /// Waits until the API server serves at most so many watches of a resource.
    async fn has_watches(&self, resource: &str, most: usize) -> Result<()> {
        let what = format!("at most {most} watches of {resource}");
        wait_for(&what, WATCH_ENDS, async || {
            let now = self.watches(resource).await?;
            ensure!(now <= most, "{now}");
            Ok(Some(()))
        })
        .await
    }

    /// Watches of a resource, as the API server counts them.
    async fn watches(&self, resource: &str) -> Result<usize> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let metrics = self.plane.admin()?.request_text(request).await?;
        let (metric, resource) = (
            "apiserver_longrunning_requests{",
            format!("resource=\"{resource}\""),
        );
        metrics
            .lines()
            .filter(|line| line.starts_with(metric) && line.contains(&resource))
            .map(|line| Ok(line.rsplit(' ').next().context("a value")?.parse::<usize>()?))
            .sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn config_maps_of_pools_are_watched_once() -> Result<()> {
    const MAPS: usize = 40;
    let world = World::start(Options::default()).await?;
    world
        .accepted_profile("osp-tiny", "v1.0.0", "{{cluster.dnsDomain}}\n")
        .await?;
    for i in 0..=MAPS {
        let document = format!("cluster: {{dnsDomain: domain-{i}.example}}");
        world
            .apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{i}"), "namespace": "kube-system"},
                "data": {names::SETTINGS_KEY: document}}))
            .await?;
    }
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let name_map = async |i: usize| {
        let annotation =
            json!({"metadata": {"annotations": {names::SETTINGS: format!("fromConfigMap: map-{i}")}}});
        world.patch_pool("p", annotation).await?;
        // Of one revision, only some contents are kept.
        let revision = u64::try_from(i)? + 1;
        world.stamp("p", revision).await?;
        let domain = format!("domain-{i}.example");
        world
            .machine_with("p", revision, |machine| machine.text.contains(&domain))
            .await
    };
    name_map(0).await?;
    let before = world.watches("configmaps").await?;
    for i in 1..=MAPS {
        name_map(i).await?;
    }
    world.has_watches("configmaps", before).await?;
    world.has_one_connection_each()?;
    // The one that is named is followed.
    let maps = world.api::<k8s_openapi::api::core::v1::ConfigMap>("kube-system");
    let change = json!({"data": {names::SETTINGS_KEY: "cluster: {dnsDomain: changed.example}"}});
    let (params, patch) = (
        kube::api::PatchParams::default(),
        kube::api::Patch::Merge(&change),
    );
    maps.patch(&format!("map-{MAPS}"), &params, &patch).await?;
    let revision = u64::try_from(MAPS)? + 2;
    world.stamp("p", revision).await?;
    world
        .machine_with("p", revision, |machine| machine.text.contains("changed.example"))
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_of_sources_end_and_machine_deployments_are_watched_once() -> Result<()> {
    const SOURCES: usize = 30;
    let world = World::start(Options::default()).await?;
    let mut red = profile("osp-red", "v1.0.0", "one\n");
    red["spec"]["osName"] = json!("rhel");
    world.apply(&red).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("plain", "osp-tiny").await?;
    world.stamp("plain", 1).await?;
    world.machine("plain", 1).await?;
    let before = (
        world.watches("machinedeployments").await?,
        world.watches("secrets").await?,
    );

    let pools: Vec<String> = (0..SOURCES).map(|i| format!("red-{i}")).collect();
    for (i, name) in pools.iter().enumerate() {
        let mut pool = machine_deployment(name, "osp-red");
        let provider = pool
            .pointer_mut("/spec/template/spec/providerSpec/value")
            .context("the provider")?;
        provider["operatingSystem"] = json!("rhel");
        provider["operatingSystemSpec"] = json!({"rhelSubscriptionManagerUser": "user", "rhelSubscriptionManagerPassword": format!("password-{i}")});
        world.apply(&pool).await?;
        world.stamp(name, 1).await?;
    }
    for (i, name) in pools.iter().enumerate() {
        let document = world.fetch(&world.machine(name, 1).await?).await?;
        ensure!(document.contains(&format!("password-{i}")), "{name}");
    }
    world.has_watches("machinedeployments", before.0 + 1).await?;
    world.has_watches("secrets", before.1).await?;
    world.has_one_connection_each()?;
    // A change is seen.
    let changed = json!({"spec": {"template": {"spec": {"providerSpec": {"value": {"operatingSystemSpec":
        {"rhelSubscriptionManagerPassword": "another"}}}}}}});
    world.patch_pool("red-0", changed).await?;
    wait_for("the new password", DEADLINE, async || {
        let document = world.fetch(&world.machine("red-0", 1).await?).await?;
        check(document.contains("another"))
    })
    .await?;

    // A Secret of each registry is followed for as long as the settings name it.
    let registries: Vec<_> = (0..SOURCES)
        .map(|i| json!({"host": format!("r{i}.example"), "credentials": {"name": format!("login-{i}")}}))
        .collect();
    for i in 0..SOURCES {
        let login = json!({"username": "user", "password": format!("login-{i}")});
        world
            .apply(&json!({"apiVersion": "v1", "kind": "Secret", "stringData": login,
                "metadata": {"name": format!("login-{i}"), "namespace": CLOUD_INIT_SETTINGS}}))
            .await?;
    }
    let settings = json!({"containerd": {"registries": registries}});
    world.set_settings(&settings.to_string()).await?;
    let has_login = async |wanted: bool| {
        wait_for("the registries' credentials", DEADLINE, async || {
            let document = world.fetch(&world.machine("plain", 1).await?).await?;
            check(document.contains("login-29") == wanted)
        })
        .await
    };
    has_login(true).await?;
    ensure!(
        world.watches("secrets").await? >= before.1 + SOURCES,
        "each has a watch"
    );
    world.set_settings("").await?;
    has_login(false).await?;
    world.has_watches("secrets", before.1).await?;
    world.has_one_connection_each()?;

    // The last pool with a subscription takes the watch of MachineDeployments with it.
    for name in &pools {
        world.delete(&world.pools(), name).await?;
    }
    world.has_watches("machinedeployments", before.0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn in_two_clusters_each_service_has_one_connection_to_each_that_it_needs() -> Result<()> {
    let world = World::start_in_two(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;
    world.says("p", "Published", true, "Published").await?;
    world.all_ready().await?;
    world.has_one_connection_each()
}

/// Bytes that a service receives of one connection without reading them, as docs/limits.md says.
const UNREAD: usize = 8 * 1024 * 1024;

/// One answer alone may have 512 KiB unread. All of these together would have twice what the connection may have.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_received_and_not_read_is_bounded_for_a_connection() -> Result<()> {
    const ANSWERS: usize = 32;
    const CHUNK: usize = 16 * 1024;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    let server = FakeServer::start(move |mut call| {
        let counter = counter.clone();
        async move {
            call.head(Response::builder()).await?;
            while call.target == "/endless" {
                call.send(&[b'x'; CHUNK]).await?;
                counter.fetch_add(CHUNK, Ordering::SeqCst);
            }
            Ok(())
        }
    })
    .await?;
    let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig())?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let client = transport::connect(&config)?.own;
    let get = async |path: &str| anyhow::Ok(client.send(Request::get(path).body(Body::empty())?).await?);

    let mut unread = Vec::new();
    for _ in 0..ANSWERS {
        unread.push(get("/endless").await?);
    }
    let mut before = 0;
    wait_for("the server to come to a halt", DEADLINE, async || {
        // Further answers come meanwhile, if they are short.
        for _ in 0..50 {
            get("/short").await?;
        }
        let now = sent.load(Ordering::SeqCst);
        let has_halted = now == std::mem::replace(&mut before, now);
        ensure!(has_halted && now >= UNREAD, "{now} bytes");
        Ok(Some(()))
    })
    .await?;
    // Of each answer, the server itself holds a few chunks.
    let most = UNREAD + ANSWERS * 4 * CHUNK;
    let now = sent.load(Ordering::SeqCst);
    ensure!(now <= most, "{now} bytes were sent, and at most {most} may be");

    // Who gives up the others can read on.
    drop(unread);
    let mut answer = get("/endless").await?.into_body();
    let mut read = 0;
    while read < UNREAD {
        let frame = tokio::time::timeout(DEADLINE, answer.frame()).await?;
        read += frame
            .context("it has no end")??
            .data_ref()
            .map_or(0, hyper::body::Bytes::len);
    }
    Ok(())
}
