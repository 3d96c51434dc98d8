//! `limits.machineDeployments`: beyond it, a further MachineDeployment gets nothing, and the others lose nothing.

use anyhow::{Result, ensure};
use osm_api::names;
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};

use crate::world::{DEADLINE, World};

const REASON: &str = "TooManyMachineDeployments";

/// Waits until so many MachineDeployments are counted with the reason.
async fn counted(world: &World, number: usize) -> Result<()> {
    let line = format!(r#"osm_objects{{condition="Rendered",reason="{REASON}",status="False"}} {number}"#);
    wait_for(&line, DEADLINE, async || {
        let (_, metrics) = world.installed.get(Service::OscController, "/metrics").await?;
        check(metrics.contains(&line))
    })
    .await
}

async fn rejected(world: &World, pool: &str) -> Result<()> {
    let note = world.event("kube-system", pool, REASON).await?;
    ensure!(note.contains("limits.machineDeployments"), "{note}");
    let config = world
        .configs()
        .get_opt(&names::config_name(pool, "kube-system"))
        .await?;
    ensure!(config.is_none(), "{pool} has a config");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_limit_nothing_is_created_and_nothing_is_taken_away() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    world.set_settings("limits: {machineDeployments: 2}").await?;
    world.installed.start_all().await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for pool in ["a", "b"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
        world.machine(pool, 1).await?;
    }
    for pool in ["c", "d"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
        rejected(&world, pool).await?;
    }
    counted(&world, 2).await?;

    // Those that have a config go on, also after a restart.
    world.installed.kill9(Service::OscController)?;
    world.installed.start(Service::OscController).await?;
    world.stamp("a", 2).await?;
    world.machine("a", 2).await?;
    counted(&world, 2).await?;

    // Room appears.
    world.delete(&world.pools(), "b").await?;
    let follower = wait_for("one of the two to follow", DEADLINE, async || {
        for pool in ["c", "d"] {
            if world.config(pool).await.is_ok() {
                return Ok(Some(pool));
            }
        }
        Ok(None)
    })
    .await?;
    world.machine(follower, 1).await?;
    counted(&world, 1).await?;

    world.set_settings("limits: {machineDeployments: 3}").await?;
    for pool in ["c", "d"] {
        world.machine(pool, 1).await?;
    }
    counted(&world, 0).await?;

    // Too low a limit takes nothing away.
    world.set_settings("limits: {machineDeployments: 1}").await?;
    world.stamp("a", 3).await?;
    world.machine("a", 3).await?;
    world.pool("e", "osp-tiny").await?;
    rejected(&world, "e").await?;
    for pool in ["c", "d"] {
        world.machine(pool, 1).await?;
    }
    Ok(())
}
