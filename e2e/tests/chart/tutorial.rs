//! Follows docs/tutorial.md literally, with the services, on an API server without nodes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use osm_api::names::SETTINGS_CONFIG_MAP;
use osm_api::rbac::Installation;
use osm_testkit::installation::{self, Installed};
use osm_testkit::machine_controller::{machine_deployment, stamp_revision};
use osm_testkit::{ControlPlane, Options};

use crate::page::{Person, read};

/// What a reader has after starting the demo.
const INSTALL: &str = "helm install osm ./charts/operating-system-manager --namespace kube-system \
    --set image.registry=registry.example.com/osm --set settings.cluster.dnsIPs='{10.96.0.10}'";

/// Each `sh` block, with the `console` block that shows what it prints.
fn steps(page: &str) -> Vec<(String, String)> {
    let mut steps: Vec<(String, String)> = Vec::new();
    // Text and blocks take turns, and a block begins with its kind.
    for block in page.split("\n```").skip(1).step_by(2) {
        match (block.split_once('\n'), steps.last_mut()) {
            (Some(("sh", commands)), _) => steps.push((commands.to_owned(), String::new())),
            (Some(("console", shown)), Some((_, expected))) => shown.clone_into(expected),
            _ => {}
        }
    }
    steps
}

/// Words without digits: times, versions, ages and numbers of lines differ.
fn words(shown: &str) -> impl Iterator<Item = &str> {
    let words = shown.split_whitespace();
    words.filter(|word| !word.contains(|c: char| c.is_ascii_digit()))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_block_of_the_tutorial_does_what_it_says() -> Result<()> {
    let page = read("tutorial.md")?;
    let binaries = tokio::task::spawn_blocking(installation::binaries).await??;
    let plane = ControlPlane::start(Options::default()).await?;
    plane.install_machine_deployment_crd().await?;
    installation::apply(
        &plane,
        &[installation::cluster_info(plane.ca_pem(), &plane.url())],
    )
    .await?;

    let person = Person::new(vec![("cluster", &plane)]).await?;
    person.run(INSTALL).await?;
    let installed = Installation {
        settings: SETTINGS_CONFIG_MAP.to_owned(),
        ..Installation::default()
    };
    let mut services = Installed::by_chart(&plane, installed, "osm", &binaries).await?;
    services.start_all().await?;

    let steps = steps(&page);
    for (commands, shown) in &steps {
        let printed = tokio::select! {
            printed = person.run(commands) => printed.with_context(|| format!("{commands}\n{}", services.logs()))?,
            problem = stamps_revisions(&plane) => bail!("no machine-controller any more: {problem:?}"),
        };
        let missing: Vec<&str> = words(shown).filter(|word| !printed.contains(word)).collect();
        ensure!(
            missing.is_empty(),
            "{commands}\ndoesn't print {missing:?}:\n{printed}"
        );
    }
    let with_output = steps.iter().filter(|(_, shown)| !shown.is_empty()).count();
    ensure!(with_output >= 7, "{with_output}");
    Ok(())
}

/// As machine-controller: each template has a revision, and another template the next one.
async fn stamps_revisions(plane: &ControlPlane) -> Result<Infallible> {
    let client = plane.admin()?;
    let pools = Api::<DynamicObject>::all_with(client.clone(), &machine_deployment());
    let mut seen = BTreeMap::new();
    loop {
        for pool in pools.list(&ListParams::default()).await? {
            let stamped = pool
                .annotations()
                .get(osm_api::names::REVISION)
                .and_then(|revision| revision.parse::<u64>().ok());
            let template = pool.data["spec"]["template"].to_string();
            let before = seen.insert(pool.name_any(), template.clone());
            if stamped.is_none() || before.is_some_and(|before| before != template) {
                // It may be gone already.
                let _ = stamp_revision(&client, &pool, stamped.unwrap_or(0) + 1).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
