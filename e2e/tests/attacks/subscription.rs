//! The author of a MachineDeployment writes a late-bound marker into the texts of a RHEL subscription, which reach the document without a
//! template. The machine would send the value to a server of the author's choice.

use anyhow::{Context, Result, ensure};
use osm_api::names::CLOUD_INIT_SETTINGS;
use osm_testkit::Options;
use serde_json::json;

use crate::world::{World, machine_deployment, profile};

const MARKER: &str = "%%osm-late{registry/docker.io/password,text}%%";

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_asks_for_no_other_credential() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world
        .set_settings("containerd: {registries: [{host: docker.io, credentials: {name: login}}]}")
        .await?;
    let mut red = profile("osp-red", "v1.0.0", "one\n");
    red["spec"]["osName"] = json!("rhel");
    world.apply(&red).await?;
    let key = json!({"secretKeyRef": {"namespace": CLOUD_INIT_SETTINGS, "name": "red-hat", "key": "key"}});
    let attempts = [
        (
            "organization",
            json!({"rhelOrganizationName": MARKER, "rhelActivationKey": key}),
        ),
        (
            "satellite",
            json!({"rhelOrganizationName": "12", "rhelActivationKey": key,
                "rhelUseSatelliteServer": true, "rhelSatelliteServer": MARKER}),
        ),
        (
            "user",
            json!({"rhelSubscriptionManagerUser": MARKER, "rhelSubscriptionManagerPassword": "x"}),
        ),
    ];
    for (name, spec) in attempts {
        let mut pool = machine_deployment(name, "osp-red");
        let provider = pool
            .pointer_mut("/spec/template/spec/providerSpec/value")
            .context("the provider")?;
        provider["operatingSystem"] = json!("rhel");
        provider["operatingSystemSpec"] = spec;
        world.apply(&pool).await?;
        world.stamp(name, 1).await?;
        let message = world.says(name, "Rendered", false, "ReservedText").await?;
        ensure!(!message.contains("docker.io"), "{message}");
        ensure!(world.bootstrap(name).await.is_err(), "{name} is published");
    }
    Ok(())
}
