//! Decodes documents that people write. It reports every error at once, each with its path. No message
//! repeats a value, because a value may be a credential.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde_json::Value;

/// Where a mistake is that concerns all of a document, instead of a path.
pub const DOCUMENT: &str = "the document";

/// Decoding ends after this many errors of one document. A longer list would not help its author.
const MAX_ERRORS: usize = 25;

/// Decodes `value` into `T`, which should deny unknown fields. A field that is null is absent.
///
/// # Errors
/// One line per mistake, `path: what is wrong`, in the order found. No line repeats a value of the document.
pub fn decode<T: DeserializeOwned>(value: Value) -> Result<T, Vec<String>> {
    decode_and_validate(value, |_| Vec::new())
}

/// As [`decode`], and adds the problems that `validate` finds, in lines of the same form.
///
/// A part that cannot be decoded must not hide problems of the rest. So such a part is removed and the rest
/// is validated. Problems of removed parts are dropped, because they are consequences of the removal.
///
/// # Errors
/// As for [`decode`].
pub fn decode_and_validate<T: DeserializeOwned>(
    mut value: Value,
    validate: impl FnOnce(&T) -> Vec<String>,
) -> Result<T, Vec<String>> {
    let mut errors = Vec::new();
    let mut removed = Removed::default();
    while errors.len() < MAX_ERRORS {
        let error = match serde_path_to_error::deserialize::<_, T>(NullIsAbsent(&value)) {
            Ok(decoded) => {
                let found = validate(&decoded)
                    .into_iter()
                    .filter_map(|line| removed.in_document(&line));
                errors.extend(found);
                return if errors.is_empty() {
                    Ok(decoded)
                } else {
                    Err(errors)
                };
            }
            Err(error) => error,
        };
        let segments: Vec<String> = error.path().iter().map(ToString::to_string).collect();
        let path = removed.original(&error.path().to_string());
        let message = error.inner().to_string();
        let missing = missing_field(&message).map(|field| (field, join(&path, field)));
        // The error of a removed part, or of its stand-in, is already in the list.
        if !removed
            .paths
            .contains(missing.as_ref().map_or(&path, |(_, missing)| missing))
        {
            let place = if path == "." { DOCUMENT } else { &path };
            errors.push(format!("{place}: {}", without_values(&message)));
        }
        // serde stops at the first error. Without that part, the next round finds the next error.
        let can_continue = match missing {
            Some((field, missing)) => {
                removed.paths.insert(missing);
                insert_stand_in(&mut value, &segments, field)
            }
            None => removed.remove(&mut value, &segments, path),
        };
        if !can_continue {
            break;
        }
    }
    Err(errors)
}

/// JSON in which a field that is null is the same as an absent one, as for Go's decoder and for an API server
/// that prunes an object. What is decoded as a [`Value`] keeps its nulls, because an API server preserves
/// them there.
struct NullIsAbsent<'de>(&'de Value);

impl<'de> IntoDeserializer<'de, serde_json::Error> for NullIsAbsent<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for NullIsAbsent<'de> {
    type Error = serde_json::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        let Value::Object(fields) = self.0 else {
            return self.0.deserialize_map(visitor);
        };
        let present = fields.iter().filter(|(_, value)| !value.is_null());
        let present = present.map(|(name, value)| (name.as_str(), NullIsAbsent(value)));
        visitor.visit_map(MapDeserializer::new(present))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Array(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(NullIsAbsent))),
            other => other.deserialize_seq(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple tuple_struct
        identifier ignored_any
    }
}

/// The parts that were removed from a document.
#[derive(Default)]
struct Removed {
    /// Paths in the original document.
    paths: BTreeSet<String>,
    /// Items by the path of their list: their original indices, sorted.
    items: BTreeMap<String, Vec<usize>>,
}

impl Removed {
    /// Removes the part at `segments`, whose path in the original document is `path`.
    fn remove(&mut self, value: &mut Value, segments: &[String], path: String) -> bool {
        let Some((last, parents)) = segments.split_last() else {
            return false;
        };
        match at(value, parents) {
            // The second time, the stand-in does not fit either, so the object around it is removed.
            Some(Value::Object(_)) if self.paths.contains(&path) => {
                let parent = path
                    .strip_suffix(last.as_str())
                    .map(|parent| parent.trim_end_matches('.'));
                let parent = parent.unwrap_or_default().to_owned();
                self.remove(value, parents, parent)
            }
            Some(Value::Object(map)) => {
                self.paths.insert(path);
                map.remove(last).is_some()
            }
            Some(Value::Array(items)) => {
                let was_removed = index(last)
                    .filter(|i| *i < items.len())
                    .map(|i| items.remove(i))
                    .is_some();
                if let Some((list, item)) = path.rsplit_once('[').filter(|_| was_removed)
                    && let Some(item) = index(item)
                {
                    let places = self.items.entry(list.to_owned()).or_default();
                    places.insert(places.partition_point(|place| *place < item), item);
                    self.paths.insert(path);
                }
                was_removed
            }
            _ => false,
        }
    }

    /// The path in the original document. Removing an item moves the items after it.
    fn original(&self, path: &str) -> String {
        let (mut original, mut rest) = (String::new(), path);
        while let Some((before, after)) = rest.split_once('[') {
            original.push_str(before);
            let item = after
                .split_once(']')
                .and_then(|(item, after)| Some((item.parse::<usize>().ok()?, after)));
            // The name of a field may also contain a bracket.
            let Some((mut item, after)) = item else {
                (original, rest) = (original + "[", after);
                continue;
            };
            for place in self.items.get(&original).into_iter().flatten() {
                item += usize::from(*place <= item);
            }
            original.push_str(&format!("[{item}]"));
            rest = after;
        }
        original + rest
    }

    /// A line of the validation with its original path; `None` if a removal caused it.
    fn in_document(&self, line: &str) -> Option<String> {
        let (path, rule) = line.split_at(line.find(": ").unwrap_or(line.len()));
        let path = self.original(path);
        let is_real = !self.paths.contains(&path) && !self.items.contains_key(&path);
        is_real.then_some(path + rule)
    }
}

/// The name of the field in serde's message about a missing field.
fn missing_field(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

fn join(path: &str, field: &str) -> String {
    if path.is_empty() || path == "." {
        field.to_owned()
    } else {
        format!("{path}.{field}")
    }
}

/// Inserts an empty text for a missing field, so that the fields beside it can be decoded.
fn insert_stand_in(value: &mut Value, segments: &[String], field: &str) -> bool {
    match at(value, segments) {
        Some(Value::Object(map)) => map
            .insert(field.to_owned(), Value::String(String::new()))
            .is_none_or(|before| before.is_null()),
        _ => false,
    }
}

/// Rule for a text that is written as a number.
pub const NUMBER_WITHOUT_QUOTES: &str = "is a number; put it in quotes";

/// Rule for a text that is written as `true` or `false`.
pub const BOOLEAN_WITHOUT_QUOTES: &str = "is a boolean; put it in quotes";

/// Rule for a value that must be a map.
pub fn no_map(value: &Value) -> String {
    format!("is {}, expected a map", type_of(value))
}

/// Rule for a value that must be a text.
pub fn no_text(value: &Value) -> String {
    match value {
        Value::Number(_) => NUMBER_WITHOUT_QUOTES.to_owned(),
        Value::Bool(_) => BOOLEAN_WITHOUT_QUOTES.to_owned(),
        other => format!("is {}, expected a string", type_of(other)),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// What is wrong with a value, by serde's message, without the value.
pub fn without_values(message: &str) -> String {
    let keeps = ["unknown field", "missing field", "duplicate field"];
    let rules = [NUMBER_WITHOUT_QUOTES, BOOLEAN_WITHOUT_QUOTES];
    if keeps.iter().any(|prefix| message.starts_with(prefix)) || rules.contains(&message) {
        return message.to_owned();
    }
    // A value can contain these words as well, but what serde expects is at the end.
    let expected = match message.strip_prefix("expected ") {
        Some(own_rule) => Some(own_rule),
        None => message.rsplit_once(", expected ").map(|(_, expected)| expected),
    };
    match (found_type(message), expected) {
        (Some("a number"), Some("a string")) => NUMBER_WITHOUT_QUOTES.to_owned(),
        (Some("a boolean"), Some("a string")) => BOOLEAN_WITHOUT_QUOTES.to_owned(),
        (Some(found), Some(expected)) => format!("is {found}, expected {}", type_name(expected)),
        (None, Some(expected)) => format!("expected {}", type_name(expected)),
        (_, None) => "not a valid value".to_owned(),
    }
}

/// The type of the value in serde's message about a wrong one.
fn found_type(message: &str) -> Option<&'static str> {
    // How serde's `Unexpected` begins, before any part of the value.
    const TYPES: [(&str, &str); 8] = [
        ("boolean ", "a boolean"),
        ("integer ", "a number"),
        ("floating point ", "a number"),
        ("string ", "a string"),
        ("null", "empty"),
        ("unit value", "empty"),
        ("sequence", "a list"),
        ("map", "a map"),
    ];
    let found = message.strip_prefix("invalid type: ")?;
    let known = TYPES.iter().find(|(start, _)| found.starts_with(start));
    known.map(|(_, name)| *name)
}

/// The name of a type that serde expects, in the words of people who write YAML.
fn type_name(expected: &str) -> &str {
    match expected {
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "string or map" => "a string",
        _ if expected.starts_with("struct ") => "a map",
        _ => expected,
    }
}

fn at<'a>(value: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |at, segment| match at {
        Value::Object(map) => map.get_mut(segment),
        Value::Array(items) => items.get_mut(index(segment)?),
        _ => None,
    })
}

/// `serde_path_to_error` prints the segment of a list item as `[3]`.
fn index(segment: &str) -> Option<usize> {
    segment.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Document {
        #[serde(default)]
        number: i32,
        #[serde(default)]
        inner: BTreeMap<String, i32>,
    }

    #[test]
    fn a_value_that_reads_like_a_message_is_not_repeated() {
        for value in [
            "x expected SECRET",
            "SECRET, expected i32",
            "SECRET`, expected one of `a",
        ] {
            let errors = decode::<Document>(json!({"number": value, "inner": value})).unwrap_err();
            let of_number = "number: is a string, expected a whole number";
            assert_eq!(errors, [of_number, "inner: is a string, expected a map"]);
            let errors = decode::<Document>(json!(value)).unwrap_err();
            assert_eq!(errors, ["the document: is a string, expected a map"]);
        }
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Hosts {
        #[serde(default)]
        hosts: Vec<Host>,
        #[serde(default)]
        ports: Vec<u16>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Host {
        name: String,
        kind: Kind,
        #[serde(default)]
        port: u16,
    }

    #[derive(Debug, Deserialize)]
    enum Kind {
        Here,
    }

    fn validate(hosts: &Hosts) -> Vec<String> {
        let mut found = Vec::new();
        for (i, host) in hosts.hosts.iter().enumerate() {
            if host.name.is_empty() {
                found.push(format!("hosts[{i}].name: must not be empty"));
            }
            if host.port == 1 {
                found.push(format!("hosts[{i}].port: must not be 1"));
            }
        }
        if hosts.ports.is_empty() {
            found.push("ports: must not be empty".to_owned());
        }
        for (i, _) in hosts.ports.iter().enumerate().filter(|(_, port)| **port == 1) {
            found.push(format!("ports[{i}]: must not be 1"));
        }
        found
    }

    #[test]
    fn a_part_that_can_not_be_decoded_hides_no_problem_of_the_rest() {
        let document = json!({
            "hsts": 1,
            "hosts": [
                {"kind": "hunter2", "name": "a", "port": 1},
                {"kind": "Here", "port": 1},
                {"kind": "Here", "name": 5, "prt": 1, "port": 1},
                {"kind": "Here", "name": ""},
                {"name": "a"},
                "hunter2",
                {"kind": "Here", "name": "a", "port": 1},
            ],
            "ports": ["hunter2", 1, "hunter2", 1],
        });
        let mut errors = decode_and_validate(document, validate).unwrap_err();
        assert!(!errors.join("").contains("hunter2"), "{errors:#?}");
        for line in &mut errors {
            line.truncate(line.find([',', '`']).unwrap_or(line.len()));
        }
        errors.sort();
        assert_eq!(
            errors,
            [
                "hosts[0].kind: expected ",
                "hosts[1].port: must not be 1",
                "hosts[1]: missing field ",
                "hosts[2].name: is a number; put it in quotes",
                "hosts[2].port: must not be 1",
                "hosts[2].prt: unknown field ",
                "hosts[3].name: must not be empty",
                "hosts[4]: missing field ",
                "hosts[5]: is a string",
                "hosts[6].port: must not be 1",
                "hsts: unknown field ",
                "ports[0]: is a string",
                "ports[1]: must not be 1",
                "ports[2]: is a string",
                "ports[3]: must not be 1",
            ]
        );
    }

    #[test]
    fn consequences_of_a_removal_are_not_reported() {
        let errors = decode_and_validate(json!({"ports": ["a"]}), validate).unwrap_err();
        assert_eq!(errors, ["ports[0]: is a string, expected a whole number from 0"]);
        let errors = decode_and_validate(json!({}), validate).unwrap_err();
        assert_eq!(errors, ["ports: must not be empty"]);
        let decoded = decode_and_validate(json!({"ports": [2]}), validate);
        assert_eq!(decoded.unwrap().ports, [2]);
    }

    #[test]
    fn the_number_of_errors_is_bounded() {
        let unknown = (0..60).map(|i| (format!("u{i}, expected `number`"), json!(i)));
        let errors = decode::<Document>(unknown.collect()).unwrap_err();
        assert_eq!(errors.len(), MAX_ERRORS);
        let start = "u0, expected `number`: unknown field ";
        assert!(errors[0].starts_with(start), "{errors:#?}");
    }

    #[test]
    fn null_is_absent_but_in_what_is_preserved() {
        #[derive(Debug, Deserialize, PartialEq)]
        #[serde(deny_unknown_fields)]
        struct Whole {
            name: String,
            #[serde(default)]
            part: Part,
            #[serde(default)]
            parts: Vec<Part>,
            preserved: Option<Value>,
        }
        #[derive(Debug, Default, Deserialize, PartialEq)]
        #[serde(default, deny_unknown_fields)]
        struct Part {
            count: u8,
            texts: BTreeMap<String, String>,
            wrapped: Option<Wrapped>,
        }
        #[derive(Debug, Deserialize, PartialEq)]
        struct Wrapped(Vec<bool>);
        let read = |document: Value| decode::<Whole>(document);
        let null = json!({"name": "a", "part": {"count": null, "texts": {"a": null, "b": "b"}, "wrapped": null, "unknown": null},
            "parts": [{"count": null}, {"wrapped": [true]}], "preserved": {"a": null}});
        let absent = json!({"name": "a", "part": {"texts": {"b": "b"}}, "parts": [{}, {"wrapped": [true]}], "preserved": {"a": null}});
        assert_eq!(read(null), read(absent.clone()));
        assert_eq!(read(absent).unwrap().preserved, Some(json!({"a": null})));
        let null = json!({"name": "a", "part": null, "parts": null, "preserved": null});
        assert_eq!(read(null), read(json!({"name": "a"})));
        // What has to be there has no other name for absent, and an item has a place.
        let errors = read(json!({"name": null, "parts": [null]})).unwrap_err();
        let missing = "the document: missing field `name`";
        assert_eq!(errors, ["parts[0]: is empty, expected a map", missing]);
    }

    #[test]
    fn a_value_of_the_wrong_type_is_called_that() {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code)]
        struct Types {
            text: String,
            flag: bool,
            count: u8,
            share: f64,
            list: Vec<String>,
            map: BTreeMap<String, String>,
            kind: Kind,
        }
        let good =
            json!({"text": "a", "flag": true, "count": 1, "share": 1, "list": [], "map": {}, "kind": "Here"});
        assert!(decode::<Types>(good.clone()).is_ok());
        for (field, value, expected) in [
            ("text", json!(1.34), "is a number; put it in quotes"),
            ("text", json!(134), "is a number; put it in quotes"),
            ("text", json!(true), "is a boolean; put it in quotes"),
            ("text", json!(["hunter2"]), "is a list, expected a string"),
            ("text", json!({"hunter2": 1}), "is a map, expected a string"),
            ("flag", json!("hunter2"), "is a string, expected a boolean"),
            ("count", json!(""), "is a string, expected a whole number from 0"),
            ("count", json!(1.5), "is a number, expected a whole number from 0"),
            ("count", json!(777), "expected a whole number from 0"),
            ("share", json!([]), "is a list, expected a number"),
            ("list", json!("hunter2"), "is a string, expected a list"),
            ("map", json!(5), "is a number, expected a map"),
            ("kind", json!(5), "is a number, expected a string"),
            ("kind", json!("hunter2"), "expected `Here`"),
        ] {
            let mut document = good.clone();
            document[field] = value.clone();
            let errors = decode::<Types>(document).unwrap_err();
            assert_eq!(errors, [format!("{field}: {expected}")], "{value}");
            if field == "text" {
                assert_eq!(no_text(&value), expected);
            }
        }
        assert_eq!(no_map(&json!([])), "is a list, expected a map");
    }
}
