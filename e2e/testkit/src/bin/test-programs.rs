//! Installs and builds the programs that tests need, before `cargo xtask test` runs the tests: they would do
//! so themselves, one after another.

use anyhow::Result;
use osm_judges::packages;
use osm_testkit::control_plane::assets::{self, Component};
use osm_testkit::helm;
use osm_testkit::progress::Progress;
use osm_testkit::upstream_osm;

#[tokio::main]
async fn main() -> Result<()> {
    let progress = Progress::start();
    progress.step("Debian packages");
    tokio::task::block_in_place(|| packages::ensure(packages::FOR_TESTS))?;
    progress.step("etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl");
    let components = [
        Component::Etcd,
        Component::KubeApiserver,
        Component::KubeControllerManager,
        Component::KubeScheduler,
        Component::Kubectl,
    ];
    assets::ensure(&components, |line| progress.step(line)).await?;
    progress.step("Helm 3 and 4, and KubeOne");
    helm::program(|line| progress.step(line)).await?;
    helm::program_4(|line| progress.step(line)).await?;
    helm::kubeone(|line| progress.step(line)).await?;
    progress.step("the upstream OSM");
    upstream_osm::program(|line| progress.step(line)).await?;
    progress.step("done");
    Ok(())
}
