//! Follows docs/operations.md: its commands, and the metrics that it names.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::Api;
use kube::api::DynamicObject;
use osm_api::names;
use osm_testkit::machine_controller::machine_deployment;
use osm_testkit::{ControlPlane, Options, fixtures, installation};
use serde_json::json;

use crate::page::{Person, blocks};

fn page() -> Result<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations.md");
    Ok(std::fs::read_to_string(path)?)
}

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
    let printed = person.run(&blocks(&page()?, "sh").join("\n")).await?;
    ensure!(printed.contains("17"), "no revision: {printed}");
    ensure!(
        printed.contains("\"workers-7d9f6c5b8-x2x4k\" deleted"),
        "{printed}"
    );
    let pools = Api::<DynamicObject>::namespaced_with(plane.admin()?, "kube-system", &machine_deployment());
    let changed = pools.get("workers").await?;
    let value = &changed.data["spec"]["template"]["metadata"]["annotations"]["force-rotate"];
    // machine-controller refuses an annotation that is no text.
    ensure!(value.is_string(), "{value}");
    // Only the annotation is new: labels, by which machines are found, stay.
    let labels = &changed.data["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels, &json!({"pool": "workers"}));
    Ok(())
}

/// What takes the place of a metric of the Go implementation is a metric that the page describes.
#[test]
fn counterparts_of_metrics_are_described() -> Result<()> {
    let page = page()?;
    let (described, counterparts) = page
        .split_once("### Metrics of the Go implementation")
        .context("the counterparts")?;
    let counterparts = counterparts.split("\n## ").next().unwrap_or_default();
    let names: Vec<&str> = counterparts
        .split('`')
        .filter(|word| word.starts_with("osm_"))
        .collect();
    ensure!(names.len() >= 6, "{names:?}");
    for name in names {
        ensure!(
            described.contains(&format!("\n| `{name}`")),
            "{name} is not described"
        );
    }
    Ok(())
}
