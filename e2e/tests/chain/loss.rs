//! Objects that are deleted or altered, or whose namespace or CRD is deleted: no bootstrap Secret disappears, and everything is restored.

use anyhow::Result;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use osm_api::content::ContentView;
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::Service;
use osm_testkit::{Options, check, wait_for};
use serde_json::json;

use crate::world::{DEADLINE, NAMESPACE, World};

async fn published() -> Result<World> {
    let world = World::start(Options::default()).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("p", "osp-tiny").await?;
    world.stamp("p", 1).await?;
    world.machine("p", 1).await?;
    Ok(world)
}

#[tokio::test(flavor = "multi_thread")]
async fn configs_crds_and_the_namespace_may_vanish() -> Result<()> {
    let world = published().await?;
    let observer = world.observe().await?;

    let uid = world.config("p").await?.uid();
    world.delete(&world.configs(), "p-kube-system-config").await?;
    wait_for("the config to come back", DEADLINE, async || {
        check(world.config("p").await?.uid() != uid)
    })
    .await?;
    world.says("p", "Published", true, "Published").await?;
    world.machine("p", 1).await?;

    // The CRD, with every config in it.
    world
        .delete_crd("operatingsystemconfigs.operatingsystemmanager.k8c.io")
        .await?;
    world.install_crds().await?;
    world.says("p", "Published", true, "Published").await?;
    world.machine("p", 1).await?;

    // The whole namespace of the installation.
    world.delete_namespace(NAMESPACE).await?;
    world.restore_namespace(NAMESPACE).await?;
    world.accepted_profile("osp-tiny", "v1.0.1", "two\n").await?;
    world
        .machine_with("p", 1, |machine| machine.text.contains("two"))
        .await?;
    world.says("p", "Published", true, "Published").await?;
    assert_eq!(observer.absences(), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_made_is_put_right_when_deleted_or_altered() -> Result<()> {
    let world = published().await?;
    let accounts = world.api::<ServiceAccount>(CLOUD_INIT_SETTINGS);

    let before = world.machine("p", 1).await?;
    world
        .delete(
            &world.secrets(),
            &names::bootstrap_secret_name("p", "kube-system"),
        )
        .await?;
    let machine = world
        .machine_with("p", 1, |machine| machine.api_token != before.api_token)
        .await?;

    // Whatever tokens are bound to: they die with it, and new ones are issued at once.
    world
        .delete(&world.secrets(), &machine.provisioning_secret)
        .await?;
    let machine = world
        .machine_with("p", 1, |new| new.api_token != machine.api_token)
        .await?;
    let identity = world
        .made()
        .await?
        .into_iter()
        .find_map(|name| Some(name.strip_prefix("ServiceAccount ")?.to_owned()))
        .unwrap();
    world.delete(&accounts, &identity).await?;
    let machine = world
        .machine_with("p", 1, |new| new.api_token != machine.api_token)
        .await?;
    world.delete(&accounts, names::NODE_BOOTSTRAP_ACCOUNT).await?;
    let machine = world
        .machine_with("p", 1, |new| new.kubelet_token != machine.kubelet_token)
        .await?;
    assert!(world.is_alive(&machine.kubelet_token).await?);

    // Altered data, a stripped annotation, a Role that opens more than it should.
    let bootstrap = names::bootstrap_secret_name("p", "kube-system");
    for patch in [
        json!({"stringData": {"cloud-config": "#cloud-config\n{}"}}),
        json!({"metadata": {"annotations": {names::MACHINE_DEPLOYMENT_REVISION: "9"}}}),
        json!({"metadata": {"labels": {names::INSTALLATION: null}}}),
        json!({"metadata": {"labels": {names::ROLE: null}}}),
        json!({"metadata": {"annotations": {names::CONFIG: null}}}),
        json!({"metadata": {"annotations": {names::PUBLISHED_FROM: "x/999"}}}),
        json!({"metadata": {"annotations": {names::RENEW_AT: "2099-01-01T00:00:00Z"}}}),
    ] {
        let last = world.machine("p", 1).await?;
        world
            .secrets()
            .patch(&bootstrap, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        world
            .machine_with("p", 1, |new| new.api_token != last.api_token)
            .await?;
    }
    // Objects that lost the label by which they are watched.
    let unlabel = json!({"metadata": {"labels": {names::INSTALLATION: null}}});
    let machine = world.machine("p", 1).await?;
    world
        .secrets()
        .patch(
            &machine.provisioning_secret,
            &PatchParams::default(),
            &Patch::Merge(&unlabel),
        )
        .await?;
    wait_for("the document to have its label again", DEADLINE, async || {
        let document = world.secrets().get(&machine.provisioning_secret).await?;
        check(document.labels().contains_key(names::INSTALLATION))
    })
    .await?;
    // Its tokens live on.
    world.fetch(&machine).await?;
    let lost = json!({"metadata": {"annotations": {names::CONFIG: null}}});
    let bindings = world.api::<k8s_openapi::api::rbac::v1::RoleBinding>(CLOUD_INIT_SETTINGS);
    bindings
        .patch(&identity, &PatchParams::default(), &Patch::Merge(&lost))
        .await?;
    wait_for("the RoleBinding to be made anew", DEADLINE, async || {
        check(
            bindings
                .get(&identity)
                .await?
                .annotations()
                .contains_key(names::CONFIG),
        )
    })
    .await?;
    accounts
        .patch(&identity, &PatchParams::default(), &Patch::Merge(&unlabel))
        .await?;
    world
        .machine_with("p", 1, |new| new.api_token != machine.api_token)
        .await?;
    let roles = world.api::<k8s_openapi::api::rbac::v1::Role>(CLOUD_INIT_SETTINGS);
    let wide = json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]}]});
    roles
        .patch(&identity, &PatchParams::default(), &Patch::Merge(&wide))
        .await?;
    wait_for("the Role to be narrow again", DEADLINE, async || {
        let rules = roles.get(&identity).await?.rules.unwrap_or_default();
        check(rules.len() == 1 && rules[0].verbs == ["get"] && rules[0].resource_names.is_some())
    })
    .await?;
    // The HMAC key may be lost.
    let key = world
        .secrets()
        .list(&Default::default())
        .await?
        .items
        .into_iter()
        .find(|s| s.name_any().starts_with("osm-digest-key"))
        .unwrap();
    world
        .secrets()
        .patch(&key.name_any(), &PatchParams::default(), &Patch::Merge(&unlabel))
        .await?;
    wait_for("the key to have its label again", DEADLINE, async || {
        check(
            world
                .secrets()
                .get(&key.name_any())
                .await?
                .labels()
                .contains_key(names::INSTALLATION),
        )
    })
    .await?;
    world.delete(&world.secrets(), &key.name_any()).await?;
    wait_for("the key to be put back", DEADLINE, async || {
        check(world.secrets().get(&key.name_any()).await?.data == key.data)
    })
    .await?;
    world.says("p", "Published", true, "Published").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_namespace_of_the_secrets_goes_and_comes_back() -> Result<()> {
    let world = published().await?;
    world.start_deleting_namespace(CLOUD_INIT_SETTINGS).await?;
    world.stamp("p", 2).await?;
    assert!(
        world
            .says("p", "Published", false, "NamespaceMissing")
            .await?
            .contains("being terminated")
    );
    world.delete_namespace(CLOUD_INIT_SETTINGS).await?;
    world.restore_namespace(CLOUD_INIT_SETTINGS).await?;
    world.machine("p", 2).await?;
    world.says("p", "Published", true, "Published").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_edited_by_hand_is_put_right_and_never_published() -> Result<()> {
    let world = published().await?;
    let observer = world.observe().await?;
    let stolen = json!({"spec": {"poolRef": {"uid": "another"}}});
    let refused = world
        .configs()
        .patch(
            "p-kube-system-config",
            &PatchParams::default(),
            &Patch::Merge(&stolen),
        )
        .await;
    assert!(refused.unwrap_err().to_string().contains("belongs to one pool"));
    let (configs, name, merge) = (world.configs(), "p-kube-system-config", PatchParams::default());
    let status = serde_json::to_value(world.config("p").await?.status)?["rendered"].clone();
    let spec = json!({"spec": {"digest": "by hand", "bootstrapConfig": {"files": []}}});
    configs.patch(name, &merge, &Patch::Merge(&spec)).await?;
    wait_for("the spec to be put right", DEADLINE, async || {
        check(ContentView::of(&world.config("p").await?).is_of_this_form())
    })
    .await?;
    let rendered = json!({"status": {"rendered": {"digest": "by hand", "revision": "9"}}});
    configs
        .patch_status(name, &merge, &Patch::Merge(&rendered))
        .await?;
    wait_for("the status to be put right", DEADLINE, async || {
        let now = serde_json::to_value(world.config("p").await?.status)?["rendered"].clone();
        check(now == status)
    })
    .await?;
    // Documents of one's own under the old digest: they are read only when something has to be published.
    let altered = json!({"status": {"rendered": {"bootstrap": "H4sIAAAAAAAA/6uuBQBDv6ajAgAAAA=="}}});
    configs
        .patch_status(name, &merge, &Patch::Merge(&altered))
        .await?;
    let before = world.bootstrap("p").await?;
    world.delete(&world.secrets(), &before.name_any()).await?;
    world.machine("p", 1).await?;
    wait_for("the documents to be put right", DEADLINE, async || {
        let config = world.config("p").await?;
        check(ContentView::of(&config).content().is_ok())
    })
    .await?;
    world.says("p", "Published", true, "Published").await?;
    world.machine("p", 1).await?;
    assert!(
        observer
            .history("p")
            .iter()
            .all(|(_, text)| text.contains("/etc/token")),
        "the edit was published"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_list_of_configs_deletes_nothing() -> Result<()> {
    let mut world = published().await?;
    let before = world.machine("p", 1).await?;
    let observer = world.observe().await?;
    // What a wrong --namespace looks like: every list answers 200, without items.
    world.installed.kill9(Service::SecretSyncer)?;
    world.installed.start_lost(&world.plane, "elsewhere").await?;
    let name = names::bootstrap_secret_name("p", "kube-system");
    wait_for("the Secret to be marked", DEADLINE, async || {
        check(
            world
                .secrets()
                .get(&name)
                .await?
                .annotations()
                .contains_key(names::ORPHANED_SINCE),
        )
    })
    .await?;
    assert_eq!(world.machine("p", 1).await?.text, before.text);
    world.installed.kill9(Service::SecretSyncer)?;
    world.installed.start(Service::SecretSyncer).await?;
    wait_for("the mark to go", DEADLINE, async || {
        check(
            !world
                .secrets()
                .get(&name)
                .await?
                .annotations()
                .contains_key(names::ORPHANED_SINCE),
        )
    })
    .await?;
    world.machine("p", 1).await?;
    assert_eq!(observer.absences(), Vec::<String>::new());
    Ok(())
}
