//! `osmctl schema`: JSON Schemas for editors.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use kube::CustomResourceExt;
use osm_api::OperatingSystemProfile;
use osm_api::settings::Settings;
use serde_json::{Value, json};

use crate::output;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Print a JSON Schema for editors
///
/// Editors with a YAML language server complete and check a file that names the schema in its first line:
///
///   # yaml-language-server: $schema=osp.schema.json
#[derive(Args)]
#[command(after_help = "\
Examples:
  osmctl schema profile >osp.schema.json
  osmctl schema settings >settings.schema.json")]
pub struct Schema {
    /// Kind of document
    #[arg(value_enum)]
    kind: Kind,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    /// OperatingSystemProfile and CustomOperatingSystemProfile
    Profile,
    /// The settings document
    Settings,
}

impl Schema {
    /// Prints.
    pub fn run(self) -> Result<ExitCode> {
        let schema = match self.kind {
            Kind::Profile => profile()?,
            Kind::Settings => schemars::schema_for!(Settings).to_value(),
        };
        output::print(&format!("{schema:#}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The schema of the CustomResourceDefinition. Unknown fields are errors, as for `kubectl apply`.
fn profile() -> Result<Value> {
    let definition = serde_json::to_value(OperatingSystemProfile::crd())?;
    let mut schema = definition
        .pointer("/spec/versions/0/schema/openAPIV3Schema")
        .context("the definition has no schema")?
        .clone();
    close(&mut schema);
    let fields = schema.as_object_mut().context("the schema is no object")?;
    fields.insert("$schema".to_owned(), Value::from(DIALECT));
    fields.insert("title".to_owned(), Value::from("OperatingSystemProfile"));
    fields.insert(
        "required".to_owned(),
        json!(["apiVersion", "kind", "metadata", "spec"]),
    );
    let properties = fields
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .context("the schema has no properties")?;
    properties.remove("status");
    properties.insert(
        "apiVersion".to_owned(),
        json!({"const": format!("{}/v1alpha1", osm_api::names::GROUP)}),
    );
    properties.insert(
        "kind".to_owned(),
        json!({"enum": ["OperatingSystemProfile", "CustomOperatingSystemProfile"]}),
    );
    properties.insert(
        "metadata".to_owned(),
        json!({"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}),
    );
    Ok(schema)
}

/// Turns what only Kubernetes understands into JSON Schema.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            let is_open = map.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
            map.retain(|key, _| !key.starts_with("x-kubernetes-"));
            if map.remove("nullable") == Some(Value::Bool(true))
                && let Some(kind) = map.get_mut("type")
            {
                *kind = json!([kind.take(), "null"]);
                if let Some(values) = map.get_mut("enum").and_then(Value::as_array_mut)
                    && !values.contains(&Value::Null)
                {
                    values.push(Value::Null);
                }
            }
            // Formats of numbers, such as int32, are OpenAPI's.
            map.retain(|key, value| {
                key != "format" || value.as_str().is_none_or(|format| !format.starts_with("int"))
            });
            let is_closed =
                map.contains_key("properties") && !is_open && !map.contains_key("additionalProperties");
            map.values_mut().for_each(close);
            if is_closed && map.get("type").is_some() {
                map.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}
