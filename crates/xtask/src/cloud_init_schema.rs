//! `cargo xtask cloud-init-schema`: the schema by which osp-controller judges modules, taken from cloud-init.

use anyhow::{Context, Result};
use osm_testkit::judge::cloud_init_schema;
use serde_json::Value;

use crate::generated;

/// What does not decide whether a document is good, or not always; see the README beside the schema.
const LEFT_OUT: [&str; 12] = [
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

/// Write cloud-init's schema of cloud-config, which osp-controller judges by, without its texts for people
#[derive(clap::Args)]
pub struct CloudInitSchema {
    /// Write nothing; fail when the file is another one
    #[arg(long)]
    check: bool,
}

impl CloudInitSchema {
    /// Writes or checks.
    ///
    /// # Errors
    /// cloud-init's package can't be had; a file that differs (with `--check`), or can't be written.
    pub async fn run(&self) -> Result<()> {
        let text = tokio::task::spawn_blocking(cloud_init_schema).await??;
        let mut schema: Value = serde_json::from_str(&text).context("cloud-init's schema")?;
        strip(&mut schema);
        let text = format!("{schema}\n");
        let path = crate::root().join("crates/osp-controller/src/modules/schema-cloud-config-v1.json");
        let (good, bad) =
            ("cloud-init's schema is up to date", "not cloud-init's (run `cargo xtask cloud-init-schema`)");
        generated::settle(&generated::stale([(path, text)]), self.check, good, bad)
    }
}

/// Leaves out keywords of a schema and of the schemas in it, but no property that is called like one.
fn strip(schema: &mut Value) {
    let Value::Object(keywords) = schema else { return };
    keywords.retain(|keyword, _| !LEFT_OUT.contains(&keyword.as_str()));
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
    // It says something of lists of schemas alone.
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
