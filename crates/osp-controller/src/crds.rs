//! `osp-controller upgrade-crds`: brings CustomResourceDefinitions to this version, and never back from a newer one. The chart runs it before a
//! release is installed or upgraded; several releases of different versions may share one cluster.

use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::Condition;
use kube::{Api, Client, ResourceExt};
use osm_api::definitions;
use osm_runtime::status::is_code;

/// How long the API server may take to serve a definition.
const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(200);

/// Applies the definitions, and waits until they are served. Those that are newer stay; of the others, whoever has installed them, what
/// somebody has written besides stays.
///
/// # Errors
/// When the server can't be reached, refuses, or does not serve a definition.
pub async fn upgrade(client: Client) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client);
    for ours in definitions::all() {
        let name = ours.name_any();
        let done = tokio::time::timeout(PATIENCE, bring(&api, &name, ours)).await;
        done.with_context(|| format!("{name} is not served after {} s", PATIENCE.as_secs()))??;
    }
    Ok(())
}

/// Until it stands and is served: programs of other versions may be about the same.
async fn bring(
    api: &Api<CustomResourceDefinition>,
    name: &str,
    mut ours: CustomResourceDefinition,
) -> anyhow::Result<()> {
    let mut written = None;
    loop {
        let there = api.get_opt(name).await.with_context(|| format!("reading {name}"))?;
        if let Some(newer) = there.as_ref().and_then(definitions::newer) {
            tracing::info!(name, version = %newer, "is newer, and stays");
            return Ok(());
        }
        match there {
            Some(there) if written.is_some() && written == there.metadata.generation => {
                if is_served(&there)? {
                    tracing::info!(
                        name,
                        version = env!("CARGO_PKG_VERSION"),
                        "is of this version, and served"
                    );
                    return Ok(());
                }
            }
            there => {
                // What has become newer in between is not written over.
                ours.metadata.resource_version = there.and_then(|there| there.metadata.resource_version);
                // It is ours by its group, whoever has installed it: two writers of one schema can't both be right.
                let params = PatchParams::apply(definitions::NAME).force();
                match api.patch(name, &params, &Patch::Apply(&ours)).await {
                    Ok(patched) => written = patched.metadata.generation,
                    Err(error) if is_code(&error, 409) => {}
                    Err(error) => return Err(error).with_context(|| format!("writing {name}")),
                }
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// # Errors
/// When its names are another's.
fn is_served(definition: &CustomResourceDefinition) -> anyhow::Result<bool> {
    let mut conditions = definition.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if let Some(taken) = conditions.find(|found| found.type_ == "NamesAccepted" && found.status == "False") {
        let message = taken.message.as_deref().unwrap_or_default();
        bail!("{} is not served, its names are taken: {message}", definition.name_any());
    }
    Ok(is_crd_established().matches_object(Some(definition)))
}
