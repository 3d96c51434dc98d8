//! Objects that are deleted or altered, or whose namespace or CRD is deleted: no bootstrap Secret disappears,
//! and everything is restored.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use osm_api::condition;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_testkit::{Options, check, wait_for};
use serde_json::{Value, json};

use crate::shared::in_shared_world;
use crate::world::{DEADLINE, NAMESPACE, UserData, World};

async fn publish(world: &World) -> Result<UserData> {
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn configs_crds_and_namespaces_may_vanish() -> Result<()> {
    let world = World::start(Options {
        controllers: vec!["namespace"],
        ..Options::default()
    })
    .await?;
    publish(&world).await?;
    let observer = world.observe().await?;

    let uid = world.config("p").await?.uid();
    world.delete(&world.configs(), "p-kube-system-config").await?;
    wait_for("the config to come back", DEADLINE, async || {
        check(world.config("p").await?.uid() != uid)
    })
    .await?;
    world.says("p", "Published", true, "Published").await?;

    // The CRD, with every config in it.
    world
        .delete_crd("operatingsystemconfigs.operatingsystemmanager.k8c.io")
        .await?;
    world.install_crds().await?;
    world.says("p", "Published", true, "Published").await?;

    // The whole namespace of the installation.
    world.delete_namespace(NAMESPACE).await?;
    world.restore_namespace(NAMESPACE).await?;
    world.accepted_profile("osp-tiny", "v1.0.1", "two\n").await?;
    world
        .machine_with("p", 1, |machine| machine.text.contains("two"))
        .await?;
    world.says("p", "Published", true, "Published").await?;
    assert_eq!(observer.absent(), Vec::<String>::new());

    // The namespace of the Secrets.
    world.start_deleting_namespace(CLOUD_INIT_SETTINGS).await?;
    world.stamp("p", 2).await?;
    // Whichever the namespace controller deletes first: the Secrets, or the Role by which they are put back.
    wait_for("the end of the namespace to be reported", DEADLINE, async || {
        let status = world.config("p").await?.status.unwrap_or_default();
        let published = condition::find(&status.conditions, condition::PUBLISHED);
        check(published.is_some_and(|published| {
            let reason = published.reason.as_str();
            published.status == "False" && ["NamespaceNotFound", "Forbidden"].contains(&reason)
        }))
    })
    .await?;
    world.delete_namespace(CLOUD_INIT_SETTINGS).await?;
    world.restore_namespace(CLOUD_INIT_SETTINGS).await?;
    world.machine("p", 2).await?;
    world.says("p", "Published", true, "Published").await.map(drop)
}

/// Each kind of object once. The tables of secret-syncer and the model have every alteration of each.
#[test]
fn what_was_made_is_put_right_when_deleted_or_altered() -> Result<()> {
    in_shared_world(async |world| {
        let mut last = publish(world).await?;
        let bootstrap = names::bootstrap_secret_name("p", "kube-system");
        let identity = names::pool_object("node", &world.bootstrap("p").await?.labels()[names::POOL]);
        let accounts = world.api::<ServiceAccount>(CLOUD_INIT_SETTINGS);
        for what in ["bootstrap", "document", "altered"] {
            let altered = json!({"stringData": {"cloud-config": "#cloud-config\n{}"}});
            match what {
                "bootstrap" => world.delete(&world.secrets(), &bootstrap).await?,
                "document" => world.delete(&world.secrets(), &last.provisioning_secret).await?,
                _ => change::<Secret>(world, &bootstrap, &altered).await?,
            }
            last = world.machine("p", 1).await?;
        }
        // A token is invalid without its account, and a new one is issued at once.
        world.delete(&accounts, &identity).await?;
        last = world
            .machine_with("p", 1, |new| new.api_token != last.api_token)
            .await?;

        // Objects that lost the label by which they are watched get it again, and tokens stay valid.
        let unlabel = json!({"metadata": {"labels": {names::INSTALLATION: null}}});
        change::<Secret>(world, &last.provisioning_secret, &unlabel).await?;
        change::<RoleBinding>(world, &identity, &unlabel).await?;
        wait_for("the labels to be restored", DEADLINE, async || {
            let document = world.secrets().get(&last.provisioning_secret).await?;
            let binding = world
                .api::<RoleBinding>(CLOUD_INIT_SETTINGS)
                .get(&identity)
                .await?;
            let all = [document.labels(), binding.labels()];
            check(all.iter().all(|labels| labels.contains_key(names::INSTALLATION)))
        })
        .await?;
        world.fetch(&last).await?;
        let wide =
            json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]});
        change::<Role>(world, &identity, &wide).await?;
        wait_for("the Role to be narrow again", DEADLINE, async || {
            let role = world.api::<Role>(CLOUD_INIT_SETTINGS).get(&identity).await?;
            let rules = role.rules.unwrap_or_default();
            check(rules.len() == 1 && rules[0].verbs == ["get"] && rules[0].resource_names.is_some())
        })
        .await?;
        world.says("p", "Published", true, "Published").await.map(drop)
    })
}

/// Merges this patch into an object in `cloud-init-settings`.
async fn change<K>(world: &World, name: &str, patch: &Value) -> Result<()>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let api = world.api::<K>(CLOUD_INIT_SETTINGS);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .with_context(|| name.to_owned())?;
    Ok(())
}
