//! What the default profiles give, written down in `tests/golden`: a change of a template shows in a diff of documents.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::profile::{CloudProvider, OperatingSystemProfileSpec};
use serde_json::{Value, json};

use crate::samples::{full_sample, stand_in_cluster};
use crate::{Stage, compile, defaults, placeholders, resolve, user_data, yaml};

/// Both documents of every default profile for the newest kubelet, with everything set and readable stand-ins for
/// credentials: paths below `tests/golden`, such as `osp-ubuntu/bootstrap.yaml`, and texts.
///
/// # Errors
/// The profile that can't be rendered, and why.
pub fn goldens() -> Result<Vec<(String, String)>, String> {
    let mut goldens = Vec::new();
    for (name, spec) in defaults() {
        let documents = documents(&spec).map_err(|error| format!("{name}: {error}"))?;
        let named = |(stage, text)| (format!("{name}/{stage}.yaml"), text);
        goldens.extend(documents.into_iter().map(named));
    }
    Ok(goldens)
}

fn documents(spec: &OperatingSystemProfileSpec) -> Result<Vec<(&'static str, String)>, String> {
    let supports = |cloud| spec.supported_cloud_providers.iter().any(|known| known.name == cloud);
    let first = spec.supported_cloud_providers.first().map(|cloud| cloud.name);
    // The most usual one, where it is supported.
    let usual = supports(CloudProvider::Openstack).then_some(CloudProvider::Openstack).or(first);
    let cloud = usual.ok_or("supports no cloud")?;
    let (pool, settings) = full_sample(spec, cloud).ok_or("there is no sample")?;
    let profile = resolve(spec).and_then(|accepted| compile(&accepted)).map_err(|error| error.to_string())?;
    let rendered =
        profile.render(&pool, &settings, &stand_in_cluster()).map_err(|error| error.to_string())?;
    let kubelet = &pool.kubelet_version;
    [("bootstrap", Stage::Bootstrap), ("provisioning", Stage::Provisioning)]
        .into_iter()
        .map(|(name, stage)| {
            let document = user_data(&rendered.spec, stage, &placeholders(&rendered.spec));
            let text = readable(&document.map_err(|error| error.to_string())?)?;
            let header = format!(
                "# {name} on {cloud}, kubelet {kubelet}, everything set. Written by `cargo xtask bless`."
            );
            Ok((name, format!("{header}\n{text}")))
        })
        .collect()
}

/// A document as people read it: a cloud-config as it is, of an Ignition config the contents of files decoded, as YAML.
fn readable(document: &str) -> Result<String, String> {
    if document.starts_with("#cloud-config\n") {
        return Ok(document.to_owned());
    }
    let mut config: Value = serde_json::from_str(document).map_err(|error| error.to_string())?;
    for file in config.pointer_mut("/storage/files").and_then(Value::as_array_mut).into_iter().flatten() {
        let contents = file.get("contents").ok_or("a file without contents")?;
        let compressed = contents.get("compression").is_some();
        let source = contents.get("source").and_then(Value::as_str).ok_or("contents without a source")?;
        let text = decode(source, compressed)?;
        let compression = if compressed { "gzip" } else { "none" };
        let fields = file.as_object_mut().ok_or("a file that is none")?;
        fields.insert("contents".to_owned(), json!({"compression": compression, "text": text}));
    }
    yaml::write(&config)
}

fn decode(source: &str, compressed: bool) -> Result<String, String> {
    let bytes = match source.strip_prefix("data:;base64,") {
        Some(body) => STANDARD.decode(body).map_err(|error| error.to_string())?,
        None => percent_decoded(source.strip_prefix("data:,").ok_or("no data URL")?)?,
    };
    let mut text = String::new();
    let read = match compressed {
        true => flate2::read::GzDecoder::new(bytes.as_slice()).read_to_string(&mut text),
        false => bytes.as_slice().read_to_string(&mut text),
    };
    read.map_err(|error| error.to_string())?;
    Ok(text)
}

fn percent_decoded(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        bytes.extend(before.as_bytes());
        let digits = after.get(..2).ok_or("a % without digits")?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|error| error.to_string())?);
        rest = after.get(2..).unwrap_or_default();
    }
    bytes.extend(rest.as_bytes());
    Ok(bytes)
}
