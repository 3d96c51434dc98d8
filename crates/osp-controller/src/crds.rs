//! `osp-controller upgrade-crds`: upgrades the CustomResourceDefinitions to this version, and never downgrades them. The chart runs it
//! before it installs or upgrades a release. Several releases of different versions may share one cluster.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::Condition;
use kube::{Client, ResourceExt};
use osm_api::definitions;
use osm_runtime::Api;
use osm_runtime::error::is_code;
use serde_json::Value;

/// How long the API server may take to serve a definition.
const SERVE_TIMEOUT: Duration = Duration::from_secs(60);

const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Applies the definitions, and waits until the API server serves them. Newer definitions stay as they are. In the others, fields of
/// other field managers stay.
///
/// # Errors
/// The API server cannot be reached, refuses a request, or does not serve a definition.
pub async fn upgrade(client: Client) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client);
    for text in [definitions::PROFILES, definitions::CONFIGS] {
        let ours = definitions::parse(text);
        let name = ours.pointer("/metadata/name").and_then(Value::as_str);
        let name = name.context("a definition without a name")?.to_owned();
        let done = tokio::time::timeout(SERVE_TIMEOUT, upgrade_one(&api, &name, ours)).await;
        done.with_context(|| {
            format!(
                "the API server does not serve {name} after {} s",
                SERVE_TIMEOUT.as_secs()
            )
        })??;
    }
    Ok(())
}

/// Repeats until the definition is written and served, because programs of other versions may write it at the same time.
async fn upgrade_one(api: &Api<CustomResourceDefinition>, name: &str, mut ours: Value) -> anyhow::Result<()> {
    let mut written = None;
    loop {
        let there = api
            .get_opt(name)
            .await
            .with_context(|| format!("reading {name}"))?;
        if let Some(newer) = there.as_ref().and_then(definitions::newer) {
            tracing::info!(name, version = %newer, "the CustomResourceDefinition is newer than this version and stays unchanged");
            return Ok(());
        }
        match there {
            Some(there) if written.is_some() && written == there.metadata.generation => {
                if is_served(&there)? {
                    tracing::info!(
                        name,
                        version = env!("CARGO_PKG_VERSION"),
                        "the CustomResourceDefinition is up to date, and the API server serves it"
                    );
                    return Ok(());
                }
            }
            there => {
                // With the resourceVersion, this write fails if another program has upgraded the definition meanwhile.
                let version = there.and_then(|there| there.metadata.resource_version);
                let metadata = ours.get_mut("metadata").and_then(Value::as_object_mut);
                match metadata.zip(version) {
                    Some((metadata, version)) => {
                        metadata.insert("resourceVersion".to_owned(), version.into())
                    }
                    None => None,
                };
                // The API group belongs to this program, so it takes the fields from other managers: a schema has one owner.
                let params = PatchParams::apply(definitions::NAME).force();
                match api.patch(name, &params, &Patch::Apply(&ours)).await {
                    Ok(patched) => written = patched.metadata.generation,
                    Err(error) if is_code(&error, 409) => {}
                    Err(error) => return Err(error).with_context(|| format!("writing {name}")),
                }
            }
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// # Errors
/// Another definition has the same names.
fn is_served(definition: &CustomResourceDefinition) -> anyhow::Result<bool> {
    let mut conditions = definition
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    if let Some(taken) = conditions.find(|found| found.type_ == "NamesAccepted" && found.status == "False") {
        let message = taken.message.as_deref().unwrap_or_default();
        bail!(
            "the API server does not serve {}, because its names are taken: {message}",
            definition.name_any()
        );
    }
    Ok(is_crd_established().matches_object(Some(definition)))
}
