//! The services of a user cluster run in another cluster, their home. The settings, what they name and the Leases are there. Everything else is
//! in the user cluster.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use osm_api::condition::PUBLISHED;
use osm_api::config::OperatingSystemConfig;
use osm_api::names::{self, CLOUD_INIT_SETTINGS, SETTINGS_CONFIG_MAP};
use osm_api::rbac::Service;
use osm_testkit::installation::{self, IDENTITIES};
use osm_testkit::{Options, check, wait_for};
use serde_json::json;

use crate::osmctl::osmctl;
use crate::world::{DEADLINE, HOME, NAMESPACE, World};

/// `namespace/name` of everything of a kind.
async fn all<K>(client: &Client) -> Result<BTreeSet<String>>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug + kube::Resource<DynamicType = ()>,
{
    selected::<K>(client, &ListParams::default()).await
}

/// Leases of replicas. Kubernetes itself has others.
async fn leases(client: &Client) -> Result<BTreeSet<String>> {
    selected::<Lease>(client, &ListParams::default().labels(names::INSTALLATION)).await
}

async fn selected<K>(client: &Client, list: &ListParams) -> Result<BTreeSet<String>>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug + kube::Resource<DynamicType = ()>,
{
    let found = Api::<K>::all(client.clone()).list(list).await?;
    let name = |object: &K| format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
    Ok(found.items.iter().map(name).collect())
}

/// The password of a registry, from a Secret at home that the settings name.
async fn registry(world: &World) -> Result<()> {
    let home = world.home.as_ref().context("a home cluster")?;
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "registry", "namespace": HOME});
    // As the chart grants it.
    let objects = [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata,
            "stringData": {"username": "node", "password": "hunter2"}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata, "rules": [{"apiGroups": [""],
            "resources": ["secrets"], "resourceNames": ["registry"], "verbs": ["get", "list", "watch"]}]}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "registry"},
            "subjects": [{"kind": "ServiceAccount", "name": Service::SecretSyncer.name(), "namespace": IDENTITIES}]}),
    ];
    installation::apply(home, &objects).await?;
    let credentials = json!({"namespace": HOME, "name": "registry"});
    let settings =
        json!({"containerd": {"registries": [{"host": "registry.example", "credentials": credentials}]}});
    world.set_settings(&settings.to_string()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_cluster_has_everything_but_leases_and_settings() -> Result<()> {
    let mut world = World::start_with_home(Options {
        audit: true,
        ..Options::default()
    })
    .await?;
    let home = world.home.as_ref().context("a home cluster")?.admin()?;
    world.all_ready().await?;
    registry(&world).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for pool in ["p", "q"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
        let machine = world.machine(pool, 1).await?;
        ensure!(world.fetch(&machine).await?.contains("hunter2"));
        world.says(pool, PUBLISHED, true, "Published").await?;
    }
    osmctl_finds_the_settings(&world).await?;
    // What is at home is followed like everything else.
    let first = world.machine("p", 1).await?;
    world
        .apply(
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "registry", "namespace": HOME},
            "stringData": {"username": "node", "password": "correct horse"}}),
        )
        .await?;
    let second = world
        .machine_with("p", 1, |machine| {
            machine.provisioning_secret != first.provisioning_secret
        })
        .await?;
    ensure!(world.fetch(&second).await?.contains("correct horse"));

    let replicas = Service::ALL.map(|service| format!("{HOME}/{}-0", service.name()));
    assert_eq!(leases(&home).await?, BTreeSet::from(replicas), "at home");
    assert!(leases(&world.client).await?.is_empty(), "in the user cluster");
    let maps = |client: Client| async move {
        let maps = all::<ConfigMap>(&client).await?;
        let settings = maps
            .into_iter()
            .filter(|name| name.ends_with(SETTINGS_CONFIG_MAP));
        anyhow::Ok(settings.collect::<Vec<_>>())
    };
    assert_eq!(
        maps(home.clone()).await?,
        [format!("{HOME}/{SETTINGS_CONFIG_MAP}")]
    );
    assert!(maps(world.client.clone()).await?.is_empty());
    // The home cluster does not even have the kinds or the namespaces of the user cluster.
    assert_eq!(
        all::<Secret>(&home).await?,
        BTreeSet::from([format!("{HOME}/registry")])
    );
    let namespaces = all::<Namespace>(&home).await?;
    for namespace in [NAMESPACE, CLOUD_INIT_SETTINGS] {
        assert!(!namespaces.contains(&format!("/{namespace}")), "{namespaces:?}");
    }
    let configs = Api::<OperatingSystemConfig>::namespaced(home.clone(), HOME);
    assert!(configs.list(&ListParams::default()).await.is_err());
    // The only copies of the Secret in the user cluster are in documents.
    let secrets = all::<Secret>(&world.client).await?;
    assert!(
        !secrets.iter().any(|name| name.ends_with("/registry")),
        "{secrets:?}"
    );

    // The replicas that go leave no Lease, and those that come find everything published.
    let before = world.bootstrap("p").await?.resource_version();
    for service in Service::ALL {
        world.installed.terminate(service, DEADLINE).await?;
    }
    assert!(leases(&home).await?.is_empty());
    world.installed.start_all().await?;
    world.all_ready().await?;
    world.stamp("q", 2).await?;
    world.machine("q", 2).await?;
    assert_eq!(world.bootstrap("p").await?.resource_version(), before);

    // Of a pool that is gone, nothing is left in either cluster.
    for pool in ["p", "q"] {
        world.delete(&world.pools(), pool).await?;
    }
    wait_for("everything to be undone", DEADLINE, async || {
        let configs = world.configs().list(&ListParams::default()).await?;
        check(world.made().await?.is_empty() && configs.items.is_empty())
    })
    .await
    .map_err(|error| error.context(world.installed.logs()))
}

/// osmctl reads the settings at home, everything else in the user cluster, and a Secret nowhere.
async fn osmctl_finds_the_settings(world: &World) -> Result<()> {
    let home = world.home.as_ref().context("a home cluster")?;
    let (user, admin) = (world.plane.admin_kubeconfig_path(), home.admin_kubeconfig_path());
    let flags = "select the home cluster of the services with --home-context and --home-namespace";
    let alone = osmctl(&user, &["status", "p"]).await?;
    alone.expect(1, &["waits for its settings: SettingsMissing", flags])?;
    let admin = admin.display().to_string();
    let at_home = ["--home-kubeconfig", &admin, "--home-namespace", HOME];
    let place = "cluster-a/osm-settings of the home cluster";
    let status = osmctl(&user, &[&["status", "p"][..], &at_home].concat()).await?;
    status.expect(0, &["kube-system/p is well.", place])?;
    let difference = osmctl(&user, &[&["diff", "--cluster"][..], &at_home].concat()).await?;
    difference.expect(0, &[])?;
    for (plane, is_home) in [(home, true), (&world.plane, false)] {
        for event in plane.audit_events()? {
            if event.user_agent.starts_with("osmctl/") {
                let may_read = !is_home || event.namespace == HOME || event.uri == "/version";
                ensure!(
                    may_read && !event.is_write() && event.resource != "secrets",
                    "{event:?}"
                );
            }
        }
    }
    Ok(())
}
