//! Applies manifests as `kubectl apply --server-side` does.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{GroupVersionKind, gvk::ParseGroupVersionError};
use kube::discovery::{ApiCapabilities, ApiResource, Scope};
use kube::{Client, ResourceExt, discovery};
use serde_json::Value;

use crate::wait::wait_for;

/// How long a kind that has just been defined may take to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(180);

/// Applies every document of `yaml` in order, by server-side apply (forced, field manager `osm-testkit`); a
/// namespaced object without a namespace goes to `default`.
///
/// # Errors
/// When the text is not YAML, an object lacks apiVersion, kind or name, its kind is not served, or the server
/// refuses it.
pub async fn apply_yaml(client: &Client, yaml: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for object in parse(yaml)? {
        let what = format!(
            "{} {}",
            object
                .types
                .as_ref()
                .map(|types| types.kind.clone())
                .unwrap_or_default(),
            object.name_any()
        );
        applied.push(apply(client, object).await.with_context(|| what)?);
    }
    Ok(applied)
}

/// Applies every `.yaml` file of `directory` and waits until the kinds that its CustomResourceDefinitions
/// define are served.
///
/// # Errors
/// As [`apply_yaml`], and when a kind is not served in time.
pub async fn install_crds(client: &Client, directory: &Path) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    for file in files {
        let yaml = fs::read_to_string(&file)?;
        let objects = apply_yaml(client, &yaml)
            .await
            .with_context(|| file.display().to_string())?;
        for crd in &objects {
            wait_until_served(client, crd).await?;
        }
    }
    Ok(())
}

/// Waits until every version of a CustomResourceDefinition can be listed; anything else is served already.
async fn wait_until_served(client: &Client, crd: &DynamicObject) -> Result<()> {
    let Some(spec) = crd.data.get("spec").filter(|_| is_crd(crd)) else {
        return Ok(());
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (group, kind) = (text(spec.get("group")), text(spec.pointer("/names/kind")));
    for version in spec
        .get("versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        if version.get("served") == Some(&Value::Bool(true)) {
            let gvk = GroupVersionKind::gvk(&group, &text(version.get("name")), &kind);
            let (resource, _) = discover(client, &gvk).await?;
            let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
            wait_for(&format!("{kind} to be served"), SERVED_WITHIN, async || {
                Ok(Some(api.list(&ListParams::default().limit(1)).await?))
            })
            .await?;
        }
    }
    Ok(())
}

fn is_crd(object: &DynamicObject) -> bool {
    object
        .types
        .as_ref()
        .is_some_and(|types| types.kind == "CustomResourceDefinition")
}

async fn apply(client: &Client, object: DynamicObject) -> Result<DynamicObject> {
    let types = object.types.as_ref().context("apiVersion and kind are missing")?;
    let gvk = GroupVersionKind::try_from(types)
        .map_err(|error: ParseGroupVersionError| anyhow::anyhow!("{error}"))?;
    let Some(name) = object.metadata.name.clone() else {
        bail!("metadata.name is missing")
    };
    let (resource, capabilities) = discover(client, &gvk).await?;
    let api = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(
            client.clone(),
            object.metadata.namespace.as_deref().unwrap_or("default"),
            &resource,
        ),
    };
    let params = PatchParams::apply("osm-testkit").force();
    Ok(api.patch(&name, &params, &Patch::Apply(&object)).await?)
}

/// Asks again while the kind is unknown: a CustomResourceDefinition just before it in the same text may not
/// be served yet.
async fn discover(client: &Client, gvk: &GroupVersionKind) -> Result<(ApiResource, ApiCapabilities)> {
    let what = format!("{} {} to be served", gvk.api_version(), gvk.kind);
    wait_for(&what, SERVED_WITHIN, async || {
        Ok(Some(discovery::pinned_kind(client, gvk).await?))
    })
    .await
}

fn parse(yaml: &str) -> Result<Vec<DynamicObject>> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    let documents: Vec<Value> =
        serde_saphyr::from_multiple_with_options(yaml, options).context("not YAML")?;
    let mut objects = Vec::new();
    for document in documents {
        if document.is_null() {
            continue; // only comments between two separators
        }
        objects.push(serde_json::from_value(document).context("not a Kubernetes object")?);
    }
    Ok(objects)
}
