//! Services are killed, and the API server is unavailable.

use std::time::Duration;

use anyhow::Result;
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use serde_json::json;

use crate::shared::in_shared_world;
use crate::world::{DEADLINE, World};

/// Kills each service again and again while pools are made, rotated and deleted.
#[test]
fn kill_9_at_any_moment_loses_nothing() -> Result<()> {
    in_shared_world(async |world| {
        const POOLS: usize = 8;
        world
            .accepted_profile("osp-tiny", "v1.0.0", "kubelet {{kubelet.version}}\n")
            .await?;
        let observer = world.observe().await?;
        let mut kill = 0;
        for round in 1..=3u64 {
            for pool in 0..POOLS {
                let name = format!("p{pool}");
                if round == 1 {
                    world.pool(&name, "osp-tiny").await?;
                } else {
                    let kubelet = format!("1.34.{round}");
                    world
                        .patch_pool(
                            &name,
                            json!({"spec": {"template": {"spec": {"versions": {"kubelet": kubelet}}}}}),
                        )
                        .await?;
                }
                world.stamp(&name, round).await?;
                if pool % 2 == 1 {
                    let service = Service::ALL[kill % Service::ALL.len()];
                    kill += 1;
                    world.installed.kill9(service)?;
                    world.installed.start(service).await?;
                }
            }
            for pool in 0..POOLS {
                world.machine(&format!("p{pool}"), round).await?;
            }
        }
        assert_eq!(observer.absences(), Vec::<String>::new());
        for pool in 0..POOLS {
            world.delete(&world.pools(), &format!("p{pool}")).await?;
            if pool == 2 || pool == 5 {
                for service in [Service::OscController, Service::SecretSyncer] {
                    world.installed.kill9(service)?;
                    world.installed.start(service).await?;
                }
            }
        }
        wait_for("everything to be undone", DEADLINE, async || {
            let configs = world.configs().list(&Default::default()).await?;
            check(world.made().await?.is_empty() && configs.items.is_empty())
        })
        .await
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_is_away_at_start_and_in_the_middle() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    world.plane.stop_apiserver().await?;
    for service in Service::ALL {
        world.installed.start(service).await?;
    }
    for service in Service::ALL {
        assert!(
            world.installed.is_alive(service).await,
            "{service:?} does not serve /livez"
        );
        assert!(
            !world.installed.is_ready(service).await,
            "{service:?} is ready without an API server"
        );
    }
    world.plane.start_apiserver().await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    let first = world.machine("p", 1).await?;
    wait_for("all to be ready", DEADLINE, async || {
        let mut ready = true;
        for service in Service::ALL {
            ready &= world.installed.is_ready(service).await;
        }
        check(ready)
    })
    .await?;

    world.plane.stop_apiserver().await?;
    world.plane.start_apiserver().await?;
    assert_eq!(
        world.machine("p", 1).await?.text,
        first.text,
        "nothing changed, nothing is written"
    );
    world.stamp("p", 2).await?;
    world.machine("p", 2).await?;
    // A graceful end: within seconds, with exit code 0.
    for service in Service::ALL {
        let status = world
            .installed
            .terminate(service, Duration::from_secs(20))
            .await?;
        assert!(status.success(), "{service:?}: {status}");
    }
    Ok(())
}
