//! Problems at the start of a service: `/readyz` reports them, the service keeps running, and works without a restart once they are fixed.

use anyhow::{Result, ensure};
use kube::api::ListParams;
use osm_api::rbac::Service;
use osm_testkit::{ControlPlane, Options, check, wait_for};

use crate::world::{DEADLINE, World, authority};

impl World {
    /// Waits until a service that lives says all of this on `/readyz`, and not that it is ready.
    async fn waits_for(&self, service: Service, words: &[&str]) -> Result<()> {
        wait_for(
            &format!("{} to say {words:?}", service.name()),
            DEADLINE,
            async || {
                let (code, body) = self.installed.get(service, "/readyz").await?;
                ensure!(
                    code == 503 && words.iter().all(|word| body.contains(word)),
                    "{code} {body}"
                );
                Ok(Some(()))
            },
        )
        .await
        .map_err(|error| error.context(self.installed.logs()))?;
        ensure!(self.installed.is_alive(service).await);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_definitions_and_wrong_settings_are_named_all_at_once() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    for kind in ["operatingsystemprofiles", "operatingsystemconfigs"] {
        world
            .delete_crd(&format!("{kind}.operatingsystemmanager.k8c.io"))
            .await?;
    }
    world
        .set_settings(
            "pauseImge: x\nproxy: {http: no-url}\ncredentials: {tokenLifetimeHours: 0}\ncluster: {apiServer: here}\n",
        )
        .await?;
    world.installed.start_all().await?;
    for service in Service::ALL
        .into_iter()
        .filter(|service| service.reads_settings())
    {
        let settings = ["settings (ConfigMap osm/osm-settings, key settings.yaml): "];
        // What can't be read hides nothing that is wrong besides.
        let mistakes = [
            "pauseImge: ",
            "proxy.http: ",
            "credentials.tokenLifetimeHours: ",
            "cluster.apiServer: ",
        ];
        let definitions = ["CustomResourceDefinitions: missing"];
        world
            .waits_for(service, &[&settings[..], &mistakes, &definitions].concat())
            .await?;
    }
    world.install_crds().await?;
    world.set_settings("").await?;
    world.installed.ready(DEADLINE).await?;
    // And are at work.
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("pool", "osp-tiny").await?;
    world.stamp("pool", 1).await?;
    world.machine("pool", 1).await?;
    Ok(())
}

/// The API server would drop what they do not have, and the rest would be confirmed and published.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_rendered_with_older_definitions() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    let name = "operatingsystemconfigs.operatingsystemmanager.k8c.io";
    world
        .drop_field("OperatingSystemConfig", name, "kubeletKubeconfig")
        .await?;
    world.installed.start_all().await?;
    world
        .waits_for(
            Service::OscController,
            &["they lack OperatingSystemConfig.spec.kubeletKubeconfig"],
        )
        .await?;
    world.accepted_profile("osp-tiny", "v1.0.0", "one\n").await?;
    world.pool("pool", "osp-tiny").await?;
    world.stamp("pool", 1).await?;
    wait_for("osc-controller to refuse to write", DEADLINE, async || {
        let (_, metrics) = world.installed.get(Service::OscController, "/metrics").await?;
        check(metrics.lines().any(|line| {
            line.starts_with("osm_reconciles_total") && line.contains("reason=\"DefinitionsOutdated\"")
        }))
    })
    .await?;
    assert!(
        world
            .configs()
            .list(&ListParams::default())
            .await?
            .items
            .is_empty()
    );
    world.install_crds().await?;
    world.machine("pool", 1).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_another_authority_has_certified_is_not_trusted() -> Result<()> {
    let mut world = World::start_without_services(Options::default()).await?;
    let other = ControlPlane::start(Options::default()).await?;
    let kubeconfig = |service: Service| world.installed.kubeconfig(service, service.clusters()[0]);
    let mut right = Vec::new();
    for service in Service::ALL {
        right.push((service, std::fs::read_to_string(kubeconfig(service)?)?));
    }
    let other = std::fs::read_to_string(other.admin_kubeconfig_path())?;
    for (service, text) in &right {
        let text = text.replace(authority(text)?, authority(&other)?);
        world
            .installed
            .replace_kubeconfig(*service, service.clusters()[0], &text)?;
    }
    world.installed.start_all().await?;
    for service in Service::ALL {
        world.waits_for(service, &["certificate"]).await?;
    }
    for (service, text) in &right {
        world
            .installed
            .replace_kubeconfig(*service, service.clusters()[0], text)?;
    }
    world.installed.ready(DEADLINE).await?;
    Ok(())
}
