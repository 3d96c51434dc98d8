//! `cargo xtask reference`: generates docs/reference.md, the fields of the custom resources, from the schemas of the types in crates/osm-api.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use osm_api::definitions;
use serde_json::{Map, Value};

use crate::generated::File;

pub fn files() -> Result<Vec<File>> {
    Ok(vec![(crate::root().join("docs/reference.md"), page()?)])
}

const INTRODUCTION: &str = "# Custom resources

<!-- Generated from the types in crates/osm-api by `cargo xtask reference`. Don't edit. -->

This page is for authors of profiles and for operators. It lists the fields of the custom resources.
[The profile language](templates.md) explains how to use those of a profile. `osmctl schema profile` prints a [JSON Schema](osmctl.md#editors-and-shells) for editors.

In a path, `[]` is an item of a list.
If a field is absent and its row has no default, a boolean is `false`, and a list or map is empty.
";

/// Fields that only the services read.
const INTERNAL: [&str; 3] = ["status.rendered.", "status.retired.", "status.accepted."];

const REST: &str = "
`kubectl explain osp.status` and `kubectl explain osc.status` describe all fields that the services write.
The spec of an object that the Go implementation wrote has further fields with its documents. osc-controller renders such a pool again, and removes them.
";

fn page() -> Result<String> {
    let mut page = INTRODUCTION.to_owned();
    for definition in definitions::all() {
        let mut definition = serde_json::to_value(&definition)?;
        let is_config = definition.pointer("/spec/names/kind") == Some(&Value::from("OperatingSystemConfig"));
        let fields = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        if let (true, Some(Value::Object(fields))) = (is_config, definition.pointer_mut(fields)) {
            fields.retain(|name, _| name == "poolRef");
        }
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
        let (kind, group) = (text("/spec/names/kind"), text("/spec/group"));
        let (kind, group) = (kind.context("a kind")?, group.context("a group")?);
        let version = text("/spec/versions/0/name").context("a version")?;
        let schema = definition
            .pointer("/spec/versions/0/schema/openAPIV3Schema")
            .context("a schema")?;
        let mut walk = Walk::new(schema);
        let description = walk.text(schema);
        write!(page, "\n## {kind}\n\n`{group}/{version}`. {description}\n")?;
        walk.fields("", schema);
        let is_internal = |row: &Row| INTERNAL.iter().any(|start| row.path.starts_with(start));
        walk.rows.retain(|row| !is_internal(row));
        page.push_str(&walk.table());
    }
    page.push_str(REST);
    Ok(page)
}

/// A row of a table.
struct Row {
    path: String,
    /// Its type, and its default or that it is required.
    kind: String,
    description: String,
}

/// Visits the fields of a schema.
struct Walk<'s> {
    root: &'s Value,
    /// Objects with several fields that are in the table, with their paths.
    known: Vec<(Value, String)>,
    rows: Vec<Row>,
}

/// A property with everything that its schema refers to.
type Fields = Map<String, Value>;

impl<'s> Walk<'s> {
    fn new(root: &'s Value) -> Self {
        Self {
            root,
            known: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// A schema with those that it refers to in place of the references, and without the variant for null. What is beside a reference
    /// takes precedence.
    fn resolved(&self, schema: &Value) -> Fields {
        let mut fields = schema.as_object().cloned().unwrap_or_default();
        let reference = fields.remove("$ref");
        let target = reference
            .as_ref()
            .and_then(Value::as_str)
            .and_then(|reference| self.root.pointer(reference.trim_start_matches('#')));
        let variants = fields.get("anyOf").and_then(Value::as_array).cloned();
        let mut others = variants
            .into_iter()
            .flatten()
            .filter(|variant| variant.get("type").and_then(Value::as_str) != Some("null"));
        let inner = match (target, others.next(), others.next()) {
            (Some(target), _, _) => Some(self.resolved(target)),
            (None, Some(only), None) => Some(self.resolved(&only)),
            _ => None,
        };
        if let Some(inner) = inner {
            fields.remove("anyOf");
            for (name, value) in inner {
                fields.entry(name).or_insert(value);
            }
        }
        fields
    }

    /// The description of a schema, as one line of Markdown.
    fn text(&self, schema: &Value) -> String {
        let fields = self.resolved(schema);
        let mut text = words(&fields);
        for variant in variants(&fields) {
            let meaning = variant.as_object().map(words).unwrap_or_default();
            if let (Some(value), false) = (variant.get("const").and_then(Value::as_str), meaning.is_empty()) {
                text.push_str(&format!(" `{value}`: {meaning}"));
            }
        }
        text.trim_start().to_owned()
    }

    /// Adds a row for each property of an object, and for what is below it.
    fn fields(&mut self, path: &str, object: &Value) {
        let object = self.resolved(object);
        let required: Vec<&str> = object
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let Some(properties) = object.get("properties").and_then(Value::as_object) else {
            return;
        };
        for (name, property) in properties {
            let path = match path {
                "" => name.clone(),
                _ => format!("{path}.{name}"),
            };
            let default = match property.get("default").filter(|default| !is_empty(default)) {
                Some(default) => format!(", default `{default}`"),
                None if required.contains(&name.as_str()) => ", required".to_owned(),
                None => String::new(),
            };
            // The conditions are those of Kubernetes.
            let is_open = name != "conditions";
            let inner = self.inner(&path, property).filter(|_| is_open);
            let known = inner.as_ref().and_then(|(_, inner)| self.same(inner));
            let mut description = self.text(property);
            if let Some(known) = &known {
                description = format!("{description} The nested fields are those of `{known}`.");
            }
            self.rows.push(Row {
                path,
                kind: match is_open {
                    true => self.kind(property),
                    false => "list of [Condition](reasons.md)".to_owned(),
                } + &default,
                description: description.trim().to_owned(),
            });
            if let Some((path, inner)) = inner.filter(|_| known.is_none()) {
                if count(&inner) > 1 {
                    self.known.push((shape(&inner), path.clone()));
                }
                self.fields(&path, &inner);
            }
        }
    }

    /// The object in a property, with its path: the property itself, or the items of a list or the values of a map.
    fn inner(&self, path: &str, property: &Value) -> Option<(String, Value)> {
        let fields = self.resolved(property);
        if fields.contains_key("properties") {
            return Some((path.to_owned(), Value::Object(fields)));
        }
        let (item, suffix) = match (fields.get("items"), fields.get("additionalProperties")) {
            (Some(items), _) => (items, "[]"),
            (None, Some(values)) => (values, ".*"),
            (None, None) => return None,
        };
        self.inner(&format!("{path}{suffix}"), item)
    }

    /// The path of an object with the same fields.
    fn same(&self, object: &Value) -> Option<String> {
        let shape = shape(object);
        let known = self.known.iter().find(|(known, _)| *known == shape);
        known.map(|(_, path)| path.clone())
    }

    fn kind(&self, schema: &Value) -> String {
        let fields = self.resolved(schema);
        let of = |name: &str| fields.get(name);
        if fields.get("x-kubernetes-int-or-string").is_some() {
            return "integer or string".to_owned();
        }
        let values: Vec<String> = of("enum")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .chain(variants(&fields).filter_map(|variant| variant.get("const")))
            .filter_map(Value::as_str)
            .map(|value| format!("`{value}`"))
            .collect();
        if !values.is_empty() {
            return values.join(", ");
        }
        // An optional value has the types `null` and another one.
        let types: Vec<&str> = match of("type") {
            Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
            other => other.and_then(Value::as_str).into_iter().collect(),
        };
        let types: Vec<&str> = types.into_iter().filter(|name| *name != "null").collect();
        match types.as_slice() {
            ["array"] => format!(
                "list of {}",
                of("items").map_or("any value".to_owned(), |items| self.kind(items))
            ),
            ["object"] if fields.contains_key("properties") => "object".to_owned(),
            ["object"] => match of("additionalProperties").filter(|values| values.is_object()) {
                Some(values) => format!("map of {}", self.kind(values)),
                None => "map of any value".to_owned(),
            },
            ["integer"] => match (of("minimum"), of("maximum")) {
                (Some(least), Some(most)) => format!("integer from {least} to {most}"),
                _ => "integer".to_owned(),
            },
            ["string"] => match of("format").and_then(Value::as_str) {
                Some("date-time") => "time".to_owned(),
                Some("ip") => "IP address".to_owned(),
                _ => "string".to_owned(),
            },
            [] => "any value".to_owned(),
            _ => types.join(" or "),
        }
    }

    fn table(&self) -> String {
        let mut table = String::from("\n| Field | Type | Description |\n|---|---|---|\n");
        for Row {
            path,
            kind,
            description,
        } in &self.rows
        {
            let cells = [&format!("`{path}`"), kind, description];
            let cells = cells.map(|cell| match cell.is_empty() {
                true => " ".to_owned(),
                false => format!(" {} ", cell.replace('|', "\\|")),
            });
            table.push_str(&format!("|{}|\n", cells.join("|")));
        }
        table
    }
}

/// The values of an enum, each with a description of its own.
fn variants(fields: &Fields) -> impl Iterator<Item = &Value> {
    fields
        .get("oneOf")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// A description as one line.
fn words(fields: &Fields) -> String {
    let text = fields
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What decides whether two objects have the same fields.
fn shape(object: &Value) -> Value {
    object.get("properties").cloned().unwrap_or_default()
}

fn count(object: &Value) -> usize {
    object
        .get("properties")
        .and_then(Value::as_object)
        .map_or(0, Map::len)
}

/// Whether a default is that of every field of its type, or of an object whose fields have their own.
fn is_empty(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(_) => true,
        Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::generated;

    #[test]
    fn the_committed_page_is_what_the_types_say() {
        assert!(
            generated::stale(files().unwrap()).is_empty(),
            "run `cargo xtask reference`"
        );
    }

    #[test]
    fn every_field_has_a_description() {
        let page = page().unwrap();
        let rows: Vec<Vec<&str>> = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .map(|line| line.trim_end_matches('|').split('|').collect())
            .collect();
        assert!(rows.len() > 50, "{}", rows.len());
        let bare: Vec<_> = rows
            .iter()
            .filter(|row| row.last().unwrap().trim().is_empty())
            .collect();
        assert!(bare.is_empty(), "{bare:#?}");
    }

    #[test]
    fn the_page_of_flags_lists_the_variables_of_the_services_and_no_others() {
        let read = |path: &str| std::fs::read_to_string(crate::root().join(path)).unwrap();
        let variables = |text: &str, start: &str| -> BTreeSet<String> {
            let rest = text
                .split(start)
                .skip(1)
                .filter(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
            rest.map(|rest| {
                rest.chars()
                    .take_while(|c| c.is_ascii_uppercase() || *c == '_')
                    .collect()
            })
            .collect()
        };
        let mut known = BTreeSet::new();
        for path in [
            "osm-runtime/src/args.rs",
            "osm-runtime/src/admission/mod.rs",
            "osp-controller/src/main.rs",
            "osc-controller/src/main.rs",
            "secret-syncer/src/main.rs",
            "csr-approver/src/main.rs",
        ] {
            known.append(&mut variables(&read(&format!("crates/{path}")), "env = \""));
        }
        assert!(known.len() > 20, "{known:?}");
        assert_eq!(variables(&read("docs/services.md"), "` | `"), known);
    }
}
