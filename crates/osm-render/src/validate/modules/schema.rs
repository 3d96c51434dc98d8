//! The part of JSON Schema, draft 4, that cloud-init's schema of cloud-config uses. A test checks that it uses no other keyword.
//!
//! A general validator would add four megabytes to the binary and five to memory, for this one schema.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use regex::Regex;
use serde_json::{Map, Value};

/// A message lists at most this many problems.
const MAX_PROBLEMS: usize = 20;

/// A message names at most this many members of an enumeration.
const MAX_NAMED: usize = 16;

/// A problem of a document. It does not repeat the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// Such as `.ntp.servers[0]`.
    pub(super) path: String,
    /// Such as `is not of type string`.
    pub(super) text: String,
}

pub(super) struct Schema {
    root: Value,
    /// The program that the schema belongs to, for messages about unknown names.
    reader: &'static str,
    patterns: RefCell<HashMap<String, Option<Regex>>>,
}

impl Schema {
    /// Parses a schema that belongs to the program `reader`.
    pub(super) fn parse(text: &str, reader: &'static str) -> Result<Self, serde_json::Error> {
        Ok(Self {
            root: serde_json::from_str(text)?,
            reader,
            patterns: RefCell::default(),
        })
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
        let mut report = |text: String| {
            found.push(Problem {
                path: path.to_owned(),
                text,
            })
        };
        let types = types(schema);
        if !types.is_empty() && !types.iter().any(|name| is_of(value, name)) {
            return report(format!("is not of type {}", listed(&types)));
        }
        if let Some(allowed) =
            list(schema, "enum").filter(|allowed| !is_late(value) && !allowed.contains(value))
        {
            let names: Vec<String> = allowed.iter().take(MAX_NAMED).map(Value::to_string).collect();
            let more = if allowed.len() > MAX_NAMED {
                " and others"
            } else {
                ""
            };
            report(format!("is none of {}{more}", names.join(", ")));
        }
        match value {
            Value::String(text) if !is_late(value) => {
                let pattern = schema.get("pattern").and_then(Value::as_str);
                if let Some(pattern) = pattern.filter(|pattern| !self.matches(pattern, text)) {
                    report(format!("does not match {pattern}"));
                }
            }
            Value::Number(number) => {
                let least = schema.get("minimum").and_then(Value::as_f64);
                if let Some(least) =
                    least.filter(|least| number.as_f64().is_some_and(|number| number < *least))
                {
                    report(format!("is below {least}"));
                }
            }
            Value::Array(items) => self.check_items(schema, items, path, found),
            Value::Object(fields) => self.check_fields(schema, fields, path, found),
            _ => {}
        }
        for branch in list(schema, "allOf").into_iter().flatten() {
            self.check(branch, value, path, found);
        }
        for (keyword, only_one) in [("anyOf", false), ("oneOf", true)] {
            if let Some(branches) = list(schema, keyword) {
                self.check_branches(branches, only_one, value, path, found);
            }
        }
    }

    fn check_items(&self, schema: &Value, items: &[Value], path: &str, found: &mut Vec<Problem>) {
        let mut report = |text: String| {
            found.push(Problem {
                path: path.to_owned(),
                text,
            })
        };
        let number = |keyword: &str| schema.get(keyword).and_then(Value::as_u64);
        if let Some(least) = number("minItems").filter(|least| (items.len() as u64) < *least) {
            report(format!("has fewer items than {least}"));
        }
        if let Some(most) = number("maxItems").filter(|most| items.len() as u64 > *most) {
            report(format!("has more items than {most}"));
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            let mut seen = HashSet::new();
            if !items.iter().all(|item| seen.insert(item.to_string())) {
                report("contains an item twice".to_owned());
            }
        }
        if let Some(of_items) = schema.get("items") {
            for (i, item) in items.iter().enumerate() {
                self.check(of_items, item, &format!("{path}[{i}]"), found);
            }
        }
    }

    fn check_fields(
        &self,
        schema: &Value,
        fields: &Map<String, Value>,
        path: &str,
        found: &mut Vec<Problem>,
    ) {
        let mut report = |path: String, text: String| found.push(Problem { path, text });
        for name in list(schema, "required")
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !fields.contains_key(name) {
                report(format!("{path}.{name}"), "is missing".to_owned());
            }
        }
        let least = schema.get("minProperties").and_then(Value::as_u64);
        if let Some(least) = least.filter(|least| (fields.len() as u64) < *least) {
            report(path.to_owned(), format!("has fewer entries than {least}"));
        }
        let map = |keyword: &str| schema.get(keyword).and_then(Value::as_object);
        for (name, value) in fields {
            let path = format!("{path}.{name}");
            let own = map("properties").and_then(|properties| properties.get(name));
            let patterns = map("patternProperties").into_iter().flatten();
            let by_pattern = patterns
                .filter(|(pattern, _)| self.matches(pattern, name))
                .map(|(_, schema)| schema);
            let mut known = false;
            for schema in own.into_iter().chain(by_pattern) {
                known = true;
                self.check(schema, value, &path, found);
            }
            match schema.get("additionalProperties") {
                Some(Value::Bool(false)) if !known => {
                    let text = format!("is not known to {}", self.reader);
                    found.push(Problem { path, text });
                }
                Some(schema @ Value::Object(_)) if !known => self.check(schema, value, &path, found),
                _ => {}
            }
        }
    }

    /// Checks a value that may have one of several forms. If it has none, the problems of the likeliest form are reported.
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
            types_of_all.extend(
                types
                    .into_iter()
                    .filter(|name| !types_of_all.contains(name))
                    .collect::<Vec<_>>(),
            );
        }
        let problem = |text: String| {
            vec![Problem {
                path: path.to_owned(),
                text,
            }]
        };
        found.extend(match (fitting, likeliest) {
            (1, _) => return,
            (0, Some(problems)) => problems,
            (0, None) => problem(format!("is not of type {}", listed(&types_of_all))),
            _ if only_one => problem("matches more than one of the allowed forms".to_owned()),
            _ => return,
        });
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

    /// Whether the pattern matches. An invalid pattern would match everything; a test checks that the schema has none.
    fn matches(&self, pattern: &str, text: &str) -> bool {
        let mut patterns = self.patterns.borrow_mut();
        let regex = patterns
            .entry(pattern.to_owned())
            .or_insert_with(|| Regex::new(pattern).ok());
        regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

fn list<'a>(schema: &'a Value, keyword: &str) -> Option<&'a Vec<Value>> {
    schema.get(keyword).and_then(Value::as_array)
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

/// Whether a text contains a late-bound value, which only secret-syncer knows.
fn is_late(value: &Value) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.contains(crate::RESERVED_PREFIX))
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
        let schema = Schema::parse(&schema.to_string(), "cloud-init").unwrap();
        schema
            .problems(value)
            .into_iter()
            .map(|Problem { path, text }| format!("{path}: {text}"))
            .collect()
    }

    #[test]
    fn late_bound_values_are_valid() {
        let late = json!(format!("{}:api/token", crate::RESERVED_PREFIX));
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
