//! The static manifest and the kustomize base in `deploy`.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use osm_testkit::{ControlPlane, Options, manifest};

use crate::page::{Person, read, section_blocks};

#[tokio::test]
async fn the_manifest_is_what_the_chart_renders() -> Result<()> {
    let committed = std::fs::read_to_string(manifest::file())?;
    ensure!(
        committed == manifest::render().await?,
        "deploy/ is out of date: run `cargo xtask manifest`"
    );
    for mark in ["helm.sh", "managed-by"] {
        ensure!(!committed.contains(mark), "{mark}");
    }
    ensure!(
        std::fs::read_to_string(manifest::rules_file())? == manifest::render_rules().await?,
        "deploy/prometheus-rules.yaml is out of date: run `cargo xtask manifest`"
    );
    Ok(())
}

/// Twice, as an upgrade does; then with the kustomization of the page, whose settings win.
#[tokio::test(flavor = "multi_thread")]
async fn the_manifest_and_the_base_are_installed_as_the_page_says() -> Result<()> {
    let yaml = section_blocks(&read("install.md")?, "Without Helm", "yaml")?;
    let kustomization = yaml.first().context("a kustomization")?;
    let base = "- deploy ";
    ensure!(kustomization.contains(base), "{kustomization}");

    let plane = ControlPlane::start(Options::default()).await?;
    let person = Person::new(vec![("cluster", &plane)]).await?;
    let apply = format!(
        "kubectl apply --server-side --force-conflicts -f '{}'",
        manifest::file().display()
    );
    person.run(&format!("{apply}\n{apply}")).await?;
    let client = plane.admin()?;
    let deployments = Api::<Deployment>::namespaced(client.clone(), "kube-system")
        .list(&ListParams::default())
        .await?;
    let names: Vec<_> = deployments.iter().map(ResourceExt::name_any).collect();
    let services = [
        "csr-approver",
        "osc-controller",
        "osp-controller",
        "secret-syncer",
    ];
    assert_eq!(names, services.map(|service| format!("osm-{service}")));

    // A base is a folder beside the kustomization.
    let copy = format!(
        "mkdir base && cp '{folder}'/*.yaml base && cat >kustomization.yaml <<'EOT'\n{}\nEOT\n\
         kubectl apply --server-side --force-conflicts -k .",
        kustomization.replace(base, "- base "),
        folder = manifest::folder().display(),
    );
    person.run(&copy).await?;
    let settings = Api::<ConfigMap>::namespaced(client, "kube-system")
        .get("osm-settings")
        .await?;
    ensure!(
        format!("{:?}", settings.data).contains("169.254.20.10"),
        "{settings:?}"
    );
    Ok(())
}
