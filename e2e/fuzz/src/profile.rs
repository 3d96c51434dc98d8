//! The spec of an OperatingSystemProfile, as JSON: resolved, compiled and rendered.

use osm_api::OperatingSystemProfileSpec;
use osm_render::{Base, ProfileKey};
use serde_json::{Value, json};

use crate::{canary, pipeline};

/// Whatever a profile says, no message about it has a value of the pool or of the settings.
pub fn run(input: &[u8]) {
    let Ok(spec) = serde_json::from_slice::<OperatingSystemProfileSpec>(input) else {
        return;
    };
    let canary_in_input = canary::is_in(&String::from_utf8_lossy(input));
    extend(&spec);
    let accepted = pipeline::resolve(&spec);
    assert_eq!(accepted, osm_render::resolve(&spec), "differs the second time");
    let Ok(accepted) = accepted else { return };
    let (first, second) = (pipeline::compile(&accepted), pipeline::compile(&accepted));
    assert_eq!(
        first.as_ref().err(),
        second.as_ref().err(),
        "differs the second time"
    );
    let (Ok(first), Ok(second)) = (first, second) else {
        return;
    };
    pipeline::judge(&first, canary_in_input);
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

/// Puts the profile on the small ones, and each of them on the profile. What is put together has no mark
/// left, and is a profile itself.
fn extend(spec: &OperatingSystemProfileSpec) {
    for small in small() {
        let Ok(small) = serde_json::from_value::<OperatingSystemProfileSpec>(small) else {
            continue;
        };
        for (extension, base) in [(spec, &small), (&small, spec)] {
            let base = Base {
                key: ProfileKey::default(),
                spec: base.clone(),
            };
            let bases = [base];
            let accepted = pipeline::resolve_on(extension, &bases);
            assert_eq!(
                accepted,
                osm_render::resolve_on(extension, &bases),
                "differs the second time"
            );
            if let Ok(accepted) = accepted {
                let again = osm_render::resolve(&accepted.spec.0);
                // The library's parts are there already, with names that a profile of a person can't have.
                if accepted.library_version.is_none() {
                    assert_eq!(
                        again.map(|again| again.spec),
                        Ok(accepted.spec),
                        "differs when resolved"
                    );
                }
            }
        }
    }
}

/// A small profile for each reader of documents, Ubuntu's, and one that extends the first.
pub fn seeds() -> Vec<String> {
    let mut seeds: Vec<String> = small().iter().map(Value::to_string).collect();
    let mut extending = pipeline::small();
    if let Some(spec) = extending.as_object_mut() {
        spec.insert("extends".to_owned(), json!("small"));
        spec.insert("bootstrapConfig".to_owned(), json!({}));
        spec.insert("provisioningConfig".to_owned(), extension());
    }
    seeds.push(extending.to_string());
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

/// A stage that changes everything of the small profile's that can be changed, and adds what can be added.
fn extension() -> Value {
    json!({
        "files": [{"path": "/new", "content": {"inline": {"data": "{{pool.name}}"}}},
            {"path": "/opt/run", "permissions": 755, "replace": true, "content": {"inline": {"data": "{{> part}}"}}}],
        "units": [{"name": "a.service", "remove": true}],
        "replaceTemplates": {"part": "echo"}, "removeModules": ["users"], "modules": {"users": ["default"]},
        "commands": {"before": ["true"], "after": [["echo", "it's"]]}, "packages": ["htop"],
        "sysctls": {"vm.max_map_count": 262_144}, "kernelModules": ["ip_vs"],
    })
}

fn set(document: &mut Value, pointer: &str, text: &str) {
    if let Some(value) = document.pointer_mut(pointer) {
        *value = text.into();
    }
}
