//! `osmctl schema`: JSON Schemas for editors.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use kube::CustomResourceExt;
use osm_api::OperatingSystemProfile;
use osm_api::names::KUBELET_CONFIG;
use osm_api::pool::{KUBELET_ANNOTATIONS, OF_POOLS};
use osm_api::settings::Settings;
use serde_json::{Map, Value, json};

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
  osmctl schema settings >settings.schema.json

  # The annotations of MachineDeployments that OSM reads
  osmctl schema machinedeployment-annotations >machinedeployment.schema.json")]
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
    /// The annotations of a MachineDeployment that OSM reads
    #[value(name = "machinedeployment-annotations")]
    MachineDeploymentAnnotations,
}

impl Schema {
    /// Prints.
    pub fn run(self) -> Result<ExitCode> {
        let schema = match self.kind {
            Kind::Profile => profile()?,
            Kind::Settings => schemars::schema_for!(Settings).to_value(),
            Kind::MachineDeploymentAnnotations => machine_deployment_annotations(),
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

/// Other fields and annotations are free. Kubelet settings can also be annotations of the template.
fn machine_deployment_annotations() -> Value {
    let kubelet = KUBELET_ANNOTATIONS.iter().map(|row| {
        let schema = json!({"type": "string", "pattern": row.pattern(), "description": row.meaning, "examples": [row.example]});
        (row.key(), schema)
    });
    let of_pool = OF_POOLS.iter().map(|row| {
        let schema =
            json!({"type": "string", "minLength": 1, "description": row.meaning, "examples": [row.example]});
        (row.key.to_owned(), schema)
    });
    let kubelet: Map<String, Value> = kubelet.collect();
    let keys: Vec<&String> = kubelet.keys().collect();
    // Another key with this text is a misspelt one.
    let names = json!({"anyOf": [{"enum": keys}, {"not": {"pattern": KUBELET_CONFIG.replace('.', "[.]")}}]});
    let annotations = |known: Map<String, Value>| {
        json!({"properties": {"annotations": {
            "type": "object", "properties": known, "propertyNames": names, "additionalProperties": {"type": "string"}}}})
    };
    let all = of_pool.chain(kubelet.clone()).collect();
    json!({
        "$schema": DIALECT,
        "title": "Annotations of a MachineDeployment",
        "type": "object",
        "properties": {
            "metadata": annotations(all),
            "spec": {"properties": {"template": {"properties": {"metadata": annotations(kubelet)}}}},
        },
    })
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
