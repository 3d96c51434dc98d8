//! Values from other objects: when they change, new machines get the new values within seconds.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use osm_api::condition;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_testkit::fixtures;
use osm_testkit::installation::IDENTITIES;
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::credentials::bring_renewal_near;
use crate::world::{DEADLINE, UserData, World, machine_deployment, profile};

/// "Seconds", on a machine that has other things to do.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(20);

fn object(kind: &str, name: &str, field: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS}, field: data})
}

/// Each kind of source, holding this value.
fn sources(value: &str) -> Vec<(&'static str, Value)> {
    let docker = |auth: Value| json!({"auths": {"https://docker.example/v1/": auth}}).to_string();
    let auth = docker(json!({"auth": STANDARD.encode(format!("user:{value}-docker"))}));
    let pair = docker(json!({"username": "user", "password": format!("{value}-docker")}));
    let mut docker = object(
        "Secret",
        "docker",
        "stringData",
        &json!({".dockerconfigjson": auth}),
    );
    docker["type"] = json!("kubernetes.io/dockerconfigjson");
    let mut docker_pair = object(
        "Secret",
        "docker",
        "stringData",
        &json!({".dockerconfigjson": pair}),
    );
    docker_pair["type"] = docker["type"].clone();
    let plain = json!({"username": "user", "password": format!("{value}-plain")});
    vec![
        (
            "docker",
            if value.starts_with("second") {
                docker_pair
            } else {
                docker
            },
        ),
        ("plain", object("Secret", "plain", "stringData", &plain)),
        (
            "proxy",
            object(
                "Secret",
                "proxy",
                "stringData",
                &json!({"username": "node@site", "password": format!("{value}-proxy")}),
            ),
        ),
        (
            "key",
            object(
                "Secret",
                "red-hat",
                "stringData",
                &json!({"key": format!("{value}-key")}),
            ),
        ),
        (
            "organization",
            object(
                "ConfigMap",
                "red-hat",
                "data",
                &json!({"organization": format!("{value}-organization")}),
            ),
        ),
    ]
}

/// What docs/settings.md says has to be granted for a ConfigMap, though it is in the namespace of our own Secrets.
pub async fn grant_config_map(world: &World, name: &str) -> Result<()> {
    let (rbac, metadata) = (
        "rbac.authorization.k8s.io",
        json!({"name": "sources", "namespace": CLOUD_INIT_SETTINGS}),
    );
    let verbs = ["get", "list", "watch"];
    world
        .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": verbs}]}))
        .await?;
    world
        .apply(&json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "sources"},
            "subjects": [{"kind": "ServiceAccount", "name": Service::SecretSyncer.name(), "namespace": IDENTITIES}]}))
        .await
}

/// The message of a condition `Published` that is False for this reason, once it says that what is published is renewed.
async fn kept(world: &World, reason: &str) -> Result<()> {
    let what = format!("{reason}, and what is published to be kept");
    let kept = wait_for(&what, DEADLINE, async || {
        let status = world.config("p").await?.status.unwrap_or_default();
        let published = condition::find(&status.conditions, "Published").cloned();
        check(published.is_some_and(|published| {
            published.status == "False"
                && published.reason == reason
                && published.message.contains("kept and its credentials are renewed")
        }))
    });
    kept.await.map_err(|error| error.context(world.installed.logs()))
}

/// What is published, with this value, is renewed and restored by a process that knows nothing of before.
async fn outlives_a_restart(world: &mut World, reason: &str, value: &str) -> Result<()> {
    let before = world.machine("p", 1).await?;
    world.installed.kill9(Service::SecretSyncer)?;
    let soon = bring_renewal_near(world, "p").await?;
    world.installed.start(Service::SecretSyncer).await?;
    kept(world, reason).await?;
    let renewed = world
        .machine_with("p", 1, |machine| machine.api_token != before.api_token)
        .await?;
    assert!(Timestamp::now() >= soon, "renewed before its time");
    assert!(world.fetch(&renewed).await?.contains(value));

    world
        .delete(
            &world.secrets(),
            &names::bootstrap_secret_name("p", "kube-system"),
        )
        .await?;
    let again = world
        .machine_with("p", 1, |machine| machine.api_token != renewed.api_token)
        .await?;
    let roles: Api<Role> = world.api(CLOUD_INIT_SETTINGS);
    let identity = world.bootstrap("p").await?.labels()[names::POOL].clone();
    world.delete(&roles, &format!("osm-node-{identity}")).await?;
    let last = world
        .machine_with("p", 1, |machine| machine.api_token != again.api_token)
        .await?;
    assert_eq!(last.provisioning_secret, before.provisioning_secret);
    kept(world, reason).await?;

    let (_, metrics) = world.installed.get(Service::SecretSyncer, "/metrics").await?;
    let name = "osm_credentials_earliest_expiry_timestamp_seconds ";
    let expiry = metrics.lines().find_map(|line| line.strip_prefix(name));
    let expiry: i64 = expiry.context(name)?.parse::<f64>()? as i64;
    let expected: Timestamp = world.bootstrap("p").await?.annotations()[names::EXPIRES].parse()?;
    assert_eq!(expiry, expected.as_second());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_is_renewed_and_restored_without_sources_settings_and_config() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    let settings = json!({"containerd": {"registries": [
        {"host": "plain.example", "credentials": {"name": "plain"}}]}})
    .to_string();
    world.set_settings(&settings).await?;
    let (_, source) = sources("first").into_iter().nth(1).context("a source")?;
    world.apply(&source).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.says("p", "Published", true, "Published").await?;

    world.delete(&world.secrets(), "plain").await?;
    outlives_a_restart(&mut world, "SourceMissing", "first-plain").await?;

    world.take_settings().await?;
    outlives_a_restart(&mut world, "SettingsMissing", "first-plain").await?;
    world.set_settings(&settings).await?;
    world.apply(&source).await?;
    world.says("p", "Published", true, "Published").await?;

    // Edited by hand while nobody is there to put it right.
    world.installed.kill9(Service::OscController)?;
    let edit = json!({"status": {"rendered": {"bootstrap": "by hand"}}});
    world
        .configs()
        .patch_status(
            &names::config_name("p", "kube-system"),
            &PatchParams::default(),
            &Patch::Merge(&edit),
        )
        .await?;
    outlives_a_restart(&mut world, "ContentAltered", "first-plain").await?;
    world.installed.start(Service::OscController).await?;
    world.says("p", "Published", true, "Published").await?;
    assert!(!world.installed.logs().contains("first-plain"));
    Ok(())
}

/// The pool `p`, whose subscription is in the ConfigMap and the Secret `red-hat`.
async fn red_hat_pool(world: &World) -> Result<()> {
    let mut red = profile("osp-red", "v1.0.0", "one\n");
    red["spec"]["osName"] = json!("rhel");
    world.apply(&red).await?;
    let reference = |key: &str| json!({"namespace": CLOUD_INIT_SETTINGS, "name": "red-hat", "key": key});
    let mut pool = machine_deployment("p", "osp-red");
    let provider = pool
        .pointer_mut("/spec/template/spec/providerSpec/value")
        .context("the provider")?;
    provider["operatingSystem"] = json!("rhel");
    provider["operatingSystemSpec"] = json!({"rhelOrganizationName": {"configMapKeyRef": reference("organization")},
        "rhelActivationKey": {"secretKeyRef": reference("key")}});
    world.apply(&pool).await?;
    world.stamp("p", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_is_renewed_and_restored_without_permission_to_read_its_sources() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    grant_config_map(&world, "red-hat").await?;
    let settings = |secrets: &[&str]| {
        let allowed =
            json!({"namespace": CLOUD_INIT_SETTINGS, "secrets": secrets, "configMaps": ["red-hat"]});
        json!({"credentials": {"allowedSources": [allowed]}}).to_string()
    };
    world.set_settings(&settings(&["red-hat"])).await?;
    for (_, source) in sources("first").into_iter().skip(2) {
        world.apply(&source).await?;
    }
    red_hat_pool(&world).await?;
    world.says("p", "Published", true, "Published").await?;

    // A name is taken out of `allowedSources`.
    world.set_settings(&settings(&["another"])).await?;
    outlives_a_restart(&mut world, "SourceNotAllowed", "first-organization").await?;
    let message = world.says("p", "Published", false, "SourceNotAllowed").await?;
    assert!(
        message.contains(&format!("Secret {CLOUD_INIT_SETTINGS}/red-hat is not listed")),
        "{message}"
    );
    world.set_settings(&settings(&["red-hat"])).await?;
    world.says("p", "Published", true, "Published").await?;

    // The permission to read the ConfigMap is revoked.
    world
        .delete(&world.api::<RoleBinding>(CLOUD_INIT_SETTINGS), "sources")
        .await?;
    outlives_a_restart(&mut world, "SourceUnreadable", "first-organization").await?;
    let message = world.says("p", "Published", false, "SourceUnreadable").await?;
    assert!(
        message.contains(&format!("ConfigMap {CLOUD_INIT_SETTINGS}/red-hat can't be read")),
        "{message}"
    );
    assert!(!world.installed.logs().contains("first-"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_source_is_followed() -> Result<()> {
    let world = World::start(Options::default()).await?;
    grant_config_map(&world, "red-hat").await?;
    let registry = |host: &str, secret: &str| json!({"host": host, "credentials": {"name": secret}});
    let allowed =
        json!({"namespace": CLOUD_INIT_SETTINGS, "secrets": ["red-hat"], "configMaps": ["red-hat"]});
    let settings = json!({
        "containerd": {"registries": [registry("docker.example", "docker"), registry("plain.example", "plain")]},
        "proxy": {"http": "http://proxy.example:3128", "credentials": {"name": "proxy"}},
        "credentials": {"allowedSources": [allowed]},
    });
    world.set_settings(&settings.to_string()).await?;
    for (_, source) in sources("first") {
        world.apply(&source).await?;
    }
    red_hat_pool(&world).await?;
    let mut machine: UserData = world.machine("p", 1).await?;
    let first = world.fetch(&machine).await?;
    assert!(first.contains("\"http://node%40site:first-proxy@proxy.example:3128\""));
    for what in ["docker", "plain", "proxy", "key", "organization"] {
        assert!(first.contains(&format!("first-{what}")), "{what}");
    }
    let observer = world.observe().await?;
    // The second time the watch knows it already; the third time it is back as it was, and so is the document.
    for value in ["second", "third", "first"] {
        for (what, source) in sources(value) {
            world.apply(&source).await?;
            let changed = format!("{value}-{what}");
            let new = wait_for(
                &format!("{changed} on the next machine"),
                FOLLOWED_WITHIN,
                async || {
                    let new = world.machine("p", 1).await?;
                    let document = world.fetch(&new).await?;
                    Ok(document.contains(&changed).then_some(new))
                },
            )
            .await?;
            // One that is on its way has what its bootstrap was made for.
            world.fetch(&machine).await?;
            assert_ne!(new.provisioning_secret, machine.provisioning_secret);
            machine = new;
        }
    }
    assert_eq!(world.fetch(&machine).await?, first);

    // Gone, it is missed, and nothing is taken away; back, it is followed again.
    for (what, kind, name) in [
        ("key", "Secret", "red-hat"),
        ("organization", "ConfigMap", "red-hat"),
    ] {
        if kind == "Secret" {
            world.delete(&world.secrets(), name).await?;
        } else {
            let maps = world.api::<k8s_openapi::api::core::v1::ConfigMap>(CLOUD_INIT_SETTINGS);
            world.delete(&maps, name).await?;
        }
        let message = world.says("p", "Published", false, "SourceMissing").await?;
        assert!(
            message.contains(&format!("{kind} {CLOUD_INIT_SETTINGS}/{name}")),
            "{message}"
        );
        world.fetch(&world.machine("p", 1).await?).await?;
        let source = sources("fourth")
            .into_iter()
            .find(|(found, _)| *found == what)
            .context(what)?
            .1;
        world.apply(&source).await?;
        wait_for(&format!("the new {what}"), FOLLOWED_WITHIN, async || {
            check(
                world
                    .fetch(&world.machine("p", 1).await?)
                    .await?
                    .contains(&format!("fourth-{what}")),
            )
        })
        .await?;
        world.says("p", "Published", true, "Published").await?;
    }
    assert_eq!(observer.absences(), Vec::<String>::new());
    let text = fixtures::with_documents(&world.config("p").await?)?;
    assert!(
        !text.contains("fourth-") && !world.installed.logs().contains("fourth-"),
        "{}",
        names::CONFIG
    );
    Ok(())
}
