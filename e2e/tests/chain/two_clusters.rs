//! Profiles, configs and settings in one cluster, MachineDeployments and Secrets in another. A cluster is
//! away, or another one is in its place.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use osm_api::condition::{PUBLISHED, RENDERED};
use osm_api::names::{self, CLOUD_INIT_SETTINGS};
use osm_api::rbac::{ClusterKind, Service};
use osm_testkit::installation::{self, IDENTITIES};
use osm_testkit::{ControlPlane, Options, check, wait_for};

use crate::world::{self, DEADLINE, World, machine_deployment};

/// Both that have a kubeconfig of the worker cluster.
const BOTH: [Service; 2] = [Service::OscController, Service::SecretSyncer];

impl World {
    /// Waits until a service answers `/readyz` with this code and every text; gives the answer.
    pub async fn readiness(&self, service: Service, code: u16, texts: &[&str]) -> Result<String> {
        let what = format!("/readyz of {} to be {code} and to say {texts:?}", service.name());
        let found = wait_for(&what, DEADLINE, async || {
            let (now, body) = self.installed.get(service, "/readyz").await?;
            ensure!(
                now == code && texts.iter().all(|text| body.contains(text)),
                "{now}: {body}"
            );
            Ok(Some(body))
        });
        found.await.map_err(|error| error.context(self.installed.logs()))
    }

    pub async fn all_ready(&self) -> Result<()> {
        for service in Service::ALL {
            self.readiness(service, 200, &[]).await?;
        }
        Ok(())
    }

    pub async fn restart(&mut self, services: &[Service]) -> Result<()> {
        for service in services {
            self.installed.terminate(*service, DEADLINE).await?;
            self.installed.start(*service).await?;
        }
        Ok(())
    }

    pub fn management(&self) -> &ControlPlane {
        self.management.as_ref().expect("two clusters")
    }
}

/// uid and resourceVersion of everything that pools have in a cluster, and of their configs.
async fn everything(world: &World) -> Result<Vec<String>> {
    let line =
        |kind: &str, name: String, uid: Option<String>| format!("{kind} {name} {}", uid.unwrap_or_default());
    let mut all = Vec::new();
    for config in world.configs().list(&ListParams::default()).await? {
        ensure!(
            config.metadata.deletion_timestamp.is_none(),
            "{} is being deleted",
            config.name_any()
        );
        let retired = config
            .status
            .as_ref()
            .is_some_and(|status| status.retired.is_some());
        all.push(line(
            if retired { "retired" } else { "config" },
            config.name_any(),
            config.uid(),
        ));
    }
    for secret in world.secrets().list(&ListParams::default()).await? {
        all.push(line("secret", secret.name_any(), secret.uid()));
    }
    let accounts: Api<ServiceAccount> = world.api(CLOUD_INIT_SETTINGS);
    for account in accounts.list(&ListParams::default()).await? {
        all.push(line("account", account.name_any(), account.uid()));
    }
    Ok(all)
}

/// A kubeconfig of another cluster for the same service.
async fn kubeconfig(plane: &ControlPlane, service: Service) -> Result<String> {
    Ok(std::fs::read_to_string(
        plane.identity(IDENTITIES, service.name()).await?,
    )?)
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_in_the_place_of_one_of_the_two() -> Result<()> {
    let mut world = World::start_in_two_without_services(Options::default(), world::installation()).await?;
    world.installed.start_all().await?;
    let other = ControlPlane::start(Options::default()).await?;
    installation::prepare(&other, &world::installation(), &ClusterKind::ALL).await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    for pool in ["p", "q"] {
        world.pool(pool, "osp-tiny").await?;
        world.stamp(pool, 1).await?;
        world.machine(pool, 1).await?;
        world.says(pool, PUBLISHED, true, "Published").await?;
    }
    world.all_ready().await?;
    let observer = world.observe().await?;
    let replace = async |world: &World, cluster: ClusterKind, plane: &ControlPlane| -> Result<()> {
        for service in BOTH {
            world
                .installed
                .replace_kubeconfig(service, cluster, &kubeconfig(plane, service).await?)?;
        }
        Ok(())
    };

    // Started with it, they see no pool and no Secret. One pool is really gone meanwhile; nobody may act on
    // that.
    let before = everything(&world).await?;
    replace(&world, ClusterKind::Worker, &other).await?;
    for service in BOTH {
        world.installed.terminate(service, DEADLINE).await?;
    }
    world.delete(&world.pools(), "q").await?;
    // The other cluster has a pool of its own, and one of the same name.
    for pool in ["p", "own"] {
        other
            .apply_yaml(&machine_deployment(pool, "osp-tiny").to_string())
            .await?;
    }
    for service in BOTH {
        world.installed.start(service).await?;
    }
    for pool in ["p", "q"] {
        let message = world.says(pool, RENDERED, false, "ClusterChanged").await?;
        assert!(message.contains("Correct the kubeconfig"), "{message}");
        world.says(pool, PUBLISHED, false, "ClusterChanged").await?;
    }
    world
        .readiness(
            Service::OscController,
            503,
            &["another cluster: own-kube-system-config (and 2 more): cluster mismatch"],
        )
        .await?;
    let said = world
        .readiness(
            Service::SecretSyncer,
            503,
            &["another cluster: p-kube-system-config"],
        )
        .await?;
    assert!(said.contains("nothing is published or deleted"), "{said}");
    assert_eq!(everything(&world).await?, before);
    let there: Api<Secret> = Api::namespaced(other.admin()?, CLOUD_INIT_SETTINGS);
    let wrong = there
        .list(&ListParams::default().labels(names::POOL))
        .await?
        .items;
    assert!(wrong.is_empty(), "published in the wrong cluster: {wrong:#?}");
    assert!(world.config("own").await.is_err());

    // Corrected: the pool that is gone is retired now.
    replace(&world, ClusterKind::Worker, &world.plane).await?;
    world.restart(&BOTH).await?;
    world.says("p", PUBLISHED, true, "Published").await?;
    wait_for("q to be undone", DEADLINE, async || {
        check(
            world.config("q").await.is_err()
                && !format!("{:?}", everything(&world).await?).contains("q-kube-system"),
        )
    })
    .await?;
    world.all_ready().await?;
    assert_eq!(
        observer.absent(),
        [names::bootstrap_secret_name("q", "kube-system")]
    );

    // Another management cluster, without any config: what is published is not taken for orphaned.
    let before = everything(&world).await?;
    world
        .installed
        .terminate(Service::OscController, DEADLINE)
        .await?;
    let foreign = kubeconfig(&other, Service::SecretSyncer).await?;
    world
        .installed
        .replace_kubeconfig(Service::SecretSyncer, ClusterKind::Management, &foreign)?;
    world.restart(&[Service::SecretSyncer]).await?;
    let said = world
        .readiness(
            Service::SecretSyncer,
            503,
            &["another cluster: p-kube-system-config"],
        )
        .await?;
    assert!(said.contains("Correct --kubeconfig"), "{said}");
    assert_eq!(everything(&world).await?, before);
    let right = kubeconfig(world.management(), Service::SecretSyncer).await?;
    world
        .installed
        .replace_kubeconfig(Service::SecretSyncer, ClusterKind::Management, &right)?;
    world.restart(&[Service::SecretSyncer]).await?;
    world.installed.start(Service::OscController).await?;
    world.all_ready().await?;
    assert_eq!(everything(&world).await?, before);
    Ok(())
}
