//! Applies the committed CustomResourceDefinitions over those of the Go implementation.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, CustomResourceExt};
use osm_api::{OperatingSystemConfig, OperatingSystemProfile};
use osm_testkit::{ControlPlane, Options, installation};
use serde_json::Value;

/// Server-side apply merges: what the schemas before said, and ours say nothing about, could stay.
#[tokio::test]
async fn nothing_of_the_schemas_before_survives() -> Result<()> {
    let server = ControlPlane::start(Options::default()).await?;
    install(&server, "go-shaped.yaml").await?;
    is_upgraded(&server).await
}

/// Creates the definitions of a fixture, by another field manager than the one that applies ours.
async fn install(server: &ControlPlane, fixture: &str) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(server.admin()?);
    let installer = PostParams {
        field_manager: Some("installer".to_owned()),
        ..PostParams::default()
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(fixture);
    let before = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    for crd in serde_saphyr::from_multiple::<CustomResourceDefinition>(&before)? {
        definitions.create(&installer, &crd).await?;
    }
    Ok(())
}

/// Applies ours, and checks that the server has their schemas and nothing more.
async fn is_upgraded(server: &ControlPlane) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(server.admin()?);
    server.install_crds(&installation::crds()).await?;
    for crd in &[OperatingSystemProfile::crd(), OperatingSystemConfig::crd()] {
        let name = crd.metadata.name.as_deref().context("name")?;
        let (served, committed) = (schema(&definitions.get(name).await?)?, schema(crd)?);
        let more: Vec<_> = served.difference(&committed).collect();
        let less: Vec<_> = committed.difference(&served).collect();
        ensure!(
            more.is_empty() && less.is_empty(),
            "{name}: only served {more:#?}, only committed {less:#?}"
        );
    }
    Ok(())
}

/// The schema of the one version, a line for each value in it.
fn schema(crd: &CustomResourceDefinition) -> Result<BTreeSet<String>> {
    fn lines(path: &str, value: &Value, all: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                fields
                    .iter()
                    .for_each(|(key, value)| lines(&format!("{path}.{key}"), value, all));
            }
            other => {
                all.insert(format!("{path}: {other}"));
            }
        }
    }
    let [version] = crd.spec.versions.as_slice() else {
        anyhow::bail!("not one version")
    };
    let mut all = BTreeSet::new();
    lines("", &serde_json::to_value(&version.schema)?, &mut all);
    Ok(all)
}
