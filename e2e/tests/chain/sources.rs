//! Values from other objects: when they change, new machines get the new values within seconds.

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_testkit::fixtures;
use osm_testkit::installation::IDENTITIES;
use osm_testkit::{check, wait_for};
use serde_json::{Value, json};

use crate::shared::in_shared_world;
use crate::world::{DEADLINE, UserData, World, machine_deployment, profile};

fn object(kind: &str, name: &str, field: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": CLOUD_INIT_SETTINGS}, field: data})
}

/// Each kind of source, holding this value.
fn sources(value: &str) -> Vec<(&'static str, Value)> {
    let with = |what: &str| format!("{value}-{what}");
    let auth = json!({"auth": STANDARD.encode(format!("user:{}", with("docker")))});
    let docker = json!({"auths": {"https://docker.example/v1/": auth}}).to_string();
    let docker = json!({".dockerconfigjson": docker});
    let mut docker = object("Secret", "docker", "stringData", &docker);
    docker["type"] = json!("kubernetes.io/dockerconfigjson");
    let plain = json!({"username": "user", "password": with("plain")});
    let proxy = json!({"username": "node@site", "password": with("proxy")});
    let (key, organization) = (
        json!({"key": with("key")}),
        json!({"organization": with("organization")}),
    );
    vec![
        ("docker", docker),
        ("plain", object("Secret", "plain", "stringData", &plain)),
        ("proxy", object("Secret", "proxy", "stringData", &proxy)),
        ("key", object("Secret", "red-hat", "stringData", &key)),
        (
            "organization",
            object("ConfigMap", "red-hat", "data", &organization),
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

#[test]
fn every_kind_of_source_is_followed() -> Result<()> {
    in_shared_world(async |world| {
        grant_config_map(world, "red-hat").await?;
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
        red_hat_pool(world).await?;
        let mut machine: UserData = world.machine("p", 1).await?;
        let first = world.fetch(&machine).await?;
        assert!(first.contains("\"http://node%40site:first-proxy@proxy.example:3128\""));
        for what in ["docker", "plain", "proxy", "key", "organization"] {
            assert!(first.contains(&format!("first-{what}")), "{what}");
        }
        let observer = world.observe().await?;
        // The second time it is back as it was, and so is the document.
        for value in ["second", "first"] {
            for (what, source) in sources(value) {
                world.apply(&source).await?;
                let changed = format!("{value}-{what}");
                let new = wait_for(&format!("{changed} on the next machine"), DEADLINE, async || {
                    let new = world.machine("p", 1).await?;
                    let document = world.fetch(&new).await?;
                    Ok(document.contains(&changed).then_some(new))
                })
                .await?;
                // One that is on its way has what its bootstrap was made for.
                world.fetch(&machine).await?;
                assert_ne!(new.provisioning_secret, machine.provisioning_secret);
                machine = new;
            }
        }
        assert_eq!(world.fetch(&machine).await?, first);

        // Gone, it is missed, and nothing is taken away; back, it is followed again.
        world.delete(&world.secrets(), "red-hat").await?;
        let message = world.says("p", "Published", false, "SourceMissing").await?;
        assert!(
            message.contains(&format!("Secret {CLOUD_INIT_SETTINGS}/red-hat")),
            "{message}"
        );
        world.fetch(&world.machine("p", 1).await?).await?;
        for (_, source) in sources("fourth") {
            world.apply(&source).await?;
        }
        wait_for("the new key", DEADLINE, async || {
            let document = world.fetch(&world.machine("p", 1).await?).await?;
            check(document.contains("fourth-key"))
        })
        .await?;
        world.says("p", "Published", true, "Published").await?;
        assert_eq!(observer.absences(), Vec::<String>::new());
        let text = fixtures::with_documents(&world.config("p").await?)?;
        assert!(
            !text.contains("fourth-") && !world.installed.logs().contains("fourth-"),
            "{}",
            names::CONFIG
        );
        Ok(())
    })
}
