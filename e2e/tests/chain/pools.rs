//! What is specific to a pool: settings, a subscription, and a script for machines without a cloud provider.

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::world::{DEADLINE, World, machine_deployment, profile};

/// A password that every language on its way could misread.
const PASSWORD: &str = "hunter2 \"quo'ted\\ : # {{x}} $(reboot)";

fn annotated(settings: &str) -> Value {
    json!({"metadata": {"annotations": {names::SETTINGS: settings}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pools_settings_are_its_own() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.set_settings("proxy: {http: 'http://common:3128'}").await?;
    world
        .accepted_profile("osp-tiny", "v1.0.0", "{{proxy.http}} {{pauseImage}}\n")
        .await?;
    for pool in ["own", "other"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
    }
    let boots_with = async |pool, text: &str| {
        world
            .machine_with(pool, 1, |machine| machine.text.contains(text))
            .await
    };
    boots_with("own", "http://common:3128").await?;

    world
        .patch_pool("own", annotated("proxy: {http: 'http://own:3128'}"))
        .await?;
    boots_with("own", "http://own:3128").await?;

    // A ConfigMap that is not there yet, then is, is broken, and is mended: followed without any other event.
    world
        .patch_pool(
            "own",
            annotated("{fromConfigMap: ours, proxy: {http: 'http://own:3128'}}"),
        )
        .await?;
    let message = world
        .says("own", "Rendered", false, "PoolSettingsMissing")
        .await?;
    assert!(
        message.contains("ConfigMap kube-system/ours is missing"),
        "{message}"
    );
    let config_map = |document: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours", "namespace": "kube-system"},
            "data": {names::SETTINGS_KEY: document}})
    };
    world
        .apply(&config_map(
            "{pauseImage: pause:one, proxy: {http: 'http://map:3128'}}",
        ))
        .await?;
    boots_with("own", "http://own:3128 pause:one").await?;
    world.apply(&config_map("proxy: {http: hunter2}")).await?;
    let message = world
        .says("own", "Rendered", false, "PoolSettingsInvalid")
        .await?;
    assert!(
        message.contains("ConfigMap ours, key settings.yaml: proxy.http: must be"),
        "{message}"
    );
    assert!(!message.contains("hunter2"), "{message}");
    boots_with("own", "http://own:3128 pause:one").await?;
    world.event("kube-system", "own", "PoolSettingsInvalid").await?;
    world.apply(&config_map("pauseImage: pause:two")).await?;
    boots_with("own", "pause:two").await?;
    world.says("own", "Rendered", true, "Rendered").await?;

    // Whom the installation trusts is not the pool's to say.
    world
        .patch_pool(
            "own",
            annotated("credentials: {allowedSources: [{namespace: kube-system, secrets: [x]}]}"),
        )
        .await?;
    world
        .says("own", "Rendered", false, "PoolSettingsInvalid")
        .await?;
    let registry =
        "containerd: {registries: [{host: r.example, credentials: {namespace: kube-system, name: x}}]}";
    world.patch_pool("own", annotated(registry)).await?;
    let message = world.says("own", "Published", false, "SourceNotAllowed").await?;
    assert!(
        message.contains("Secret kube-system/x") && message.contains("allowedSources"),
        "{message}"
    );
    boots_with("own", "pause:two").await?;
    boots_with("other", "http://common:3128").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_provisioning_document_contains_a_subscriptions_password() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let mut tiny = profile("osp-red", "v1.0.0", "one\n");
    tiny["spec"]["osName"] = json!("rhel");
    world.apply(&tiny).await?;
    let mut pool = machine_deployment("p", "osp-red");
    let provider = pool
        .pointer_mut("/spec/template/spec/providerSpec/value")
        .context("the provider")?;
    provider["operatingSystem"] = json!("rhel");
    provider["operatingSystemSpec"] =
        json!({"rhelSubscriptionManagerUser": "me", "rhelSubscriptionManagerPassword": PASSWORD});
    world.apply(&pool).await?;
    world.stamp("p", 1).await?;
    let subscription = async || -> Result<Value> {
        let machine = world.machine("p", 1).await?;
        assert!(
            !machine.text.contains("hunter2"),
            "the cloud's metadata service tells it to everybody"
        );
        let document: Value = serde_saphyr::from_str(&world.fetch(&machine).await?)?;
        Ok(document["rh_subscription"].clone())
    };
    assert_eq!(
        subscription().await?,
        json!({"username": "me", "password": PASSWORD})
    );

    // From a Secret, where the installation allows it.
    let reference =
        json!({"secretKeyRef": {"namespace": CLOUD_INIT_SETTINGS, "name": "red-hat", "key": "key"}});
    let spec = json!({"rhelOrganizationName": "12", "rhelActivationKey": reference,
        "rhelSubscriptionManagerUser": null, "rhelSubscriptionManagerPassword": null});
    world
        .patch_pool("p", json!({"spec": {"template": {"spec": {"providerSpec": {"value": {"operatingSystemSpec": spec}}}}}}))
        .await?;
    world.stamp("p", 2).await?;
    world.says("p", "Published", false, "SourceNotAllowed").await?;
    world
        .set_settings(&format!(
            "credentials: {{allowedSources: [{{namespace: {CLOUD_INIT_SETTINGS}, secrets: [red-hat]}}]}}"
        ))
        .await?;
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "red-hat", "namespace": CLOUD_INIT_SETTINGS},
            "stringData": {"key": PASSWORD}}))
        .await?;
    let machine = world.machine("p", 2).await?;
    let document: Value = serde_saphyr::from_str(&world.fetch(&machine).await?)?;
    assert_eq!(
        document["rh_subscription"],
        json!({"org": "12", "activation-key": PASSWORD})
    );
    let config = serde_json::to_string(&world.config("p").await?)?;
    assert!(!config.contains("hunter2") && !world.installed.logs().contains("hunter2"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edge_pool_has_a_script_from_its_first_moment_to_its_last() -> Result<()> {
    let world = World::start(Options::default()).await?;
    let mut tiny = profile("osp-tiny", "v1.0.0", "one\n");
    tiny["spec"]["supportedCloudProviders"] = json!([{"name": "edge"}]);
    world.apply(&tiny).await?;
    let mut pool = machine_deployment("p", "osp-tiny");
    pool["spec"]["template"]["spec"]["providerSpec"]["value"]["cloudProvider"] = json!("edge");
    let name = names::edge_script_secret_name("p", "kube-system");
    // As the Go implementation leaves it.
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS},
            "stringData": {names::EDGE_SCRIPT_KEY: "old"}}))
        .await?;
    world.apply(&pool).await?;
    let script = async || -> Result<Option<String>> {
        let Some(secret) = world.secrets().get_opt(&name).await? else {
            return Ok(None);
        };
        let script = secret
            .data
            .and_then(|mut data| data.remove(names::EDGE_SCRIPT_KEY))
            .unwrap_or_default();
        Ok(Some(String::from_utf8(script.0)?).filter(|script| script.starts_with("#!/bin/sh\n")))
    };
    // Nobody stamps a revision, and nobody needs one.
    let first = wait_for("the script", DEADLINE, async || script().await)
        .await
        .map_err(|error| error.context(world.installed.logs()))?;
    let bootstrap = world.bootstrap("p").await?;
    let text = bootstrap
        .data
        .unwrap_or_default()
        .remove(names::CLOUD_CONFIG_KEY)
        .context("a document")?;
    let document: Value = serde_saphyr::from_str(&String::from_utf8(text.0)?)?;
    assert_eq!(document["hostname"], "p");
    osm_judges::shell_script("edge", &first).map_err(|verdict| anyhow::anyhow!("{verdict}"))?;

    for data in [b"#!/bin/sh\nreboot\n".as_slice(), b""] {
        let patch = json!({"data": {names::EDGE_SCRIPT_KEY: ByteString(data.to_vec())}});
        world
            .secrets()
            .patch(&name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        wait_for("the script to be put right", DEADLINE, async || {
            check(
                script()
                    .await?
                    .is_some_and(|script| script.contains("osm-bootstrap")),
            )
        })
        .await?;
    }
    world.delete(&world.secrets(), &name).await?;
    wait_for("the script to come back", DEADLINE, async || script().await).await?;
    world.says("p", "Published", true, "Published").await?;

    // Elsewhere there is none.
    world
        .patch_pool(
            "p",
            json!({"spec": {"template": {"spec": {"providerSpec": {"value": {"cloudProvider": "aws"}}}}}}),
        )
        .await?;
    world.apply(&profile("osp-tiny", "v1.0.1", "one\n")).await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;
    wait_for("the script to go", DEADLINE, async || {
        check(world.secrets().get_opt(&name).await?.is_none())
    })
    .await?;
    let back =
        json!({"spec": {"template": {"spec": {"providerSpec": {"value": {"cloudProvider": "edge"}}}}}});
    tiny["spec"]["version"] = json!("v1.0.2");
    world.apply(&tiny).await?;
    world.patch_pool("p", back).await?;
    world.stamp("p", 2).await?;
    wait_for("the script to come back", DEADLINE, async || script().await).await?;
    let pool = world.pools().get("p").await?;
    world.delete(&world.pools(), &pool.name_any()).await?;
    wait_for("everything to be undone", DEADLINE, async || {
        check(world.made().await?.is_empty() && world.secrets().get_opt(&name).await?.is_none())
    })
    .await?;
    Ok(())
}
