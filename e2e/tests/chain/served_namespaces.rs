//! The namespaces whose MachineDeployments are served: a shorter list takes nothing from a pool that is published.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ListParams;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_testkit::{Options, check, machine_controller, wait_for};
use serde_json::json;

use crate::credentials::bring_renewal_near;
use crate::world::{DEADLINE, World, machine_deployment};

const SERVED: &str = "machines";

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_no_longer_served_keeps_what_is_published_and_gets_nothing_new() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SERVED}});
    world.apply(&namespace).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("before", "osp-tiny").await?;
    world.stamp("before", 1).await?;
    let first = world.machine("before", 1).await?;
    let observer = world.observe().await?;

    world.serve(&[SERVED]).await?;
    let message = world
        .says("before", "Rendered", false, "NamespaceNotServed")
        .await?;
    ensure!(message.contains("what is published stays"), "{message}");
    world.event("kube-system", "before", "NamespaceNotServed").await?;
    // Renewed by the clock, and repaired, also after a restart of the service that does so.
    world.installed.kill9(Service::SecretSyncer)?;
    bring_renewal_near(&world, "before").await?;
    world.installed.start(Service::SecretSyncer).await?;
    let renewed = world
        .machine_with("before", 1, |machine| machine.api_token != first.api_token)
        .await?;
    ensure!(observer.absences().is_empty(), "{:?}", observer.absences());
    world
        .delete(&world.secrets(), &renewed.provisioning_secret)
        .await?;
    world
        .machine_with("before", 1, |machine| machine.api_token != renewed.api_token)
        .await?;
    // New content is not rendered, and neither is a new revision.
    world.accepted_profile("osp-tiny", "v2.0.0", "two\n").await?;
    world.stamp("before", 2).await?;

    // A pool that was never published gets no config, and its Event says why.
    world.pool("after", "osp-tiny").await?;
    world.stamp("after", 1).await?;
    let event = world.event("kube-system", "after", "NamespaceNotServed").await?;
    ensure!(event.contains("--machine-deployment-namespaces"), "{event}");
    // One in a namespace of the list is published.
    let mut served = machine_deployment("served", "osp-tiny");
    served["metadata"]["namespace"] = json!(SERVED);
    served["metadata"]["annotations"][names::REVISION] = json!("1");
    world.apply(&served).await?;
    let name = names::bootstrap_secret_name("served", SERVED);
    wait_for("the pool that is served", DEADLINE, async || {
        let secret = world.api::<Secret>(CLOUD_INIT_SETTINGS).get(&name).await?;
        check(machine_controller::user_data(&secret, "1", "machine").is_ok())
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))?;
    let configs = world.configs().list(&ListParams::default()).await?;
    let mut all: Vec<_> = configs.items.iter().map(ResourceExt::name_any).collect();
    all.sort();
    ensure!(
        all == ["before-kube-system-config", "served-machines-config"],
        "{all:?}"
    );
    let user_data = world.machine("before", 1).await?;
    ensure!(user_data.text.contains("one"), "{}", user_data.text);

    // With the list as before, all of it is rendered at once.
    world.serve(&[]).await?;
    let user_data = world.machine("before", 2).await?;
    ensure!(user_data.text.contains("two"), "{}", user_data.text);
    world.machine("after", 1).await?;
    Ok(())
}

impl World {
    /// Starts osc-controller again with another list of namespaces.
    async fn serve(&mut self, namespaces: &[&str]) -> Result<()> {
        self.installed.terminate(Service::OscController, DEADLINE).await?;
        self.installed.serve_namespaces(namespaces);
        self.installed.start(Service::OscController).await
    }
}
