//! docs/settings.md says what settings are.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::Path;

use osm_api::Settings;
use osm_api::config::{LateBoundKind, LateBoundSource};
use serde_json::Value;

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    std::fs::read_to_string(page).unwrap()
}

/// The YAML blocks of the page, in order: an example with every field, and the defaults.
fn blocks() -> [String; 2] {
    let page = page();
    let blocks = page
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap().to_owned());
    blocks.collect::<Vec<_>>().try_into().expect("two blocks")
}

/// Every path in `full` that `named` does not have, lists item by item; and every field of `full` that holds
/// nothing.
fn missing(path: &str, full: &Value, named: Option<&Value>, found: &mut Vec<String>) {
    match full {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, field) in fields {
                missing(
                    &format!("{path}.{name}"),
                    field,
                    named.and_then(|named| named.get(name)),
                    found,
                );
            }
        }
        Value::Array(items) if !items.is_empty() => {
            // One item with everything will do.
            let of = |i: usize| {
                let mut found = Vec::new();
                missing(
                    &format!("{path}[{i}]"),
                    &items[i],
                    named.and_then(|named| named.get(i)),
                    &mut found,
                );
                found
            };
            found.extend((0..items.len()).map(of).min_by_key(Vec::len).unwrap_or_default());
        }
        Value::Null | Value::Object(_) | Value::Array(_) => found.push(format!("{path} is empty")),
        _ if named.is_none() => found.push(format!("{path} is not named")),
        _ => {}
    }
}

#[test]
fn the_example_is_valid_and_names_every_field() {
    let [example, _] = blocks();
    let settings = serde_json::to_value(Settings::parse(&example).unwrap()).unwrap();
    let named: Value = serde_saphyr::from_str(&example).unwrap();
    let mut found = Vec::new();
    missing("", &settings, Some(&named), &mut found);
    assert!(found.is_empty(), "docs/settings.md: {found:#?}");
}

#[test]
fn the_documented_defaults_are_the_defaults_and_complete() {
    let [_, defaults] = blocks();
    assert_eq!(Settings::parse(&defaults).unwrap(), Settings::default());
    let settings = serde_json::to_value(Settings::default()).unwrap();
    let named: Value = serde_saphyr::from_str(&defaults).unwrap();
    let mut found = Vec::new();
    missing("", &settings, Some(&named), &mut found);
    // The page says that what it does not name is not set, empty or false.
    found.retain(|problem| !problem.ends_with("is empty"));
    let is_false = |problem: &String| {
        let path = problem.trim_end_matches(" is not named").replace('.', "/");
        settings.pointer(&path) == Some(&Value::Bool(false))
    };
    found.retain(|problem| !is_false(problem));
    assert!(found.is_empty(), "docs/settings.md: {found:#?}");
}

#[test]
fn what_a_pool_may_refer_to_is_what_allowed_sources_is_for() {
    assert!(
        page().contains(
            "is for RHEL subscriptions, and for registries and a proxy in the settings of one pool."
        )
    );
    let allowed = "credentials: {allowedSources: [{namespace: a, secrets: [b]}]}";
    let source = LateBoundSource {
        namespace: "a".to_owned(),
        name: "b".to_owned(),
        key: "c".to_owned(),
    };
    for kind in [
        LateBoundKind::SecretKey,
        LateBoundKind::RegistryPassword,
        LateBoundKind::ProxyURL,
    ] {
        assert!(!Settings::default().allow(kind, &source), "{kind:?}");
        assert!(Settings::parse(allowed).unwrap().allow(kind, &source), "{kind:?}");
    }
}
