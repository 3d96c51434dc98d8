//! `cargo xtask cloud-init-schema`: copies the schema of cloud-config from cloud-init. `osm_render::validate` validates modules with it.

use anyhow::{Context, Result};
use osm_judges::cloud_init_schema;
use serde_json::Value;

use crate::generated::File;

/// Keywords that don't affect validation, or not in all validators. The README beside the schema explains them.
const OMITTED_KEYWORDS: [&str; 12] = [
    "changed",
    "changed_description",
    "changed_version",
    "default",
    "deprecated",
    "deprecated_description",
    "deprecated_version",
    "description",
    "format",
    "hidden",
    "label",
    "prefixItems",
];

pub fn files() -> Result<Vec<File>> {
    let mut schema: Value = serde_json::from_str(&cloud_init_schema()?).context("cloud-init's schema")?;
    strip(&mut schema);
    let path = crate::root().join("crates/osm-render/src/validate/modules/schema-cloud-config-v1.json");
    Ok(vec![(path, format!("{schema}\n"))])
}

/// Removes keywords from a schema and from the schemas in it, but no property of the same name.
fn strip(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    keywords.retain(|keyword, _| !OMITTED_KEYWORDS.contains(&keyword.as_str()));
    for (keyword, value) in keywords.iter_mut() {
        match (keyword.as_str(), value) {
            ("properties" | "patternProperties" | "$defs", Value::Object(schemas)) => {
                schemas.values_mut().for_each(strip);
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(schemas)) => schemas.iter_mut().for_each(strip),
            ("items" | "additionalProperties", schema) => strip(schema),
            _ => {}
        }
    }
    // This keyword only affects lists of schemas.
    if !keywords.get("items").is_some_and(Value::is_array) {
        keywords.remove("additionalItems");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn properties_are_kept_whatever_they_are_called() {
        let mut schema = json!({
            "description": "a",
            "properties": {"default": {"type": "string", "default": "a"}},
            "oneOf": [{"label": "a", "items": {"hidden": []}, "additionalItems": false}],
        });
        strip(&mut schema);
        let expected = json!({"properties": {"default": {"type": "string"}}, "oneOf": [{"items": {}}]});
        assert_eq!(schema, expected);
    }
}
