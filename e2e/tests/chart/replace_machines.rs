//! Runs the commands of docs/replace-machines.md.

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::DynamicObject;
use osm_api::names;
use osm_testkit::machine_controller::machine_deployment;
use osm_testkit::{ControlPlane, Options, fixtures, installation};
use serde_json::json;

use crate::page::{Person, blocks, read};

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_makes_machines_take_up_a_change() -> Result<()> {
    let plane = ControlPlane::start(Options::default()).await?;
    plane.install_machine_deployment_crd().await?;
    let mut pool = fixtures::machine_deployment("workers", "osp-ubuntu");
    pool["metadata"]["annotations"][names::REVISION] = json!("17");
    let machine = json!({"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "workers-7d9f6c5b8-x2x4k", "namespace": "kube-system"}, "spec": {}});
    installation::apply(&plane, &[pool, machine]).await?;

    let person = Person::new(vec![("cluster", &plane)]).await?;
    let printed = person
        .run(&blocks(&read("replace-machines.md")?, "sh").join("\n"))
        .await?;
    ensure!(printed.contains("17"), "no revision: {printed}");
    ensure!(
        printed.contains("\"workers-7d9f6c5b8-x2x4k\" deleted"),
        "{printed}"
    );
    let pools = Api::<DynamicObject>::namespaced_with(plane.admin()?, "kube-system", &machine_deployment());
    let changed = pools.get("workers").await?;
    let value = &changed.data["spec"]["template"]["metadata"]["annotations"]["force-rotate"];
    // machine-controller refuses an annotation that is not a text.
    ensure!(value.is_string(), "{value}");
    // Only the annotation is new: labels, by which machines are found, stay.
    let labels = &changed.data["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels, &json!({"pool": "workers"}));
    Ok(())
}
