//! Credentials are renewed in time, whatever is missing meanwhile.

use anyhow::Result;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::PostParams;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use secret_syncer::io::apply::objects;
use serde_json::json;

use crate::rights::is_dead;
use crate::shared::in_shared_world;
use crate::world::{NAMESPACE, World};

/// Brings the time of the renewal near, as if hours had passed. The Secret gets the digest of its content, so
/// that it is not taken for altered.
pub async fn bring_renewal_near(world: &World, pool: &str) -> Result<Timestamp> {
    let soon = Timestamp::now() + SignedDuration::from_secs(3);
    let name = names::bootstrap_secret_name(pool, "kube-system");
    let mut secret = world.bootstrap(pool).await?;
    secret
        .annotations_mut()
        .insert(names::RENEW_AT.to_owned(), soon.to_string());
    let secret = objects::with_digest(secret);
    world
        .secrets()
        .replace(&name, &PostParams::default(), &secret)
        .await?;
    Ok(soon)
}

#[test]
fn tokens_are_renewed_without_sources_settings_and_osc_controller_over_a_restart() -> Result<()> {
    in_shared_world(async |world| {
        let registries = json!([{"host": "plain.example", "credentials": {"name": "plain"}}]);
        let settings = json!({"containerd": {"registries": registries}}).to_string();
        world.set_settings(&settings).await?;
        let source = json!({"apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "plain", "namespace": CLOUD_INIT_SETTINGS},
            "stringData": {"username": "user", "password": "of-the-registry"}});
        world.apply(&source).await?;
        world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
        world.pool("p", "osp-tiny").await?;
        world.stamp("p", 1).await?;
        world.says("p", "Published", true, "Published").await?;
        let first = world.machine("p", 1).await?;
        let observer = world.observe().await?;

        for service in [Service::OscController, Service::SecretSyncer] {
            world.installed.kill9(service)?;
        }
        world.delete(&world.secrets(), "plain").await?;
        let map = &world.installed.installation().settings;
        world.delete(&world.api::<ConfigMap>(NAMESPACE), map).await?;
        let soon = bring_renewal_near(world, "p").await?;
        world.installed.start(Service::SecretSyncer).await?;
        let message = world.says("p", "Published", false, "SettingsInvalid").await?;
        assert!(
            message.contains("kept and its credentials are renewed"),
            "{message}"
        );
        let renewed = world
            .machine_with("p", 1, |machine| machine.api_token != first.api_token)
            .await?;
        assert!(Timestamp::now() >= soon, "renewed before its time");
        assert!(!is_dead(world.plane.client(&renewed.kubelet_token)?).await?);
        // It is the same document, with a value that no longer has a source.
        assert_eq!(renewed.provisioning_secret, first.provisioning_secret);
        assert!(world.fetch(&renewed).await?.contains("of-the-registry"));
        assert_eq!(observer.absent(), Vec::<String>::new());

        world.installed.start(Service::OscController).await?;
        world.apply(&source).await?;
        world.set_settings(&settings).await?;
        world.says("p", "Published", true, "Published").await?;
        assert!(!world.installed.logs().contains("of-the-registry"));
        Ok(())
    })
}
