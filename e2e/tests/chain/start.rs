//! Problems at the start of a service: `/readyz` reports them, and nothing is rendered until they are solved.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::ListParams;
use osm_api::rbac::Service;
use osm_testkit::{check, wait_for};

use crate::shared::in_shared_world;
use crate::world::{DEADLINE, World};

impl World {
    /// Waits until a service that lives says all of this on `/readyz`, and not that it is ready.
    pub async fn waits_for(&self, service: Service, words: &[&str]) -> Result<()> {
        let what = format!("{} to say {words:?}", service.name());
        let said = wait_for(&what, DEADLINE, async || {
            let (code, body) = self.installed.get(service, "/readyz").await?;
            ensure!(
                code == 503 && words.iter().all(|word| body.contains(word)),
                "{code} {body}"
            );
            Ok(Some(()))
        });
        said.await.map_err(|error| error.context(self.installed.logs()))?;
        ensure!(self.installed.is_alive(service).await);
        Ok(())
    }
}

/// A kubeconfig in which another authority certifies the API server.
fn distrusting(kubeconfig: &str) -> Result<String> {
    let other = rcgen::generate_simple_self_signed(["other".to_owned()])?;
    let other = STANDARD.encode(other.cert.pem());
    let (before, rest) = kubeconfig
        .split_once("certificate-authority-data: ")
        .context("an authority")?;
    let (_, after) = rest.split_once('\n').context("a line")?;
    Ok(format!("{before}certificate-authority-data: {other}\n{after}"))
}

#[test]
fn problems_are_named_and_nothing_is_rendered_until_they_are_solved() -> Result<()> {
    in_shared_world(start_with_problems)
}

async fn start_with_problems(world: &mut World) -> Result<()> {
    for service in Service::ALL {
        world.installed.terminate(service, DEADLINE).await?;
    }
    for kind in [
        "operatingsystemprofiles",
        "operatingsystemconfigs",
        "workerclusters",
    ] {
        world
            .delete_crd(&format!("{kind}.operatingsystemmanager.k8c.io"))
            .await?;
    }
    world
        .set_settings(
            "pauseImge: x\nproxy: {http: no-url}\ncredentials: {tokenLifetimeHours: 0}\ncluster: {apiServer: here}\n",
        )
        .await?;

    // An API server that another authority has certified is not trusted.
    let mut kubeconfigs: Vec<(PathBuf, String)> = Vec::new();
    for service in Service::ALL {
        let path = world.installed.kubeconfig(service)?;
        let right = std::fs::read_to_string(path)?;
        std::fs::write(path, distrusting(&right)?)?;
        kubeconfigs.push((path.to_owned(), right));
    }
    world.installed.start_all().await?;
    for service in Service::ALL {
        world.waits_for(service, &["certificate"]).await?;
        world.installed.terminate(service, DEADLINE).await?;
    }
    for (path, right) in kubeconfigs {
        std::fs::write(path, right)?;
    }

    // What can't be read hides nothing that is wrong besides.
    world.installed.start_all().await?;
    for service in Service::ALL {
        let problems = [
            "CustomResourceDefinitions: they are missing",
            "settings (ConfigMap osm/osm-settings, key settings.yaml): ",
            "pauseImge: ",
            "proxy.http: ",
            "credentials.tokenLifetimeHours: ",
            "cluster.apiServer: ",
        ];
        if service.reads_settings() {
            world.waits_for(service, &problems).await?;
        }
    }

    // The API server would drop what older definitions do not have, and the rest would be confirmed and
    // published.
    world.install_crds().await?;
    let name = "operatingsystemconfigs.operatingsystemmanager.k8c.io";
    let field = "provisioningUtility";
    world.drop_field("OperatingSystemConfig", name, field).await?;
    // They are checked at the start.
    world.restart(&[Service::OscController]).await?;
    world.set_settings("").await?;
    let lack = format!("they lack OperatingSystemConfig.spec.{field}");
    world.waits_for(Service::OscController, &[&lack]).await?;
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
    let configs = world.configs().list(&ListParams::default()).await?;
    assert!(configs.items.is_empty(), "{configs:?}");

    world.install_crds().await?;
    world.installed.ready(DEADLINE).await?;
    world.machine("pool", 1).await.map(drop)
}
