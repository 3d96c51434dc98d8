//! Renders the chart as the manifests for Argo CD and Flux have it installed.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use osm_testkit::helm::Helm;
use osm_testkit::process::ScratchDir;
use serde_json::Value;

const PUBLISHED: &str = "registry.example.com/osm/charts";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The object of a kind in one of the examples.
fn example(file: &str, kind: &str) -> Result<Value> {
    let text = std::fs::read_to_string(root().join("examples/gitops").join(file))?;
    let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let found = objects.into_iter().find(|object| object["kind"] == kind);
    found.with_context(|| format!("{file} has no {kind}"))
}

/// As `helm template` renders a release with these values.
async fn render(release: &Value, namespace: &Value, values: &Value) -> Result<Vec<Value>> {
    let folder = ScratchDir::new("osm-gitops-")?;
    let file = folder.path().join("values.json");
    std::fs::write(&file, values.to_string())?;
    let (release, namespace) = (
        release.as_str().context("a release")?,
        namespace.as_str().context("a namespace")?,
    );
    let objects = Helm::without_cluster()
        .await?
        .template(release, namespace, &["--values", &file.display().to_string()])
        .await?;
    ensure!(
        objects
            .iter()
            .any(|object| object["kind"] == "ConfigMap" && object.to_string().contains("10.96.0.10")),
        "the settings are not those of the example"
    );
    Ok(objects)
}

/// Argo CD finds no existing objects, runs no hooks, and must not delete profiles, configs and what booting machines read.
#[tokio::test]
async fn argo_cd_gets_what_it_can_apply() -> Result<()> {
    let (application, repository) = (
        example("argocd.yaml", "Application")?,
        example("argocd.yaml", "Secret")?,
    );
    let source = &application["spec"]["source"];
    assert_eq!(source["repoURL"], PUBLISHED);
    assert_eq!(repository["stringData"]["url"], PUBLISHED);
    assert_eq!(source["chart"], "operating-system-manager");
    assert_eq!(source["targetRevision"], env!("CARGO_PKG_VERSION"));
    let objects = render(
        &application["metadata"]["name"],
        &application["spec"]["destination"]["namespace"],
        &source["helm"]["valuesObject"],
    )
    .await?;
    for object in &objects {
        let hook = &object["metadata"]["annotations"]["helm.sh/hook"];
        ensure!(hook.is_null(), "{object}");
    }
    let kept: Vec<&Value> = objects
        .iter()
        .filter(|object| object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep")
        .collect();
    let kinds: Vec<&Value> = kept.iter().map(|object| &object["kind"]).collect();
    let definition = "CustomResourceDefinition";
    assert_eq!(kinds, ["Namespace", "ServiceAccount", definition, definition]);
    for object in kept {
        let options = &object["metadata"]["annotations"]["argocd.argoproj.io/sync-options"];
        assert_eq!(options, "Prune=false,Delete=false", "{object}");
    }
    for object in &objects {
        let instance = &object["metadata"]["labels"]["app.kubernetes.io/instance"];
        assert_eq!(instance, &application["metadata"]["name"], "{object}");
    }
    Ok(())
}

#[tokio::test]
async fn flux_gets_the_published_chart_with_values_that_it_takes() -> Result<()> {
    let (release, source) = (
        example("flux.yaml", "HelmRelease")?,
        example("flux.yaml", "OCIRepository")?,
    );
    assert_eq!(
        source["spec"]["url"],
        format!("oci://{PUBLISHED}/operating-system-manager")
    );
    assert_eq!(source["spec"]["ref"]["tag"], env!("CARGO_PKG_VERSION"));
    assert_eq!(release["spec"]["chartRef"]["name"], source["metadata"]["name"]);
    assert_eq!(release["metadata"]["namespace"], source["metadata"]["namespace"]);
    let spec = &release["spec"];
    render(
        &spec["releaseName"],
        &release["metadata"]["namespace"],
        &spec["values"],
    )
    .await?;
    // Why the page says that Flux's fields for definitions have no effect.
    ensure!(!root().join("charts/operating-system-manager/crds").exists());
    Ok(())
}
