//! machine-controller's part of a MachineDeployment, `spec.template.spec.providerSpec.value`, as JSON.

use std::collections::BTreeMap;

use osm_api::{Pool, Settings};
use serde_json::{Value, json};

use crate::{canary, pipeline};

/// It is read or refused, without repeating a value; what is read can be rendered with a built-in profile, or is refused as well.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let Ok(document) = serde_json::from_str::<Value>(text) else {
        return;
    };
    let canary_in_input = canary::is_in(text);
    let planted = canary::plant(&document, text).filter(|_| !canary_in_input);
    for (document, checked) in [(Some(document), canary_in_input), (planted, false)] {
        let Some(document) = document else { continue };
        match Pool::read(&pipeline::machine_deployment(document, BTreeMap::new())) {
            Ok(pool) => pipeline::with_default_profile(&pool, &Settings::default(), checked),
            Err(error) if checked => assert!(!error.reason().as_str().is_empty()),
            Err(error) => canary::check(&error.to_string()),
        }
    }
}

/// One of each system.
pub fn seeds() -> Vec<String> {
    let full = pipeline::provider_spec();
    let mut seeds = vec![full.to_string()];
    for (os, spec) in [
        ("ubuntu", json!({"distUpgradeOnBoot": true})),
        (
            "flatcar",
            json!({"disableAutoUpdate": true, "disableLocksmithD": true, "disableUpdateEngine": true}),
        ),
        ("flatcar", json!({"provisioningUtility": "cloud-init"})),
        (
            "rhel",
            json!({"rhelSubscriptionManagerUser": "u", "rhelSubscriptionManagerPassword": {"value": "p"}, "rhelUseSatelliteServer": true, "rhelSatelliteServer": "s.example"}),
        ),
        ("rockylinux", json!(null)),
        ("amzn2", json!({})),
    ] {
        let cloud = if os == "amzn2" { "aws" } else { "openstack" };
        let network = json!({"cidr": "10.0.0.5/24", "gateway": "10.0.0.1", "dns": {"servers": ["10.0.0.2"]}});
        let seed = json!({"cloudProvider": cloud, "operatingSystem": os, "operatingSystemSpec": spec, "network": network});
        seeds.push(seed.to_string());
        seeds.push(
            json!({"cloudProvider": "edge", "operatingSystem": os, "operatingSystemSpec": spec}).to_string(),
        );
    }
    seeds
}
