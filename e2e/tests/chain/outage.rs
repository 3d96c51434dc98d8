//! Services are killed.

use anyhow::Result;
use osm_api::rbac::Service;
use osm_testkit::{check, wait_for};
use serde_json::json;

use crate::shared::in_shared_world;
use crate::world::DEADLINE;

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
        assert_eq!(observer.absent(), Vec::<String>::new());
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
