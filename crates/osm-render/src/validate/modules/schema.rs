//! The part of JSON Schema, draft 4, that cloud-init's schema of cloud-config uses. A test checks that it
//! uses no other keyword.
//!
//! A general validator would add four megabytes to the binary, for this one schema.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use osm_user_data::RESERVED_PREFIX;
use regex::Regex;
use serde_json::{Map, Value};

/// cloud-init's schema of cloud-config, without its descriptions. README.md in this folder names the source.
pub(super) const CLOUD_CONFIG: &str = include_str!("schema-cloud-config-v1.json");

/// The program that the schema belongs to.
const READER: &str = "cloud-init 25.1";

/// A message lists at most this many problems: a condition has room for 2,048 bytes.
const MAX_PROBLEMS: usize = 20;

/// A message names at most this many members of an enumeration, so that other problems have room in it.
const MAX_NAMED: usize = 16;

/// A problem of a document: a path such as `.ntp.servers[0]`, and a text such as `is not of type string`. It
/// does not repeat the value.
pub(super) type Problem = (String, String);

pub(super) struct Schema {
    root: Value,
    patterns: RefCell<HashMap<String, Option<Regex>>>,
}

impl Default for Schema {
    fn default() -> Self {
        // A test parses the schema, so this cannot fail.
        Self::of(serde_json::from_str(CLOUD_CONFIG).unwrap_or_default())
    }
}

impl Schema {
    fn of(root: Value) -> Self {
        let patterns = RefCell::default();
        Self { root, patterns }
    }

    /// The problems of a document.
    pub(super) fn problems(&self, document: &Value) -> Vec<Problem> {
        let mut found = Vec::new();
        self.check(&self.root, document, "", &mut found);
        found.truncate(MAX_PROBLEMS);
        found
    }

    fn check(&self, schema: &Value, value: &Value, path: &str, found: &mut Vec<Problem>) {
        if found.len() >= MAX_PROBLEMS {
            return;
        }
        // Draft 4 ignores every keyword beside a reference.
        let schema = self.resolve(schema);
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
            found.push((path.to_owned(), format!("is not of type {}", listed(&types))));
            return;
        }
        let own = self.check_value(schema, value).into_iter();
        found.extend(own.map(|text| (path.to_owned(), text)));
        match value {
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    let of_items = schema.get("items").into_iter();
                    of_items.for_each(|schema| self.check(schema, item, &format!("{path}[{i}]"), found));
                }
            }
            Value::Object(fields) => self.check_fields(schema, fields, path, found),
            _ => {}
        }
        for branch in list(schema, "allOf") {
            self.check(branch, value, path, found);
        }
        for (keyword, only_one) in [("anyOf", false), ("oneOf", true)] {
            self.check_branches(list(schema, keyword), only_one, value, path, found);
        }
    }

    /// Checks a value without what is inside it. Of a late-bound value, only the type is known.
    fn check_value(&self, schema: &Value, value: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let mut least = |keyword: &str, is: f64, text: &str| {
            let least = schema.get(keyword).and_then(Value::as_f64);
            let least = least.filter(|least| is < *least);
            found.extend(least.map(|least| format!("{text} {least}")));
        };
        match value {
            Value::Number(number) => least("minimum", number.as_f64().unwrap_or(f64::MAX), "is below"),
            Value::Array(items) => least("minItems", items.len() as f64, "has fewer items than"),
            Value::Object(fields) => least("minProperties", fields.len() as f64, "has fewer entries than"),
            _ => {}
        }
        if let Value::Array(items) = value {
            let most = schema.get("maxItems").and_then(Value::as_u64);
            let most = most.filter(|most| items.len() as u64 > *most);
            found.extend(most.map(|most| format!("has more items than {most}")));
            let mut seen = HashSet::new();
            if schema.get("uniqueItems") == Some(&Value::Bool(true))
                && !items.iter().all(|item| seen.insert(item.to_string()))
            {
                found.push("contains an item twice".to_owned());
            }
        }
        if value.as_str().is_some_and(|text| text.contains(RESERVED_PREFIX)) {
            return found;
        }
        let allowed = list(schema, "enum");
        if !allowed.is_empty() && !allowed.contains(value) {
            let names: Vec<String> = allowed.iter().take(MAX_NAMED).map(Value::to_string).collect();
            let more = if allowed.len() > MAX_NAMED {
                " and others"
            } else {
                ""
            };
            found.push(format!("is none of {}{more}", names.join(", ")));
        }
        if let (Some(pattern), Some(text)) = (schema.get("pattern").and_then(Value::as_str), value.as_str())
            && !self.matches(pattern, text)
        {
            found.push(format!("does not match {pattern}"));
        }
        found
    }

    fn check_fields(
        &self,
        schema: &Value,
        fields: &Map<String, Value>,
        path: &str,
        found: &mut Vec<Problem>,
    ) {
        let required = list(schema, "required").iter().filter_map(Value::as_str);
        let missing = required.filter(|name| !fields.contains_key(*name));
        found.extend(missing.map(|name| (format!("{path}.{name}"), "is missing".to_owned())));
        let map = |keyword: &str| schema.get(keyword).and_then(Value::as_object);
        for (name, value) in fields {
            let path = format!("{path}.{name}");
            let own = map("properties").and_then(|properties| properties.get(name));
            let by_pattern = map("patternProperties").into_iter().flatten();
            let by_pattern = by_pattern.filter(|(pattern, _)| self.matches(pattern, name));
            let schemas: Vec<&Value> = own
                .into_iter()
                .chain(by_pattern.map(|(_, schema)| schema))
                .collect();
            for schema in &schemas {
                self.check(schema, value, &path, found);
            }
            match schema.get("additionalProperties").filter(|_| schemas.is_empty()) {
                Some(Value::Bool(false)) => found.push((path, format!("is not known to {READER}"))),
                Some(schema @ Value::Object(_)) => self.check(schema, value, &path, found),
                _ => {}
            }
        }
    }

    /// Checks a value that may have one of several forms. If it has none, the problems of the likeliest form
    /// are reported.
    fn check_branches(
        &self,
        branches: &[Value],
        only_one: bool,
        value: &Value,
        path: &str,
        found: &mut Vec<Problem>,
    ) {
        let mut fitting = 0;
        let mut likeliest: Option<Vec<Problem>> = None;
        let mut types_of_all = Vec::new();
        for branch in branches {
            let mut problems = Vec::new();
            self.check(branch, value, path, &mut problems);
            if problems.is_empty() {
                fitting += 1;
                continue;
            }
            let types = types(self.resolve(branch));
            let likely = types.is_empty() || types.iter().any(|name| is_of(value, name));
            if likely && likeliest.as_ref().is_none_or(|best| problems.len() < best.len()) {
                likeliest = Some(problems);
            }
            for name in types {
                if !types_of_all.contains(&name) {
                    types_of_all.push(name);
                }
            }
        }
        let text = match (fitting, likeliest) {
            (0, Some(problems)) => return found.extend(problems),
            (0, None) if !branches.is_empty() => format!("is not of type {}", listed(&types_of_all)),
            (2.., _) if only_one => "matches more than one of the allowed forms".to_owned(),
            _ => return,
        };
        found.push((path.to_owned(), text));
    }

    fn resolve<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let target = schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|target| target.strip_prefix('#'));
        target
            .and_then(|pointer| self.root.pointer(pointer))
            .unwrap_or(schema)
    }

    /// Whether the pattern matches. An invalid pattern would match everything; a test checks that the schema
    /// has none.
    fn matches(&self, pattern: &str, text: &str) -> bool {
        let mut patterns = self.patterns.borrow_mut();
        let regex = patterns
            .entry(pattern.to_owned())
            .or_insert_with(|| Regex::new(pattern).ok());
        regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

fn list<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    let items = schema.get(keyword).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn is_of(value: &Value, name: &str) -> bool {
    match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn listed(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn problems(schema: &Value, value: &Value) -> Vec<String> {
        let found = Schema::of(schema.clone()).problems(value).into_iter();
        found.map(|(path, text)| format!("{path}: {text}")).collect()
    }

    #[test]
    fn late_bound_values_are_valid() {
        let late = json!(format!("{}:api/token", RESERVED_PREFIX));
        assert_eq!(problems(&json!({"enum": ["a"]}), &late), [""; 0]);
        assert_eq!(problems(&json!({"pattern": "^a$"}), &late), [""; 0]);
        assert_eq!(problems(&json!({"type": "null"}), &late).len(), 1);
    }

    #[test]
    fn the_list_of_problems_is_limited() {
        let many: Vec<u32> = (0..1000).collect();
        assert_eq!(
            problems(&json!({"items": {"type": "null"}}), &json!(many)).len(),
            MAX_PROBLEMS
        );
    }
}
