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

/// The forms that a backup may have.
#[derive(Clone, Copy, Debug)]
enum Form {
    /// Of this version: the spec says whose it is.
    Now,
    /// Of versions before it: the spec has the content, and says whose it is.
    Before,
    /// Of the Go implementation: the spec has the content.
    Go,
}

/// The content of a config with this text in its bootstrap document.
fn content_with(config: OperatingSystemConfig, text: &str) -> Result<OperatingSystemConfigSpec> {
    let mut spec = content::into_content(config)?;
    let files = &mut spec.bootstrap_config.files;
    let file = files.iter_mut().find(|file| file.path == "/etc/text");
    let inline = file.context("a file")?.content.inline.as_mut().context("text")?;
    inline.data = text.to_owned();
    spec.digest = Some(text.to_owned());
    Ok(spec)
}

/// Stores the config of the pool as the version before this one would have, with this text in its bootstrap document.
async fn store_as_before(world: &World, text: &str) -> Result<()> {
    let config = world.config(POOL).await?;
    let mut published = config.status.clone().unwrap_or_default().published;
    if let Some(published) = &mut published {
        published.digest = text.to_owned();
    }
    let mut before = OperatingSystemConfig::new(&config.name_any(), content_with(config.clone(), text)?);
    before.metadata.labels = config.metadata.labels.clone();
    before.metadata.annotations = config.metadata.annotations.clone();
    let stored = store(world, &before).await?;
    let rendered = json!({"generation": stored.metadata.generation, "digest": text, "revision": "1"});
    let status = json!({"status": {"rendered": rendered, "published": published}});
    world
        .configs()
        .patch_status(&before.name_any(), &PatchParams::default(), &Patch::Merge(status))
        .await?;
    Ok(())
}

/// Stores the config as a backup restores it: without its status, and for the MachineDeployment of the backup, which had another uid.
async fn restore(world: &World, form: Form) -> Result<()> {
    const UID: &str = "of-the-pool-in-the-backup";
    let config = world.config(POOL).await?;
    let name = config.name_any();
    let metadata = config.metadata.clone();
    let mut spec = content_with(config.clone(), "restored")?;
    if let Some(md) = &mut spec.machine_deployment {
        md.uid = UID.to_owned();
    }
    let mut restored = match form {
        Form::Now => {
            let mut pool = config.spec.pool_ref.context("a pool")?;
            pool.uid = UID.to_owned();
            OperatingSystemConfig::new(&name, content::spec_for(pool))
        }
        Form::Before => OperatingSystemConfig::new(&name, spec),
        Form::Go => {
            (spec.machine_deployment, spec.digest, spec.late_bound) = (None, None, Vec::new());
            OperatingSystemConfig::new(&name, spec)
        }
    };
    if !matches!(form, Form::Go) {
        (restored.metadata.labels, restored.metadata.annotations) = (metadata.labels, metadata.annotations);
    }
    store(world, &restored).await.map(drop)
}

/// Stores this instead of the config that is there.
async fn store(world: &World, config: &OperatingSystemConfig) -> Result<OperatingSystemConfig> {
    world.delete(&world.configs(), &config.name_any()).await?;
    Ok(world.configs().create(&PostParams::default(), config).await?)
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
    store_as_before(&world, "before").await?;
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
    store_as_before(&world, "before").await?;
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
async fn a_restored_config_of_any_form_gives_way_to_one_of_the_pool_that_exists() -> Result<()> {
    let mut world = stopped().await?;
    let uid = world.pools().get(POOL).await?.uid().context("a uid")?;
    for form in [Form::Before, Form::Go, Form::Now] {
        restore(&world, form).await?;
        for service in Service::ALL {
            world.installed.start(service).await?;
        }
        wait_for(
            &format!("a config of the pool instead of {form:?}"),
            DEADLINE,
            async || check(ContentView::of(&world.config(POOL).await?).belongs_to(&uid)),
        )
        .await?;
        is_converted(&world).await?;
        for service in Service::ALL {
            world.installed.terminate(service, DEADLINE).await?;
        }
    }
    Ok(())
}
