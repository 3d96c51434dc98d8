//! The spec of an OperatingSystemProfile, as JSON: resolved, compiled and rendered.

use osm_api::OperatingSystemProfileSpec;
use serde_json::Value;

use crate::{canary, pipeline};

/// Whatever a profile says, no message about it has a value of the pool or of the settings.
pub fn run(input: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<OperatingSystemProfileSpec>(input) else {
        return;
    };
    let canary_in_input = canary::is_in(&String::from_utf8_lossy(input));
    let accepted = osm_render::resolve(&spec);
    assert_eq!(accepted, osm_render::resolve(&spec), "differs the second time");
    let Ok(accepted) = accepted else { return };
    let (first, second) = (osm_render::compile(&accepted), osm_render::compile(&accepted));
    assert_eq!(
        first.as_ref().err(),
        second.as_ref().err(),
        "differs the second time"
    );
    let (Ok(first), Ok(second)) = (first, second) else {
        return;
    };
    let Some((pool, settings)) = pipeline::surroundings(&spec) else {
        return;
    };
    let rendered = pipeline::render(&first, &pool, &settings, canary_in_input);
    assert_eq!(
        rendered,
        pipeline::render(&second, &pool, &settings, canary_in_input),
        "differs the second time"
    );
}

/// A small profile for each reader of documents, and Ubuntu's.
pub fn seeds() -> Vec<String> {
    let mut seeds: Vec<String> = small().iter().map(Value::to_string).collect();
    let ubuntu = osm_render::defaults()
        .into_iter()
        .find(|(name, _)| name == "osp-ubuntu");
    seeds.extend(ubuntu.and_then(|(_, spec)| serde_json::to_string(&spec).ok()));
    seeds
}

/// The small profile for cloud-init, for Flatcar's cloud-init, and for Ignition, which has no modules.
pub(crate) fn small() -> Vec<Value> {
    let mut seeds = vec![pipeline::small()];
    for utility in ["cloud-init", "ignition"] {
        let mut flatcar = pipeline::small();
        set(&mut flatcar, "/osName", "flatcar");
        set(&mut flatcar, "/provisioningUtility", utility);
        for stage in ["/bootstrapConfig", "/provisioningConfig"] {
            if let Some(stage) = flatcar.pointer_mut(stage).and_then(Value::as_object_mut) {
                stage.remove("modules");
            }
        }
        seeds.push(flatcar);
    }
    seeds
}

fn set(document: &mut Value, pointer: &str, text: &str) {
    if let Some(value) = document.pointer_mut(pointer) {
        *value = text.into();
    }
}
