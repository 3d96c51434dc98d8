//! The schema of a custom kind: defaults, prunes and validates objects as kube-apiserver does.
//!
//! It knows the keywords that the definitions in `crds/` use. Rules in CEL are not evaluated:
//! `state::broken_rule` has them in Rust, and a test notices a rule or a keyword that is missing here.

use regex::Regex;
use serde_json::{Map, Value, json};

/// The schema of a kind.
#[derive(Debug)]
pub(super) struct Schema {
    root: Value,
    /// `<Kind>.<group>`, as messages name it.
    kind: String,
}

/// What is wrong with a field.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// Such as `FieldValueRequired`.
    reason: &'static str,
    /// Such as `.spec.files[0].path`.
    field: String,
    /// Never has the value, which may be a credential.
    message: String,
}

/// What is wrong with an object.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Mistakes {
    /// Fields that the schema doesn't have.
    pub unknown: Vec<String>,
    pub causes: Vec<Cause>,
}

impl Schema {
    /// That of the first version of a CustomResourceDefinition. `None`: it has none.
    pub fn of(definition: &Value) -> Option<Self> {
        let spec = definition.get("spec")?;
        let text = |pointer: &str| spec.pointer(pointer).and_then(Value::as_str);
        let mut root = spec.pointer("/versions/0/schema/openAPIV3Schema")?.clone();
        let kind = format!("{}.{}", text("/names/kind")?, text("/group")?);
        // Every object has these, whatever the definition says.
        let metadata = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let common = json!({"properties": {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": null}});
        json_patch::merge(&mut root, &common);
        json_patch::merge(&mut root, &json!({"properties": {"metadata": metadata}}));
        Some(Self { root, kind })
    }

    /// Removes what the schema doesn't have, sets defaults, and returns what is wrong with the result.
    pub fn conform(&self, object: &mut Value) -> Mistakes {
        let mut mistakes = Mistakes::default();
        visit(&self.root, "", object, &mut mistakes);
        mistakes
    }

    /// The message of these causes about the object of this name, and their details.
    pub fn refusal(&self, name: &str, causes: &[Cause]) -> (String, Vec<Value>) {
        let texts: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field.trim_start_matches('.'), cause.message))
            .collect();
        let message = match texts.as_slice() {
            [one] => format!("{} {name:?} is invalid: {one}", self.kind),
            all => format!("{} {name:?} is invalid: [{}]", self.kind, all.join(", ")),
        };
        let details = causes.iter().map(|cause| {
            let field = cause.field.trim_start_matches('.');
            json!({"reason": cause.reason, "field": field, "message": cause.message})
        });
        (message, details.collect())
    }
}

fn visit(schema: &Value, path: &str, value: &mut Value, mistakes: &mut Mistakes) {
    let is = |keyword: &str| schema.get(keyword) == Some(&Value::Bool(true));
    if value.is_null() && is("nullable") {
        return;
    }
    check(schema, path, value, mistakes);
    match value {
        Value::Object(fields) => visit_fields(schema, path, fields, mistakes),
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for (index, item) in items.iter_mut().enumerate() {
                    visit(schema, &format!("{path}[{index}]"), item, mistakes);
                }
            }
            unique_keys(schema, path, items, mistakes);
        }
        _ => {}
    }
}

fn visit_fields(schema: &Value, path: &str, fields: &mut Map<String, Value>, mistakes: &mut Mistakes) {
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(schema) = schema
        .get("additionalProperties")
        .filter(|additional| additional.is_object())
    {
        for (key, value) in fields.iter_mut() {
            visit(schema, &format!("{path}.{key}"), value, mistakes);
        }
    } else if schema.get("x-kubernetes-preserve-unknown-fields") != Some(&Value::Bool(true)) {
        fields.retain(|key, _| {
            let known = properties.is_some_and(|properties| properties.contains_key(key));
            if !known {
                mistakes
                    .unknown
                    .push(format!("{path}.{key}").trim_start_matches('.').to_owned());
            }
            known
        });
    }
    for (key, schema) in properties.into_iter().flatten() {
        let may_be_null = schema.get("nullable") == Some(&Value::Bool(true));
        if fields.get(key).is_some_and(Value::is_null) && !may_be_null {
            fields.shift_remove(key);
        }
        if let (None, Some(default)) = (fields.get(key), schema.get("default")) {
            fields.insert(key.clone(), default.clone());
        }
        if let Some(value) = fields.get_mut(key) {
            visit(schema, &format!("{path}.{key}"), value, mistakes);
        }
    }
    for required in strings(schema, "required") {
        if !fields.contains_key(required) {
            mistakes.causes.push(Cause {
                reason: "FieldValueRequired",
                field: format!("{path}.{required}"),
                message: "Required value".to_owned(),
            });
        }
    }
}

/// Checks the value itself.
fn check(schema: &Value, path: &str, value: &Value, mistakes: &mut Mistakes) {
    let mut wrong = |reason, message: String| {
        let field = path.to_owned();
        mistakes.causes.push(Cause {
            reason,
            field,
            message,
        });
    };
    let is_whole = value.is_i64() || value.is_u64();
    let (type_, fits) = match schema.get("type").and_then(Value::as_str) {
        Some("object") => ("object", value.is_object()),
        Some("array") => ("array", value.is_array()),
        Some("string") => ("string", value.is_string()),
        Some("boolean") => ("boolean", value.is_boolean()),
        Some("integer") => ("integer", is_whole),
        Some("number") => ("number", value.is_number()),
        _ if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) => {
            ("integer or string", is_whole || value.is_string())
        }
        _ => return,
    };
    if !fits {
        return wrong(
            "FieldValueTypeInvalid",
            format!("Invalid value: must be of type {type_}"),
        );
    }
    // No API server checks the formats of numbers.
    let is_time = schema.get("format").and_then(Value::as_str) == Some("date-time");
    let parses = |text: &str| text.parse::<jiff::Timestamp>().is_ok();
    if is_time && !value.as_str().is_none_or(parses) {
        wrong(
            "FieldValueInvalid",
            "Invalid value: not a time such as 2026-01-31T12:00:00Z".to_owned(),
        );
    }
    let allowed = schema.get("enum").and_then(Value::as_array);
    if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(value)) {
        let listed: Vec<String> = allowed.iter().map(Value::to_string).collect();
        let message = format!("Unsupported value: supported values: {}", listed.join(", "));
        wrong("FieldValueNotSupported", message);
    }
    let Some(text) = value.as_str() else { return };
    let longest = schema.get("maxLength").and_then(Value::as_u64);
    if let Some(longest) = longest.filter(|longest| text.chars().count() as u64 > *longest) {
        wrong(
            "FieldValueTooLong",
            format!("Too long: may not be more than {longest} bytes"),
        );
    }
    // Without Unicode, as Go's `\d` is.
    let pattern = schema.get("pattern").and_then(Value::as_str);
    let is_match =
        |pattern: &str| Regex::new(&format!("(?-u){pattern}")).is_ok_and(|regex| regex.is_match(text));
    if let Some(pattern) = pattern.filter(|pattern| !is_match(pattern)) {
        wrong(
            "FieldValueInvalid",
            format!("Invalid value: should match '{pattern}'"),
        );
    }
}

/// Items of a list that is a map have different keys.
fn unique_keys(schema: &Value, path: &str, items: &[Value], mistakes: &mut Mistakes) {
    if schema.get("x-kubernetes-list-type").and_then(Value::as_str) != Some("map") {
        return;
    }
    let key = |item: &Value| -> Vec<Option<Value>> {
        let keys = strings(schema, "x-kubernetes-list-map-keys");
        keys.map(|key| item.get(key).cloned()).collect()
    };
    for (index, item) in items.iter().enumerate() {
        if items.iter().take(index).any(|earlier| key(earlier) == key(item)) {
            mistakes.causes.push(Cause {
                reason: "FieldValueDuplicate",
                field: format!("{path}[{index}]"),
                message: "Duplicate value".to_owned(),
            });
        }
    }
}

fn strings<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let listed = schema.get(keyword).and_then(Value::as_array);
    listed.into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Keywords of a schema and of those in it, and the rules.
    fn collect(schema: &Value, keywords: &mut BTreeSet<String>, rules: &mut Vec<String>) {
        for (keyword, value) in schema.as_object().unwrap() {
            keywords.insert(keyword.clone());
            match keyword.as_str() {
                "properties" => {
                    for schema in value.as_object().unwrap().values() {
                        collect(schema, keywords, rules);
                    }
                }
                "items" | "additionalProperties" => collect(value, keywords, rules),
                "x-kubernetes-validations" => {
                    let texts = value.as_array().unwrap().iter();
                    rules.extend(texts.map(|rule| rule["message"].as_str().unwrap().to_owned()));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn the_definitions_have_no_keyword_or_rule_that_is_not_known_here() {
        const KNOWN: [&str; 18] = [
            "additionalProperties",
            "default",
            "description",
            "enum",
            "format",
            "items",
            "maxLength",
            "nullable",
            "pattern",
            "properties",
            "required",
            "title",
            "type",
            "x-kubernetes-int-or-string",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-list-type",
            // Only server-side apply looks at it.
            "x-kubernetes-map-type",
            "x-kubernetes-preserve-unknown-fields",
        ];
        let (mut keywords, mut rules) = (BTreeSet::new(), Vec::new());
        for text in [osm_api::definitions::PROFILES, osm_api::definitions::CONFIGS] {
            let definition = osm_api::definitions::parse(text);
            collect(
                &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
                &mut keywords,
                &mut rules,
            );
        }
        assert!(keywords.remove("x-kubernetes-validations"));
        let unknown: Vec<&String> = keywords
            .iter()
            .filter(|keyword| !KNOWN.contains(&keyword.as_str()))
            .collect();
        assert!(unknown.is_empty(), "{unknown:?}");
        let starts = [
            "a profile's spec changes only",
            "an OperatingSystemConfig belongs to one pool",
        ];
        for rule in &rules {
            assert!(
                starts.iter().any(|start| rule.starts_with(start)),
                "state::broken_rule lacks: {rule}"
            );
        }
        assert_eq!(rules.len(), starts.len());
    }
}
