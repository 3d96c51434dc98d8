//! Follows docs/tutorial.md literally, with the services, on an API server without nodes.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use osm_api::Joining;
use osm_api::names::SETTINGS_CONFIG_MAP;
use osm_api::rbac::{ClusterKind, Installation};
use osm_testkit::helm::chart;
use osm_testkit::installation::{self, Installed};
use osm_testkit::machine_controller::{machine_deployment, stamp_revision};
use osm_testkit::{ControlPlane, Options};

use crate::page::{Person, blocks};

/// Words of blocks that show a refusal or a difference, and what they must print.
const SHOWS: [(&str, &[&str]); 5] = [
    (
        "osmctl diff",
        &[
            "+This machine runs kubelet 1.34.2.",
            "htop",
            "+vm.swappiness = 10",
        ],
    ),
    ("osmctl test cases", &["ok cases/workers"]),
    (
        "edited.yaml",
        &[
            "give the changed profile a new version",
            "The API server refused the edit.",
        ],
    ),
    (
        "mistake.yaml",
        &["can't evaluate field KubernetesCA", "osmctl found the mistake."],
    ),
    (
        "apply -f osp-golden.yaml",
        &["osp-golden", "osp-workers", "v0.2.0", "Published"],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_block_of_the_tutorial_does_what_it_says() -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial.md");
    let page = std::fs::read_to_string(page)?;
    let (install, rest) = blocks(&page, "sh")
        .split_first()
        .map(|(first, rest)| (first.clone(), rest.to_vec()))
        .context("blocks")?;
    let programs = tokio::task::spawn_blocking(|| installation::build(&["osmctl"])).await??;
    let binaries = tokio::task::spawn_blocking(installation::binaries).await??;
    let plane = ControlPlane::start(Options::default()).await?;
    plane.install_machine_deployment_crd().await?;
    installation::apply(
        &plane,
        &[installation::cluster_info(plane.ca_pem(), &plane.url())],
    )
    .await?;

    let mut person = Person::new(vec![("cluster", &plane)]).await?;
    let path = person.environment.entry("PATH").or_default();
    *path = format!("{}:{path}", programs.display());
    person.environment.insert("CHART", chart().display().to_string());
    person.run(&install).await?;
    let installed = Installation {
        settings: SETTINGS_CONFIG_MAP.to_owned(),
        joining: Joining::Approved,
        ..Installation::default()
    };
    let mut services =
        Installed::by_chart(&[(&plane, &ClusterKind::ALL)], installed, "osm", &binaries).await?;
    services.start_all().await?;

    let mut shown = 0;
    for block in rest {
        let printed = tokio::select! {
            printed = person.run(&block) => printed.with_context(|| format!("{block}\n{}", services.logs()))?,
            problem = stamps_revisions(&plane) => bail!("no machine-controller any more: {problem:?}"),
        };
        for (words, expected) in SHOWS.iter().filter(|(words, _)| block.contains(words)) {
            for part in *expected {
                ensure!(printed.contains(part), "{words}: no {part:?} in\n{printed}");
            }
            shown += 1;
        }
    }
    ensure!(shown >= SHOWS.len(), "{shown}");
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
