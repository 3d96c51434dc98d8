//! The settings document of an installation (YAML).

use std::collections::BTreeMap;

use osm_api::{Pool, Settings};
use serde_json::Value;

use crate::{canary, pipeline};

const AIR_GAPPED: &str = include_str!("../../../examples/settings-air-gapped.yaml");

/// It is read or refused, without repeating a value; a built-in profile can be rendered with what is read, or says why not.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let document = match Settings::document(text) {
        Ok(document) => document,
        // It may not have come as far as telling names and values apart: nothing of the text is repeated.
        Err(error) => return canary::check(&error.to_string()),
    };
    let canary_in_input = canary::is_in(text);
    if let Some(planted) = canary::plant(&document, text).filter(|_| !canary_in_input) {
        read(planted, false);
    }
    read(document, canary_in_input);
}

fn read(document: Value, canary_in_input: bool) {
    match Settings::from_document(document) {
        Ok(settings) => {
            let again = serde_json::to_value(&settings).unwrap_or_default();
            assert_eq!(
                Settings::from_document(again).as_ref(),
                Ok(&settings),
                "written and read again"
            );
            let deployment = pipeline::machine_deployment(pipeline::provider_spec(), BTreeMap::new());
            if let Ok(pool) = Pool::read(&deployment) {
                pipeline::with_default_profile(&pool, &settings, canary_in_input);
            }
        }
        Err(error) if canary_in_input => assert!(!error.0.is_empty()),
        Err(error) => canary::check(&error.to_string()),
    }
}

/// The example, and everything else that there is to set.
pub fn seeds() -> Vec<String> {
    let mut seeds: Vec<String> = [
        "",
        "credentials: {tokenLifetimeHours: 12, allowedSources: [{namespace: kube-system, secrets: [a], configMaps: [b]}]}\n",
        "defaultProfiles: {enabled: true, disabled: [rhel]}\n",
        "kubelet: {featureGates: {A: true}, configuration: {podPidsLimit: 4096, evictionHard: {memory.available: 5%}}}\n",
        "packages: {enabled: true, apt: {}, yum: {}}\nproxy: {http: 'http://u:hunter2@p:1'}\n",
        "a: &x [1, 2]\nb: *x\nc: !!str hunter2\nd: |\n  text\n",
        "proxy: {http: \"hunter2\nproxy: 'hunter2\n",
    ]
    .map(str::to_owned)
    .to_vec();
    seeds.push(AIR_GAPPED.to_owned());
    seeds.push(full().to_string());
    seeds
}

/// Settings with everything set.
pub(crate) fn full() -> Value {
    let spec = serde_json::from_value(pipeline::small()).ok();
    let sample = spec.and_then(|spec| pipeline::surroundings(&spec));
    let Some((_, mut settings)) = sample else {
        return Value::Null;
    };
    settings.proxy.http = Some("http://proxy.example:3128".to_owned());
    settings.host_ca_bundle = None;
    serde_json::to_value(settings).unwrap_or_default()
}
