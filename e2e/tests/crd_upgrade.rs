//! Applies the committed CustomResourceDefinitions over those of the Go implementation, and over those of an earlier version.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt, Resource};
use osm_api::content::ContentView;
use osm_api::{OperatingSystemConfig, OperatingSystemProfile};
use osm_testkit::{ControlPlane, Options, installation, wait_for};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(180);

/// Server-side apply merges: what the schemas before said, and ours say nothing about, could stay.
#[tokio::test]
async fn nothing_of_the_schemas_before_survives() -> Result<()> {
    let server = ControlPlane::start(Options::default()).await?;
    install(&server, "go-shaped.yaml").await?;
    is_upgraded(&server).await
}

/// Most fields of the content were in the spec, and the status named its generation.
#[tokio::test]
async fn a_config_of_the_version_before_is_kept_and_read() -> Result<()> {
    let server = ControlPlane::start(Options::default()).await?;
    install(&server, "content-in-spec.yaml").await?;
    let configs = Api::<DynamicObject>::default_namespaced_with(
        server.admin()?,
        &ApiResource::erase::<OperatingSystemConfig>(&()),
    );
    let content = json!({"osName": "ubuntu", "osVersion": "24.04", "cloudProvider": {"name": "aws"},
        "bootstrapConfig": {"files": [{"path": "/etc/boot", "content": {"inline": {"data": "boot"}}}]},
        "provisioningConfig": {"units": [{"name": "a.service", "enable": true}]},
        "machineDeployment": {"namespace": "n", "name": "p", "uid": "u", "revision": "1", "templateDigest": "t"}, "digest": "d"});
    let before = json!({"apiVersion": OperatingSystemConfig::api_version(&()), "kind": OperatingSystemConfig::kind(&()),
        "metadata": {"name": "before"}, "spec": content});
    let stored = wait_for("the kind to be served", DEADLINE, async || {
        let object = serde_json::from_value(before.clone())?;
        Ok(Some(configs.create(&PostParams::default(), &object).await?))
    });
    let generation = stored.await?.metadata.generation;
    let status = json!({"rendered": {"generation": generation, "digest": "d", "revision": "1"}});
    let patch = Patch::Merge(json!({"status": status}));
    configs
        .patch_status("before", &PatchParams::default(), &patch)
        .await?;

    is_upgraded(&server).await?;
    let kept = configs.get("before").await?;
    ensure!(
        kept.metadata.generation == generation && kept.data["status"] == status,
        "{:?}",
        kept.data
    );
    let config = Api::<OperatingSystemConfig>::default_namespaced(server.admin()?)
        .get("before")
        .await?;
    let view = ContentView::of(&config);
    ensure!(view.belongs_to("u") && view.publishable().is_some() && !view.is_of_this_form());
    let file = view.content()?.bootstrap_config.files.first().cloned();
    ensure!(
        file.is_some_and(|file| file.path == "/etc/boot"),
        "{:?}",
        config.spec
    );
    Ok(())
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
