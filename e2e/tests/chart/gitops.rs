//! Renders the chart with the examples of values: those for Argo CD and Flux, and those for production.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use osm_testkit::helm::Helm;
use osm_testkit::process::ScratchDir;
use serde_json::{Value, json};

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
    // Who copies the example has the settings of docs/install.md that depend on the cluster.
    for setting in ["10.96.0.10", "externalCloudProvider: true"] {
        ensure!(
            objects
                .iter()
                .any(|object| object["kind"] == "ConfigMap" && object.to_string().contains(setting)),
            "the settings lack {setting}"
        );
    }
    Ok(objects)
}

/// Argo CD finds no existing objects, runs no hooks, and must not delete profiles, configs and what booting
/// machines read.
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
    assert_eq!(kinds, ["Namespace", definition, definition, definition]);
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

/// Who copies them has what the checklist asks for.
#[tokio::test]
async fn values_for_production_are_taken_and_do_what_the_checklist_says() -> Result<()> {
    let text = std::fs::read_to_string(root().join("examples/values-production.yaml"))?;
    let values: Value = serde_saphyr::from_str(&text)?;
    osm_api::Settings::from_document(values["settings"].clone())?;
    let objects = render(&json!("osm"), &json!("osm"), &values).await?;
    for kind in ["NetworkPolicy", "PrometheusRule", "ServiceMonitor"] {
        ensure!(objects.iter().any(|object| object["kind"] == kind), "no {kind}");
    }
    let deployments = objects.iter().filter(|object| object["kind"] == "Deployment");
    for deployment in deployments {
        assert_eq!(deployment["spec"]["replicas"], 2, "{deployment}");
    }
    Ok(())
}

/// What Argo CD makes of pools. It runs a health check as a function of `obj`.
const POOLS: &str = r#"
local function condition(type, status)
  return { type = type, status = status, observedGeneration = 1, message = type .. "=" .. status }
end
local rendered, ready = condition("Rendered", "True"), condition("Ready", "True")
for _, conditions in ipairs({
  { rendered },
  { rendered, condition("Published", "True"), ready },
  { rendered, condition("Published", "False"), ready },
  { rendered, condition("Published", "True"), ready, condition("Current", "False") },
}) do
  local health = check({ metadata = { generation = 1 }, status = { conditions = conditions } })
  print(health.status .. " " .. health.message)
end
"#;

#[test]
fn a_pool_is_degraded_while_its_newest_change_has_no_effect() -> Result<()> {
    osm_judges::packages::ensure(&["lua5.4"])?;
    let page = crate::page::read("gitops.md")?;
    let blocks = crate::page::blocks(&page, "yaml");
    let checks = blocks
        .iter()
        .find(|block| block.contains("customizations.health"));
    let checks: Value = serde_saphyr::from_str(checks.context("health checks")?)?;
    let key = "resource.customizations.health.operatingsystemmanager.k8c.io_OperatingSystemConfig";
    let check = checks["data"][key].as_str().context(key)?;
    let program = format!("local function check(obj)\n{check}\nend\n{POOLS}");
    let output = std::process::Command::new("lua5.4")
        .args(["-e", &program])
        .output()?;
    let lines = [
        "Progressing the condition Published is not up to date",
        "Healthy Ready=True",
        "Degraded Published=False",
        "Degraded Current=False",
    ];
    assert_eq!(
        String::from_utf8(output.stdout)?.lines().collect::<Vec<_>>(),
        lines
    );
    Ok(())
}
