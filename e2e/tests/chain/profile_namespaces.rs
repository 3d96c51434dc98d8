//! A further namespace of profiles that can't be read holds up the pools that use its profiles, and nothing else.

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use osm_api::names;
use osm_api::rbac::Service;
use osm_testkit::{Options, fixtures};
use serde_json::json;

use crate::world::{DEADLINE, TEAM, World, machine_deployment};

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_can_not_be_read_holds_up_only_its_own_pools() -> Result<()> {
    let mut world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    let bindings: Api<RoleBinding> = Api::namespaced(world.managed.clone(), TEAM);
    let all = bindings.list(&ListParams::default()).await?;
    ensure!(!all.items.is_empty(), "the services may read {TEAM}");
    for binding in &all {
        world.delete(&bindings, &binding.name_any()).await?;
    }
    for service in Service::ALL {
        world.installed.terminate(service, DEADLINE).await?;
        world.installed.start(service).await?;
    }
    world.pool("own", "osp-tiny").await?;
    world.stamp("own", 1).await?;
    world.machine("own", 1).await?;

    world
        .apply(&fixtures::profile(TEAM, "osp-team", "v1.0.0", "two\n"))
        .await?;
    let mut pool = machine_deployment("of-team", "osp-team");
    pool["metadata"]["annotations"][names::PROFILE_NAMESPACE] = json!(TEAM);
    world.apply(&pool).await?;
    let message = world
        .says("of-team", "Rendered", false, "ProfileNotFound")
        .await?;
    ensure!(
        message.contains("may not read profiles in namespace team"),
        "{message}"
    );

    for binding in all {
        let again = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": binding.name_any(), "namespace": TEAM},
            "roleRef": binding.role_ref, "subjects": binding.subjects});
        world.apply(&again).await?;
    }
    world.stamp("of-team", 1).await?;
    world.machine("of-team", 1).await?;
    Ok(())
}
