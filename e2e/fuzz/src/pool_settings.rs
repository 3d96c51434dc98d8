//! The settings of one pool: the annotation's text and, behind a line `---`, that of the ConfigMap which it names.

use osm_api::Settings;
use osm_api::pool_settings::PoolSettings;
use serde_json::Value;

use crate::{canary, settings};

/// They are read and merged, or refused without repeating a value; what is the installation's alone stays what it was.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let Ok(installation) = Settings::from_document(settings::full()) else {
        return;
    };
    merge(&installation, text, canary::is_in(text));
    if canary::is_in(text) {
        return;
    }
    let (annotation, config_map) = split(text);
    let Ok(document) = Settings::document(annotation) else {
        return;
    };
    // A message tells the name of the ConfigMap that it is about.
    let is_value = |planted: &Value| planted.get("fromConfigMap") == document.get("fromConfigMap");
    if let Some(planted) = canary::plant(&document, text).filter(is_value) {
        merge(
            &installation,
            &format!("{planted}\n---\n{}", config_map.unwrap_or_default()),
            false,
        );
    }
    let Some(Ok(document)) = config_map.map(Settings::document) else {
        return;
    };
    if let Some(planted) = canary::plant(&document, text) {
        merge(&installation, &format!("{annotation}\n---\n{planted}"), false);
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once("\n---\n")
        .map_or((text, None), |(annotation, config_map)| {
            (annotation, Some(config_map))
        })
}

fn merge(installation: &Settings, text: &str, canary_in_input: bool) {
    let (annotation, config_map) = split(text);
    let merged = PoolSettings::parse(annotation).and_then(|pool| pool.merge(installation, config_map));
    match merged {
        Ok(merged) => {
            assert_eq!(merged.credentials, installation.credentials);
            assert_eq!(merged.default_profiles, installation.default_profiles);
        }
        Err(error) if canary_in_input => assert!(!error.to_string().is_empty()),
        Err(error) => canary::check(&error.to_string()),
    }
}

/// With a ConfigMap and without.
pub fn seeds() -> Vec<String> {
    [
        "{}",
        "proxy: {noProxy: null}\ncontainerd: {registries: [{host: ghcr.io}]}\n",
        "fromConfigMap: ours\npauseImage: pause:3\n---\npauseImage: pause:2\nkubelet: {featureGates: {B: false}}\n",
        "fromConfigMap: ours\n---\ncredentials: {}\n",
        "downloads: {kubelet: {baseURL: 'https://a.example'}}\ncluster: {dnsIPs: [10.0.0.1]}\ninitialTaints: null\n",
    ]
    .map(str::to_owned)
    .to_vec()
}
