//! Reading manifests and settings.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use osm_api::settings::Settings;
use osm_api::{MachineDeployment, OperatingSystemProfile, Pool, strict};
use osm_render::yaml;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// What a stream of manifests holds.
#[derive(Default)]
pub struct Manifests {
    /// MachineDeployments, in order.
    pub machine_deployments: Vec<MachineDeployment>,
    /// OperatingSystemProfiles, in order.
    pub profiles: Vec<OperatingSystemProfile>,
}

/// Text of a file, or of standard input where the path is `-`.
pub fn text(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}; check the path", path.display()))
}

/// Reads a stream of manifests. Lists are taken apart; other kinds are an error.
pub fn manifests(path: &Path) -> Result<Manifests> {
    let name = path.display();
    let documents = yaml::read(&text(path)?).map_err(|error| anyhow!("{name} is not valid YAML: {error}"))?;
    let mut manifests = Manifests::default();
    for (i, document) in documents.into_iter().enumerate() {
        let items = match document.get("items").and_then(Value::as_array) {
            Some(items)
                if document
                    .get("kind")
                    .and_then(Value::as_str)
                    .is_some_and(|kind| kind.ends_with("List")) =>
            {
                items.clone()
            }
            _ => vec![document],
        };
        for item in items {
            take(&mut manifests, item).with_context(|| format!("{name}, document {}", i + 1))?;
        }
    }
    Ok(manifests)
}

fn take(manifests: &mut Manifests, item: Value) -> Result<()> {
    match item.get("kind").and_then(Value::as_str) {
        Some("MachineDeployment") => manifests
            .machine_deployments
            .push(decode("MachineDeployment", item)?),
        Some("OperatingSystemProfile") => manifests.profiles.push(decode("OperatingSystemProfile", item)?),
        Some(kind) => bail!("is a {kind}; provide only MachineDeployments and OperatingSystemProfiles"),
        None => bail!("has no kind; provide a complete manifest with apiVersion, kind and metadata"),
    }
    Ok(())
}

fn decode<T: DeserializeOwned>(kind: &str, value: Value) -> Result<T> {
    strict::decode(value).map_err(|errors| anyhow!("this {kind} is invalid:\n  {}", errors.join("\n  ")))
}

/// Reads what rendering needs of a MachineDeployment.
pub fn pool(machine_deployment: &MachineDeployment) -> Result<Pool> {
    let name = machine_deployment.metadata.name.as_deref().unwrap_or_default();
    Pool::read(machine_deployment).with_context(|| format!("MachineDeployment {name}"))
}

/// Reads a settings document; without one, the defaults.
pub fn settings(path: Option<&Path>) -> Result<Settings> {
    Ok(settings_document(path)?.0)
}

/// Settings, and the document that says so.
pub fn settings_document(path: Option<&Path>) -> Result<(Settings, Value)> {
    let Some(path) = path else {
        return Ok((Settings::default(), Value::Object(Map::new())));
    };
    Settings::document(&text(path)?)
        .and_then(|document| Ok((Settings::from_document(document.clone())?, document)))
        .with_context(|| path.display().to_string())
}
