//! etcd is restored from a backup while the services keep running.

use anyhow::{Result, ensure};
use osm_api::names;
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use serde_json::json;

use crate::rights::{is_dead, token_dies};
use crate::world::{DEADLINE, World};

#[tokio::test(flavor = "multi_thread")]
async fn yesterdays_etcd_is_caught_up_with() -> Result<()> {
    let world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "first\n").await?;
    for pool in ["stays", "deleted-since"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
        world.machine(pool, 1).await?;
        world.says(pool, "Published", true, "Published").await?;
    }
    let yesterday = world.plane.backup().await?;

    // A day goes by: a rollout of everything, a pool less, a pool more.
    world.accepted_profile("osp-tiny", "v2.0.0", "second\n").await?;
    for round in 2..=3u64 {
        let kubelet =
            json!({"spec": {"template": {"spec": {"versions": {"kubelet": format!("1.34.{round}")}}}}});
        world.patch_pool("stays", kubelet).await?;
        world.stamp("stays", round).await?;
        world
            .machine_with("stays", round, |machine| machine.text.contains("second"))
            .await?;
    }
    world.pool("new-since", "osp-tiny").await?;
    world.stamp("new-since", 1).await?;
    let lost = world.machine("new-since", 1).await?;
    world.delete(&world.pools(), "deleted-since").await?;
    wait_for("the pool to be undone", DEADLINE, async || {
        let name = names::config_name("deleted-since", "kube-system");
        check(world.configs().get_opt(&name).await?.is_none() && world.made().await?.len() > 5)
    })
    .await?;

    world.plane.restore(&yesterday).await?;
    // As it was: what is there has a revision again that its MachineDeployment has, and what is not there is
    // gone.
    for pool in ["stays", "deleted-since"] {
        let machine = world
            .machine_with(pool, 1, |machine| machine.text.contains("first"))
            .await?;
        assert!(!is_dead(world.plane.client(&machine.kubelet_token)?).await?);
        world.says(pool, "Published", true, "Published").await?;
    }
    // A service that remembers that pool may have created its config once more; it is deleted again.
    let of_lost = names::config_name("new-since", "kube-system");
    wait_for("the lost pool's config to be gone", DEADLINE, async || {
        check(world.configs().get_opt(&of_lost).await?.is_none())
    })
    .await?;
    token_dies(&world, &lost).await?;

    // Each watch has listed again once a new pool is published. Before that, a service may still act on what
    // it saw that day.
    world.pool("witness", "osp-tiny").await?;
    world.stamp("witness", 1).await?;
    world.machine("witness", 1).await?;

    // And the day is done again, by services that have seen it before, because they are not restarted.
    world.accepted_profile("osp-tiny", "v2.0.0", "second\n").await?;
    let observer = world.observe().await?;
    for round in 2..=3u64 {
        world.stamp("stays", round).await?;
        world
            .machine_with("stays", round, |machine| machine.text.contains("second"))
            .await?;
    }
    world.pool("new-since", "osp-tiny").await?;
    world.stamp("new-since", 1).await?;
    let again = world.machine("new-since", 1).await?;
    assert_ne!(again.api_token, lost.api_token);
    for pool in ["stays", "deleted-since", "new-since"] {
        world.says(pool, "Published", true, "Published").await?;
    }
    // From here on no revision went back, and none was absent.
    assert_eq!(observer.absent(), Vec::<String>::new());
    let revisions: Vec<u64> = observer
        .history("stays-kube-system-bootstrap-config")
        .iter()
        .map(|(revision, _)| Ok(revision.parse()?))
        .collect::<Result<_>>()?;
    assert!(revisions.is_sorted(), "{revisions:?}");
    // One that had nothing to do meanwhile may still wait before it lists again.
    for service in Service::ALL {
        wait_for(&format!("{service:?} to be ready"), DEADLINE, async || {
            let (_, waits) = world.installed.get(service, "/readyz").await?;
            ensure!(waits == "ok\n", "{waits}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}
