//! A pool keeps the API server's address that it was rendered with while the cluster names it. In these clusters, only EndpointSlices do.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use osm_api::config::Rendered;
use osm_api::names;
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use serde_json::json;

use crate::world::{DEADLINE, World};

/// What changes with each publish: generation of the config, resourceVersion of the bootstrap Secret.
type Published = (Option<i64>, Option<String>);

fn url(address: &str) -> String {
    format!("https://{address}:6443")
}

/// The ready addresses of the API servers. kube-apiserver maintains an EndpointSlice of its own, whose address comes after these.
async fn api_servers(world: &World, addresses: &[&str]) -> Result<()> {
    let endpoints: Vec<_> = addresses
        .iter()
        .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
        .collect();
    world
        .apply(
            &json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "control-plane", "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"}},
            "endpoints": endpoints, "ports": [{"name": "https", "port": 6443, "protocol": "TCP"}]}),
        )
        .await
}

async fn rendered(world: &World, pool: &str) -> Result<Rendered> {
    let status = world.config(pool).await?.status.unwrap_or_default();
    status.rendered.context("nothing is rendered")
}

async fn published(world: &World, pool: &str) -> Result<Published> {
    let generation = world.config(pool).await?.metadata.generation;
    Ok((generation, world.bootstrap(pool).await?.resource_version()))
}

async fn moves_to(world: &World, pool: &str, address: &str) -> Result<()> {
    let what = format!("{pool} to be published with {address}");
    let moved = wait_for(&what, DEADLINE, async || {
        let machine = world.machine(pool, 1).await?;
        let is_new = machine.text.contains(&url(address));
        check(is_new && rendered(world, pool).await?.api_server == Some(url(address)))
    });
    moved.await.map_err(|error| error.context(world.installed.logs()))
}

/// Waits until osc-controller, which has just started, has reconciled these pools. A setting that changes no content proves it.
async fn reconciled(world: &mut World, pools: &[&str], limit: u32) -> Result<()> {
    let mut before = Vec::new();
    for pool in pools {
        before.push(rendered(world, pool).await?.settings_digest);
    }
    world.installed.kill9(Service::OscController)?;
    let settings = json!({"limits": {"machineDeployments": limit}}).to_string();
    world.set_settings(&settings).await?;
    world.installed.start(Service::OscController).await?;
    for (pool, before) in pools.iter().zip(before) {
        wait_for("a reconcile", DEADLINE, async || {
            check(rendered(world, pool).await?.settings_digest != before)
        })
        .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_pool_with_an_address_that_is_still_listed_is_published_again() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    let maps = world.api::<ConfigMap>("kube-public");
    world.delete(&maps, "cluster-info").await?;
    api_servers(&world, &["10.0.0.1", "10.0.0.2"]).await?;
    world.installed.start_all().await?;
    world
        .accepted_profile("osp-tiny", "v1.0.0", "{{cluster.apiServer}}\n")
        .await?;
    let create = async |world: &World, pool: &str| {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await
    };
    create(&world, "a").await?;
    moves_to(&world, "a", "10.0.0.1").await?;
    let message = world.says("a", "Rendered", true, "Rendered").await?;
    ensure!(
        message.contains("all new nodes depend on https://10.0.0.1:6443")
            && message.contains("set cluster.apiServer in the settings"),
        "{message}"
    );

    // This one had an address of its own, which the EndpointSlice names as well.
    create(&world, "own").await?;
    let own = |text: Option<String>| json!({"metadata": {"annotations": {names::SETTINGS: text}}});
    let settings = format!("cluster: {{apiServer: '{}'}}", url("10.0.0.2"));
    world.patch_pool("own", own(Some(settings))).await?;
    moves_to(&world, "own", "10.0.0.2").await?;
    world.patch_pool("own", own(None)).await?;

    // Another order, and a process that knows nothing of before. A new pool joins the others.
    let before = (published(&world, "a").await?, published(&world, "own").await?);
    api_servers(&world, &["10.0.0.2", "10.0.0.1"]).await?;
    reconciled(&mut world, &["a", "own"], 1001).await?;
    create(&world, "new").await?;
    moves_to(&world, "new", "10.0.0.1").await?;
    ensure!(before == (published(&world, "a").await?, published(&world, "own").await?));

    // The first control-plane node is stopped: only the pools that depended on it are published again.
    api_servers(&world, &["10.0.0.2", "10.0.0.3"]).await?;
    moves_to(&world, "a", "10.0.0.2").await?;
    reconciled(&mut world, &["a", "own"], 1002).await?;
    ensure!(before.1 == published(&world, "own").await?);

    // It is back: nothing changes.
    let before = (published(&world, "a").await?, published(&world, "own").await?);
    api_servers(&world, &["10.0.0.1", "10.0.0.2", "10.0.0.3"]).await?;
    reconciled(&mut world, &["a", "own"], 1003).await?;
    ensure!(before == (published(&world, "a").await?, published(&world, "own").await?));

    // A config of a version that recorded no address gets the record, and nothing else.
    world.installed.kill9(Service::OscController)?;
    let patch = json!({"status": {"rendered": {"apiServer": null}}});
    let name = names::config_name("a", "kube-system");
    world
        .configs()
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?;
    ensure!(rendered(&world, "a").await?.api_server.is_none());
    world.installed.start(Service::OscController).await?;
    reconciled(&mut world, &["a"], 1004).await?;
    ensure!(rendered(&world, "a").await?.api_server == Some(url("10.0.0.2")));
    ensure!(before.0 == published(&world, "a").await?);
    Ok(())
}
