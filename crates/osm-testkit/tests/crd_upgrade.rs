//! The committed CustomResourceDefinitions on a real server, which has served the Go implementation's before, with
//! objects of it stored.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt};
use osm_api::{OperatingSystemConfig, OperatingSystemProfile};
use osm_testkit::{ControlPlane, installation};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Where the Go implementation's objects are.
const GO: &str = "go";

/// A server that had the Go implementation's definitions and objects when ours were installed over them.
async fn server() -> Result<&'static ControlPlane> {
    static INSTALLED: OnceCell<()> = OnceCell::const_new();
    let server = ControlPlane::shared().await?;
    INSTALLED.get_or_try_init(|| upgrade(server)).await?;
    Ok(server)
}

async fn upgrade(server: &ControlPlane) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crds");
    let read = |path: PathBuf| std::fs::read_to_string(&path).with_context(|| path.display().to_string());
    let definitions = Api::<CustomResourceDefinition>::all(server.admin()?);
    // By another field manager than ours, as it is where something else has installed them.
    let installer = PostParams { field_manager: Some("installer".to_owned()), ..PostParams::default() };
    for crd in [OperatingSystemProfile::crd(), OperatingSystemConfig::crd()] {
        let file = folder.join("go").join(format!("{}.yaml", crd.spec.names.plural));
        definitions.create(&installer, &serde_saphyr::from_str(&read(file)?)?).await?;
    }
    namespace(server, GO).await?;
    server
        .apply_yaml(&read(folder.join("go-objects.yaml"))?)
        .await
        .context("the Go implementation's objects")?;
    server.install_crds(&installation::crds()).await
}

async fn namespace(server: &ControlPlane, name: &str) -> Result<()> {
    installation::apply(
        server,
        &[json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})],
    )
    .await
}

/// What is served is what is committed: nothing of what was there before survives, such as fields that were required.
#[tokio::test]
async fn definitions_replace_those_of_the_go_implementation() -> Result<()> {
    let server = server().await?;
    let definitions = Api::<CustomResourceDefinition>::all(server.admin()?);
    for crd in [OperatingSystemProfile::crd(), OperatingSystemConfig::crd()] {
        let name = crd.metadata.name.clone().context("name")?;
        let found = definitions.get(&name).await?;
        let schema = |crd: &CustomResourceDefinition| -> Result<Value> {
            let version = crd.spec.versions.first().context("a version")?;
            Ok(without_descriptions(serde_json::to_value(&version.schema)?))
        };
        pretty_eq(&schema(&found)?, &schema(&crd)?);
    }
    Ok(())
}

fn without_descriptions(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if fields.get("description").is_some_and(Value::is_string) {
                    fields.shift_remove("description");
                }
                fields.values_mut().for_each(walk);
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}

/// Compares by fields, as text shows where they differ.
fn pretty_eq(left: &Value, right: &Value) {
    fn lines(path: &str, value: &Value, all: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(key, value)| lines(&format!("{path}.{key}"), value, all))
            }
            other => all.push(format!("{path} = {other}")),
        }
    }
    let [left, right] = [left, right].map(|value| {
        let mut all = Vec::new();
        lines("", value, &mut all);
        all.sort();
        all
    });
    let only = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|line| !those.contains(line)).cloned().collect()
    };
    assert!(
        left == right,
        "only served: {:#?}\nonly committed: {:#?}",
        only(&left, &right),
        only(&right, &left)
    );
}
