//! Objects that a service can't decode: nested deeper than a decoder goes. Each is reported by
//! itself, and everything else goes on, also after a restart.

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use osm_api::condition;
use osm_api::names;
use osm_api::profile::OperatingSystemProfileStatus;
use osm_api::rbac::Service;
use osm_testkit::{check, wait_for};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::shared::in_shared_world;
use crate::world::{self, DEADLINE, NAMESPACE, World, machine_deployment};

const POOLS: &str = "/apis/cluster.k8s.io/v1alpha1/namespaces/kube-system/machinedeployments";
const GROUP: &str = "/apis/operatingsystemmanager.k8c.io/v1alpha1/namespaces";

/// The place of nested lists in an object.
const DEEP: &str = "@deep@";

/// Sends an object in which [`DEEP`] is replaced by so many nested lists. No type and no tree could hold it.
async fn send(client: &Client, method: &str, path: &str, object: &Value, levels: usize) -> Result<()> {
    let lists = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let text = object.to_string().replace(&format!("{DEEP:?}"), &lists);
    let content = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", content)
        .body(text.into_bytes())?;
    client.request_text(request).await?;
    Ok(())
}

/// The condition `Accepted` of a profile whose spec may be deep.
async fn accepted(world: &World, name: &str, reason: &str) -> Result<String> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        status: OperatingSystemProfileStatus,
    }
    let path = format!("{GROUP}/{NAMESPACE}/operatingsystemprofiles/{name}");
    let what = format!("Accepted={reason} of {name}");
    let found = wait_for(&what, DEADLINE, async || {
        let request = Request::get(&path).body(Vec::new())?;
        let head: Head = serde_json::from_str(&world.managed.request_text(request).await?)?;
        let found = condition::find(&head.status.conditions, condition::ACCEPTED).context("a condition")?;
        ensure!(found.reason == reason && found.status == "False", "{found:?}");
        Ok(Some(found.message.clone()))
    });
    found.await.map_err(|error| error.context(world.installed.logs()))
}

async fn counts(world: &World, service: Service, kind: &str) -> Result<()> {
    let line = format!("osm_unreadable_objects_total{{cluster=\"single\",watch={kind:?}}}");
    wait_for(&line, DEADLINE, async || {
        let (_, metrics) = world.installed.get(service, "/metrics").await?;
        let counts = |found: &str| found.starts_with(&line) && !found.ends_with(" 0");
        check(metrics.lines().any(counts))
    })
    .await
}

/// A new pool is published, which needs every service and every watch.
async fn works(world: &World, pool: &str) -> Result<()> {
    world.pool(pool, "osp-tiny").await?;
    world.stamp(pool, 1).await?;
    world.machine(pool, 1).await.map(drop)
}

#[test]
fn an_object_that_is_too_deep_is_reported_and_affects_no_other() -> Result<()> {
    in_shared_world(async |world| {
        world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
        works(world, "first").await?;

        let mut deep = machine_deployment("deep", "osp-tiny");
        deep["spec"]["template"]["spec"]["providerSpec"]["value"]["operatingSystemSpec"] = json!({"x": DEEP});
        send(&world.client, "POST", POOLS, &deep, 200).await?;
        let message = world.says("deep", "Rendered", false, "ObjectUnreadable").await?;
        ensure!(
            message.contains(
                "spec.template.spec.providerSpec.value.operatingSystemSpec.x[0] is nested too deeply"
            ),
            "{message}"
        );
        world.event("kube-system", "deep", "ObjectUnreadable").await?;
        counts(world, Service::OscController, "machinedeployments").await?;

        let profile = |name: &str| {
            let mut profile = world::profile(name, "v1.0.0", "one\n");
            profile["spec"]["provisioningConfig"]["modules"] = json!({"x": DEEP});
            profile
        };
        let profiles = format!("{GROUP}/{NAMESPACE}/operatingsystemprofiles");
        send(&world.managed, "POST", &profiles, &profile("osp-deep"), 200).await?;
        let message = accepted(world, "osp-deep", "ObjectUnreadable").await?;
        ensure!(message.contains("spec.provisioningConfig.modules.x"), "{message}");
        world.event(NAMESPACE, "osp-deep", "ObjectUnreadable").await?;
        // It can be read, but the copy in the status, which is deeper, could not.
        send(&world.managed, "POST", &profiles, &profile("osp-edge"), 120).await?;
        let message = accepted(world, "osp-edge", "ProfileInvalid").await?;
        ensure!(
            message.contains("spec.provisioningConfig: nested too deeply"),
            "{message}"
        );

        // Configs that someone writes by hand: over one of ours, for a pool that does not exist yet, and for
        // none.
        let configs = format!("{GROUP}/{NAMESPACE}/operatingsystemconfigs");
        let over = json!({"spec": {"osVersion": "by hand", "provisioningConfig": {"modules": {"x": DEEP}}}});
        let first = format!("{configs}/{}", names::config_name("first", "kube-system"));
        send(&world.managed, "PATCH", &first, &over, 200).await?;
        for name in ["by-hand".to_owned(), names::config_name("later", "kube-system")] {
            let config = json!({"apiVersion": "operatingsystemmanager.k8c.io/v1alpha1", "kind": "OperatingSystemConfig",
            "metadata": {"name": name}, "spec": {"provisioningConfig": {"modules": {"x": DEEP}}}});
            send(&world.managed, "POST", &configs, &config, 200).await?;
        }
        world.event(NAMESPACE, "by-hand", "ObjectUnreadable").await?;
        counts(world, Service::OscController, "operatingsystemconfigs").await?;
        counts(world, Service::SecretSyncer, "operatingsystemconfigs").await?;
        // Over one of ours, also where that is all that its spec has too much.
        let deep_only = json!({"spec": {"provisioningConfig": {"modules": {"x": DEEP}}}});
        for over in [None, Some(deep_only)] {
            if let Some(over) = over {
                send(&world.managed, "PATCH", &first, &over, 200).await?;
            }
            wait_for("the config to be restored", DEADLINE, async || {
                let config = world.config("first").await?;
                check(config.spec.provisioning_config.modules.is_none())
            })
            .await?;
        }
        world.says("first", "Published", true, "Published").await?;
        works(world, "later").await?;

        for service in Service::ALL {
            world.installed.terminate(service, DEADLINE).await?;
            world.installed.start(service).await?;
        }
        world.installed.ready(DEADLINE).await?;
        works(world, "after-a-restart").await?;
        world.stamp("first", 2).await?;
        world.machine("first", 2).await?;

        // Once it is corrected, it is a pool like any other.
        let corrected = json!({"spec": {"template": {"spec": {"providerSpec": {"value": {"operatingSystemSpec": null}}}}}});
        world.patch_pool("deep", corrected).await?;
        world.stamp("deep", 1).await?;
        world.machine("deep", 1).await?;
        world.says("deep", "Rendered", true, "Rendered").await?;
        // No service owns this one.
        world.delete(&world.configs(), "by-hand").await?;
        Ok(())
    })
}
