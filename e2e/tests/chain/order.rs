//! The path from a MachineDeployment to user data, and what each object on it contains.

use anyhow::Result;
use kube::ResourceExt;
use osm_api::content::ContentView;
use osm_api::names;
use osm_api::rbac::Service;
use osm_testkit::installation::IDENTITIES;
use osm_testkit::{machine_controller, provisioning};
use serde_json::json;

use crate::shared::in_shared_world;
use crate::world::{self, World};

#[test]
fn a_machine_deployment_becomes_user_data_and_is_never_written_to() -> Result<()> {
    in_shared_world(async |world| {
        // Pool first, revision next, profile last.
        world.pool("first", "osp-tiny").await?;
        assert!(
            world
                .says("first", "Rendered", false, "ProfileNotFound")
                .await?
                .contains("osm/osp-tiny")
        );
        assert!(
            world
                .event("kube-system", "first", "ProfileNotFound")
                .await?
                .contains("osp-tiny")
        );
        world
            .says("first", "Published", false, "WaitingForRendering")
            .await?;
        world
            .accepted_profile(
                "osp-tiny",
                "v1.0.0",
                "api {{cluster.apiServer}} on {{cloud.name}}\n",
            )
            .await?;
        world.says("first", "Rendered", true, "Rendered").await?;
        world
            .says("first", "Published", false, "WaitingForRevision")
            .await?;
        world.event("kube-system", "first", "Rendered").await?;
        world.stamp("first", 1).await?;
        let machine = world.machine("first", 1).await?;
        assert!(
            machine.text.contains("on openstack") && machine.text.contains("hostname: \"first-machine\""),
            "{}",
            machine.text
        );
        assert!(world.fetch(&machine).await?.contains("first 1.34.2"));

        // The status follows the Secret in a request of its own.
        world.says("first", "Published", true, "Published").await?;
        // What stands in the objects, as the contract and the design have it.
        let config = world.config("first").await?;
        let status = config.status.clone().unwrap_or_default();
        let published = status.published.expect("published");
        assert_eq!(published.revision, "1");
        assert_eq!(published.provisioning_secret, machine.provisioning_secret);
        assert!(ContentView::of(&config).rendered().is_some());
        let text = serde_json::to_string(&config)?;
        for token in [&machine.api_token, &machine.kubelet_token] {
            assert!(
                !text.contains(token.as_str()),
                "a token stands in the custom resource"
            );
            assert!(
                !world.installed.logs().contains(token.as_str()),
                "a token stands in a log"
            );
        }
        let secret = world.bootstrap("first").await?;
        assert_eq!(secret.type_.as_deref(), Some("Opaque"));
        assert_eq!(secret.annotations()[names::MACHINE_DEPLOYMENT_REVISION], "1");
        let document = world.secrets().get(&machine.provisioning_secret).await?;
        assert_eq!(document.immutable, Some(true));
        assert!(
            !world.fetch(&machine).await?.contains(&machine.api_token),
            "a token stands in the provisioning document"
        );

        // A pool without annotation takes the default of its operating system.
        world
            .apply(&{
                let mut md = world::machine_deployment("default", "");
                md["metadata"]["annotations"] = json!({});
                md
            })
            .await?;
        world.stamp("default", 1).await?;
        world.says("default", "Published", true, "Published").await?;
        let config = world.config("default").await?;
        let rendered = ContentView::of(&config).rendered().unwrap();
        assert_eq!(rendered.profile.as_ref().unwrap().name, "osp-ubuntu");
        judge_both_documents(world, "default").await?;

        let services = Service::ALL.map(|service| format!(":{IDENTITIES}:{}", service.name()));
        let mut read = 0;
        for event in world.plane.audit_events()? {
            let is_ours = services.iter().any(|service| event.user.ends_with(service));
            if is_ours && event.resource == "machinedeployments" {
                assert!(!event.is_write(), "{} wrote to a MachineDeployment", event.user);
                read += 1;
            }
        }
        assert!(read > 0, "the audit log has no request of a service");
        Ok(())
    })
}

/// What stands in the Secrets for the complete default profile is good in the eyes of the programs that read it, for
/// every name that a machine may have.
async fn judge_both_documents(world: &World, pool: &str) -> Result<()> {
    let secret = world.bootstrap(pool).await?;
    for machine in ["a", "pool-5d4f8b7c9-x2x7z", &"long-".repeat(12)] {
        let text = machine_controller::user_data(&secret, "1", machine)?;
        let delivered = machine_controller::delivered("openstack", "ubuntu", &text)?;
        assert!(!delivered.is_empty());
        osm_judges::judge_user_data(&format!("bootstrap document of {machine}"), &text).unwrap();
    }
    let name = secret.annotations()[names::PROVISIONING_SECRET].clone();
    let text = provisioning::document(world.secrets().get(&name).await?)?;
    osm_judges::judge_user_data("provisioning document", &text).unwrap();
    Ok(())
}
