//! From profile, pool and settings to both documents, every property checked on the way.

use std::collections::BTreeMap;

use osm_api::content::Content;
use osm_api::profile::{AcceptedProfile, CloudProvider, OperatingSystemProfileSpec};
use osm_api::{Pool, Settings};
use osm_render::{Base, Profile, ProfileError, Rendered};
use osm_user_data::{LateValues, RESERVED_PREFIX, Stage};
use parking_lot::Mutex;
use serde_json::Value;

use crate::{bounds, canary};

/// Small and with a bit of everything.
const SMALL: &str = include_str!("small-profile.json");

/// A small profile.
pub(crate) fn small() -> Value {
    serde_json::from_str(SMALL).unwrap_or_default()
}

/// A pool of the profile with everything set, and such settings, with canaries among both.
pub(crate) fn surroundings(spec: &OperatingSystemProfileSpec) -> Option<(Pool, Settings)> {
    // Reading the settings takes longer than most inputs.
    static KNOWN: Mutex<BTreeMap<String, (Pool, Settings)>> = Mutex::new(BTreeMap::new());
    let cloud = spec.supported_cloud_providers.first()?.name;
    let key = format!("{} {cloud} {}", spec.os_name, spec.provisioning_utility);
    let mut known = KNOWN.lock();
    if let Some(sample) = known.get(&key) {
        return Some(sample.clone());
    }
    let (mut pool, mut settings) = osm_render::full_sample(spec, cloud)?;
    pool.overwrite_cloud_config = Some(format!("[Global]\npassword={}\n", canary::WORD));
    settings.proxy.http = Some(format!("http://user:{}@proxy.example", canary::WORD));
    settings.host_ca_bundle = Some(canary::WORD.to_owned());
    known.insert(key, (pool.clone(), settings.clone()));
    Some((pool, settings))
}

/// Resolves.
pub(crate) fn resolve(spec: &OperatingSystemProfileSpec) -> Result<AcceptedProfile, ProfileError> {
    bounds::within("resolving", || osm_render::resolve(spec))
}

/// Resolves a profile that extends others.
pub(crate) fn resolve_on(
    spec: &OperatingSystemProfileSpec,
    bases: &[Base],
) -> Result<AcceptedProfile, ProfileError> {
    bounds::within("resolving", || osm_render::resolve_on(spec, bases))
}

/// Judges a profile as osp-controller does, with its own samples, which have no canary.
pub(crate) fn judge(profile: &Profile, canary_in_input: bool) {
    let verdict = bounds::within_samples("the samples", || osm_render::validate::dry_run(profile));
    match verdict {
        Ok(()) => {}
        Err(refusal) => assert!(
            canary_in_input || !canary::is_in(&refusal.message),
            "{}",
            refusal.message
        ),
    }
}

/// Compiles.
pub(crate) fn compile(accepted: &AcceptedProfile) -> Result<Profile, ProfileError> {
    bounds::within("compiling", || osm_render::compile(accepted))
}

/// Renders, and writes both documents.
pub(crate) fn render(
    profile: &Profile,
    pool: &Pool,
    settings: &Settings,
    canary_in_input: bool,
) -> Option<Rendered> {
    let cluster = osm_render::stand_in_cluster();
    match bounds::within("rendering", || profile.render(pool, settings, &cluster)) {
        Ok(rendered) => {
            documents(&rendered.spec);
            Some(rendered)
        }
        Err(error) if canary_in_input => {
            assert!(!error.reason().as_str().is_empty());
            None
        }
        Err(error) => {
            canary::check(&error.to_string());
            None
        }
    }
}

/// Writes both documents of a configuration, and the script where there is one.
pub(crate) fn documents(spec: &Content) {
    let canary_in_spec = serde_json::to_string(spec).is_ok_and(|text| canary::is_in(&text));
    for value in [
        canary::WORD.to_owned(),
        format!("{}'\"\\\n#%{{}}\u{2028}\0", canary::WORD),
    ] {
        let values: LateValues = spec
            .late_bound_values
            .iter()
            .map(|late| (late.id.clone(), value.clone()))
            .collect();
        for stage in Stage::ALL {
            let document = bounds::within("a document", || osm_user_data::user_data(spec, stage, &values));
            assert_eq!(
                document,
                osm_user_data::user_data(spec, stage, &values),
                "differs the second time"
            );
            match document {
                Ok(document) => {
                    assert!(
                        !document.contains(RESERVED_PREFIX),
                        "a marker is left in the {stage:?} document"
                    );
                }
                Err(error) if canary_in_spec => assert!(!error.reason().as_str().is_empty()),
                Err(error) => canary::check(&error.to_string()),
            }
        }
        let is_edge = spec
            .cloud_provider
            .as_ref()
            .is_some_and(|cloud| cloud.name == CloudProvider::Edge);
        match bounds::within("a script", || osm_user_data::edge_script(spec, &values)) {
            Ok(script) => assert!(is_edge || script.is_none(), "a script for machines of a cloud"),
            Err(error) if canary_in_spec => assert!(!error.reason().as_str().is_empty()),
            Err(error) => canary::check(&error.to_string()),
        }
    }
}
