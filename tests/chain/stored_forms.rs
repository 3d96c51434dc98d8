//! OperatingSystemConfigs that versions before this one stored: the content is in the spec, and the status names its generation.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use osm_api::config::{OperatingSystemConfig, OperatingSystemConfigSpec};
use osm_api::content::{self, ContentView};
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use serde_json::json;

use crate::world::{DEADLINE, World};

const POOL: &str = "p";

/// A pool that is published. No service runs any more.
async fn stopped() -> Result<World> {
    let mut world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool(POOL, "osp-tiny").await?;
    world.stamp(POOL, 1).await?;
    world.machine(POOL, 1).await?;
    world.says(POOL, "Published", true, "Published").await?;
    for service in Service::ALL {
        world.installed.terminate(service, DEADLINE).await?;
    }
    Ok(world)
}

/// Stores the config of the pool as the version before this one would have, with this text in its bootstrap document.
async fn store_as_before(world: &World, text: &str, uid: Option<&str>) -> Result<()> {
    let config = world.config(POOL).await?;
    let mut published = config.status.clone().unwrap_or_default().published;
    if let Some(published) = &mut published {
        published.digest = text.to_owned();
    }
    let mut spec = content::into_content(config.clone())?;
    let files = &mut spec.bootstrap_config.files;
    let file = files.iter_mut().find(|file| file.path == "/etc/text");
    let inline = file.context("a file")?.content.inline.as_mut().context("text")?;
    inline.data = text.to_owned();
    spec.digest = Some(text.to_owned());
    if let (Some(uid), Some(md)) = (uid, &mut spec.machine_deployment) {
        md.uid = uid.to_owned();
    }
    world.delete(&world.configs(), &config.name_any()).await?;
    let mut before = OperatingSystemConfig::new(&config.name_any(), spec);
    before.metadata.labels = config.metadata.labels.clone();
    before.metadata.annotations = config.metadata.annotations.clone();
    let stored = world.configs().create(&PostParams::default(), &before).await?;
    let rendered = json!({"generation": stored.metadata.generation, "digest": text, "revision": "1"});
    let status = match uid {
        None => json!({"rendered": rendered, "published": published}),
        // As a backup restores it.
        Some(_) => json!({}),
    };
    world
        .configs()
        .patch_status(
            &config.name_any(),
            &PatchParams::default(),
            &Patch::Merge(json!({"status": status})),
        )
        .await?;
    Ok(())
}

/// Waits until the pool has the documents of the profile, and the config is as this version stores it.
async fn is_converted(world: &World) -> Result<()> {
    wait_for("the config to be converted", DEADLINE, async || {
        let config = world.config(POOL).await?;
        let view = ContentView::of(&config);
        ensure!(
            view.is_of_this_form() && view.is_published("1"),
            "{:?}",
            config.spec
        );
        view.content()?;
        Ok(Some(()))
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))?;
    let machine = world.machine(POOL, 1).await?;
    ensure!(machine.text.contains("one"), "{}", machine.text);
    world.fetch(&machine).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_content_in_the_spec_is_published_until_osc_controller_converts_it() -> Result<()> {
    let mut world = stopped().await?;
    store_as_before(&world, "before", None).await?;
    let observer = world.observe().await?;
    // As after an upgrade of secret-syncer alone.
    world.installed.start(Service::SecretSyncer).await?;
    wait_for("the content in the spec to be published", DEADLINE, async || {
        let machine = world.machine(POOL, 1).await?;
        check(machine.text.contains("before"))
    })
    .await?;
    world.installed.start(Service::OspController).await?;
    world.installed.start(Service::OscController).await?;
    is_converted(&world).await?;
    ensure!(observer.absences().is_empty(), "{:?}", observer.absences());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_content_stays_in_the_spec_until_secret_syncer_has_published_the_new_one() -> Result<()> {
    let mut world = stopped().await?;
    store_as_before(&world, "before", None).await?;
    let observer = world.observe().await?;
    // As after an upgrade of osc-controller alone.
    world.installed.start(Service::OspController).await?;
    world.installed.start(Service::OscController).await?;
    world.says(POOL, "Rendered", true, "Rendered").await?;
    let config = world.config(POOL).await?;
    let rendered = config.status.clone().unwrap_or_default().rendered;
    ensure!(rendered.is_some_and(|rendered| rendered.is_packed() && rendered.bootstrap.is_some()));
    // The version before this one finds its content where it was. It can't take the new one for its own, because no object has the
    // generation that the status names.
    ensure!(config.spec.digest.as_deref() == Some("before") && config.spec.machine_deployment.is_some());
    ensure!(config.spec.bootstrap_config != OperatingSystemConfigSpec::default().bootstrap_config);
    world.installed.start(Service::SecretSyncer).await?;
    is_converted(&world).await?;
    ensure!(observer.absences().is_empty(), "{:?}", observer.absences());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_config_of_the_form_before_gives_way_to_one_of_the_pool_that_exists() -> Result<()> {
    let mut world = stopped().await?;
    // A backup restores objects without status, and MachineDeployments with new uids.
    store_as_before(&world, "before", Some("of-the-pool-in-the-backup")).await?;
    for service in Service::ALL {
        world.installed.start(service).await?;
    }
    let uid = world.pools().get(POOL).await?.uid().context("a uid")?;
    wait_for("a config of the pool", DEADLINE, async || {
        check(ContentView::of(&world.config(POOL).await?).belongs_to(&uid))
    })
    .await?;
    is_converted(&world).await
}
