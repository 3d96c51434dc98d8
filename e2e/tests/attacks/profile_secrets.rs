//! The author of a profile asks for Secrets that the settings do not list. The author of a MachineDeployment tries to choose one for a profile
//! that places one.

use anyhow::{Context, Result, ensure};
use osm_api::condition;
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::world::{DEADLINE, World, machine_deployment, profile};

const ID: &str = "secret/cloud-init-settings/vpn/password";

/// A profile with one more file in its provisioning stage.
fn placing(name: &str, text: &str) -> Result<Value> {
    let mut profile = profile(name, "v1.0.0", "one\n");
    profile
        .pointer_mut("/spec/provisioningConfig/files")
        .and_then(Value::as_array_mut)
        .context("the files")?
        .push(json!({"path": "/etc/vpn", "permissions": 600, "content": {"inline": {"data": text}}}));
    Ok(profile)
}

/// A profile in Go's language with one file.
fn placing_in_go(name: &str, text: &str) -> Value {
    let mut profile = profile(name, "v1.0.0", "one\n");
    let spec = &mut profile["spec"];
    spec["templateEngine"] = json!("GoTemplate");
    spec["bootstrapConfig"] = json!({});
    spec["provisioningConfig"] =
        json!({"files": [{"path": "/etc/vpn", "permissions": 600, "content": {"inline": {"data": text}}}]});
    profile
}

fn listed(key: &str) -> String {
    format!("credentials: {{profileSecrets: [{{namespace: {CLOUD_INIT_SETTINGS}, name: vpn, key: {key}}}]}}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_gets_no_secret_that_is_not_listed_and_computes_none() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.set_settings(&listed("user")).await?;
    let data = json!({"user": "node", "password": "hunter2"});
    world
        .apply(&json!({"apiVersion": "v1", "kind": "Secret", "stringData": data,
            "metadata": {"name": "vpn", "namespace": CLOUD_INIT_SETTINGS}}))
        .await?;

    // A name that a template computes is refused, although the result is listed.
    let computed = "{{late (concat \"secret/cloud-init-settings/\" \"vpn/user\") as=\"json\"}}";
    let in_go = "{{ .ProfileSecret (print \"secret/cloud-init-settings/\" \"vpn/user\") }}";
    for profile in [
        placing("osp-computed", computed)?,
        placing_in_go("osp-in-go", in_go),
    ] {
        world.apply(&profile).await?;
        let name = profile["metadata"]["name"].as_str().context("a name")?;
        wait_for("the profile to be refused", DEADLINE, async || {
            let status = world.profiles().get(name).await?.status.unwrap_or_default();
            let accepted = condition::find(&status.conditions, "Accepted");
            check(
                accepted.is_some_and(|accepted| {
                    accepted.status == "False" && accepted.reason == "TemplateFailed"
                }),
            )
        })
        .await?;
    }

    // Another key of a Secret that is listed.
    world
        .apply(&placing(
            "osp-vpn",
            &format!("{{{{late \"{ID}\" as=\"json\"}}}}"),
        )?)
        .await?;
    world.pool("p", "osp-vpn").await?;
    world.stamp("p", 1).await?;
    let message = world.says("p", "Published", false, "SourceNotAllowed").await?;
    ensure!(
        message.contains("Secret cloud-init-settings/vpn") && message.contains("credentials.profileSecrets"),
        "{message}"
    );
    ensure!(world.bootstrap("p").await.is_err(), "p is published");

    // A pool that chooses the Secret by a text which the profile passes on. No sample pool has its name.
    let chosen = "{{#if (eq pool.name \"q\")}}{{late overwriteCloudConfig as=\"json\"}}{{/if}}";
    world.apply(&placing("osp-chosen", chosen)?).await?;
    let chooses = |name: &str, profile: &str, text: &str| -> Result<Value> {
        let mut pool = machine_deployment(name, profile);
        let provider = pool.pointer_mut("/spec/template/spec/providerSpec/value");
        provider.context("the provider")?["overwriteCloudConfig"] = json!(text);
        Ok(pool)
    };
    world.apply(&chooses("q", "osp-chosen", ID)?).await?;
    let marker = format!("%%osm-late{{{ID},json}}%%");
    world.apply(&chooses("r", "osp-vpn", &marker)?).await?;
    for (pool, reason) in [("q", "TemplateFailed"), ("r", "ReservedText")] {
        world.stamp(pool, 1).await?;
        let message = world.says(pool, "Rendered", false, reason).await?;
        ensure!(!message.contains(ID), "{message}");
        ensure!(world.bootstrap(pool).await.is_err(), "{pool} is published");
    }

    // Listed, it is placed, and nowhere else.
    world.set_settings(&listed("password")).await?;
    let machine = world.machine("p", 1).await?;
    ensure!(world.fetch(&machine).await?.contains("hunter2"));
    ensure!(
        !machine.text.contains("hunter2"),
        "it is in the bootstrap document"
    );
    let config = serde_json::to_string(&world.config("p").await?)?;
    ensure!(!config.contains("hunter2"), "{config}");
    ensure!(!world.installed.logs().contains("hunter2"));
    Ok(())
}
