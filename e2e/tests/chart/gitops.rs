//! Renders the chart as the manifests for Argo CD and Flux have it installed.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// The health check of a kind in docs/gitops.md.
fn health_check(kind: &str) -> Result<String> {
    let page = std::fs::read_to_string(root().join("docs/gitops.md"))?;
    let key = format!("resource.customizations.health.operatingsystemmanager.k8c.io_{kind}");
    let blocks = page.split("```yaml\n").skip(1);
    let block = blocks
        .filter_map(|block| block.split("```").next())
        .find(|block| block.contains(&key));
    let patch: Value = serde_saphyr::from_str(block.context("no such block")?)?;
    Ok(patch["data"][key].as_str().context("no check")?.to_owned())
}

/// A value as an expression of Lua.
fn lua(value: &Value) -> String {
    match value {
        Value::Null => "nil".to_owned(),
        Value::Array(items) => format!("{{{}}}", items.iter().map(lua).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| format!("[{name:?}] = {}", lua(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

/// Status and message of an object by a health check, which Argo CD runs as a function of `obj`.
fn health(check: &str, object: &Value) -> Result<(String, String)> {
    let program = format!(
        "local obj = {}\nlocal health = (function()\n{check}\nend)()\nprint(health.status)\nprint(health.message)\n",
        lua(object)
    );
    let mut interpreter = Command::new("lua5.4")
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    interpreter
        .stdin
        .take()
        .context("standard input")?
        .write_all(program.as_bytes())?;
    let output = interpreter.wait_with_output()?;
    ensure!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout)?;
    let (status, message) = text.trim_end().split_once('\n').context("two lines")?;
    Ok((status.to_owned(), message.to_owned()))
}

#[test]
fn argo_cd_reports_the_health_of_profiles_and_pools() -> Result<()> {
    osm_judges::packages::ensure(&["lua5.4"])?;
    let condition = |type_: &str, status: &str, reason: &str, generation: i64| {
        json!({"type": type_, "status": status, "reason": reason, "message": format!("{type_} {reason}"),
            "observedGeneration": generation})
    };
    let rendered = condition("Rendered", "True", "Rendered", 1);
    let published = |status: &str, reason: &str| condition("Published", status, reason, 1);
    let ready = condition("Ready", "True", "Published", 1);
    let (good, missing) = (
        published("True", "Published"),
        published("False", "SourceMissing"),
    );
    for (kind, generation, conditions, expected) in [
        (
            "OperatingSystemProfile",
            2,
            json!([condition("Accepted", "True", "Accepted", 1)]),
            "Progressing",
        ),
        (
            "OperatingSystemProfile",
            1,
            json!([condition("Accepted", "False", "TemplateFailed", 1)]),
            "Degraded",
        ),
        ("OperatingSystemConfig", 1, json!([rendered]), "Progressing"),
        (
            "OperatingSystemConfig",
            1,
            json!([rendered, good, ready]),
            "Healthy",
        ),
        (
            "OperatingSystemConfig",
            1,
            json!([rendered, missing, ready]),
            "Degraded",
        ),
    ] {
        let status = json!({"observedGeneration": 1, "conditions": conditions});
        let object = json!({"metadata": {"generation": generation}, "status": status});
        let (found, message) = health(&health_check(kind)?, &object)?;
        assert_eq!(found, expected, "{object}: {message}");
    }
    Ok(())
}
