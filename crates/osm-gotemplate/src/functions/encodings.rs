//! Functions that encode and decode: JSON, YAML, TOML, base64 and base32.
//!
//! Operating System Manager replaces sprig's `toJson` and `fromJson` and adds the others, as Helm does: an encoder that fails
//! returns no text, and a decoder puts its error into the result. YAML is that of `gopkg.in/yaml.v3`, TOML that of
//! `github.com/BurntSushi/toml`.

mod bases;
mod json_reader;
mod json_writer;
mod key_order;
#[cfg(test)]
mod tests;
mod text;
mod timestamps;
mod toml_reader;
mod toml_writer;
mod yaml_nodes;
mod yaml_reader;
mod yaml_scalars;
mod yaml_writer;

use std::collections::BTreeMap;
use std::rc::Rc;

use super::table::table;
use super::{Call, Problem};
use crate::value::{List, Map, Type, Value};
use json_writer::Style;
use text::Failure;
use yaml_reader::Target;

const COMPACT: Style = Style {
    indented: false,
    html_safe: true,
};
const PRETTY: Style = Style {
    indented: true,
    html_safe: true,
};
const RAW: Style = Style {
    indented: false,
    html_safe: false,
};

table! {
    "b32dec": (String) -> "string", "Decodes base32, or returns the error as text.",
        r#""NBSWY3DP""# => "hello", |call| decode(call, bases::decode_32);
    "b32enc": (String) -> "string", "Encodes a text as base32 with padding.",
        r#""hello""# => "NBSWY3DP", |call| {
            call.budget.copy(call.text(0).len().saturating_mul(2))?;
            Ok(bases::encode_32(call.text(0).as_bytes()).into())
        };
    "b64dec": (String) -> "string", "Decodes base64, or returns the error as text.",
        r#""aGVsbG8=""# => "hello", |call| decode(call, bases::decode_64);
    "b64enc": (String) -> "string", "Encodes a text as base64 with padding.",
        r#""hello""# => "aGVsbG8=", |call| {
            call.budget.copy(call.text(0).len().saturating_mul(2))?;
            Ok(bases::encode_64(call.text(0).as_bytes()).into())
        };
    "fromJson": (String) -> "map[string]interface {}", "Decodes a JSON object; the result has the key Error if that fails.",
        (r#"{{ (fromJson "{\"a\": 1}").a }}"#) => "1", |call| from_json(call, Kind::Map);
    "fromJsonArray": (String) -> "[]interface {}", "Decodes a JSON array; the result has one element, the error, if that fails.",
        (r#"{{ index (fromJsonArray "[1, 2]") 1 }}"#) => "2", |call| from_json(call, Kind::List);
    "fromToml": (String) -> "map[string]interface {}", "Decodes TOML; the result has the key Error if that fails.",
        (r#"{{ (fromToml "[a]\nb = 1").a.b }}"#) => "1", |call| match toml_reader::decode(call.text(0), call.budget) {
            Ok(value) => Ok(value),
            Err(Failure::Reported(error)) => with_error(call, Value::Nil, Kind::Map, error),
            Err(Failure::Fatal(problem)) => Err(problem),
        };
    "fromYaml": (String) -> "map[string]interface {}", "Decodes a YAML map; the result has the key Error if that fails.",
        (r#"{{ (fromYaml "a: 0x10").a }}"#) => "16", |call| from_yaml(call, Kind::Map);
    "fromYamlArray": (String) -> "[]interface {}", "Decodes a YAML list; the result has one element, the error, if that fails.",
        (r#"{{ index (fromYamlArray "[a, 1.5]") 1 }}"#) => "1.5", |call| from_yaml(call, Kind::List);
    "mustFromJson": (String) -> "interface {}", "Decodes any JSON, and fails if it is malformed.",
        (r#"{{ (mustFromJson "[true]") | first }}"#) => "true", |call| {
            let decoded = json_reader::decode(call.text(0), call.budget)?;
            decoded
                .error
                .map_or(Ok(decoded.value), |error| Err(Problem::new(error)))
        };
    "mustToJson": (Any) -> "string", "Encodes a value as JSON, and fails if that is impossible.",
        r#"(dict "a" 1)"# => r#"{"a":1}"#, |call| to_json(call, COMPACT, true);
    "mustToPrettyJson": (Any) -> "string", "Encodes a value as indented JSON, and fails if that is impossible.",
        "(list 1)" => "[\n  1\n]", |call| to_json(call, PRETTY, true);
    "mustToRawJson": (Any) -> "string", "Encodes a value as JSON that keeps <, > and &, and fails if that is impossible.",
        r#""<&>""# => r#""<&>""#, |call| to_json(call, RAW, true);
    "toJson": (Any) -> "string", "Encodes a value as JSON, in which <, > and & are escape sequences.",
        r#"(dict "b" "<" "a" 1)"# => r#"{"a":1,"b":"\u003c"}"#, |call| to_json(call, COMPACT, false);
    "toPrettyJson": (Any) -> "string", "Encodes a value as JSON with line breaks and an indent of two spaces.",
        r#"(dict "a" 1)"# => "{\n  \"a\": 1\n}", |call| to_json(call, PRETTY, false);
    "toRawJson": (Any) -> "string", "Encodes a value as JSON that keeps <, > and &.",
        r#""a < b""# => r#""a < b""#, |call| to_json(call, RAW, true);
    "toToml": (Any) -> "string", "Encodes a map as TOML, or returns the error as text.",
        r#"(dict "a" 1 "b" (dict "c" "x"))"# => "a = 1\n\n[b]\n  c = \"x\"\n", |call| match toml_writer::encode(call.any(0), call.budget) {
            Ok(text) | Err(Failure::Reported(text)) => Ok(text.into()),
            Err(Failure::Fatal(problem)) => Err(problem),
        };
    "toYaml": (Any) -> "string", "Encodes a value as YAML with an indent of four spaces, without the last line break.",
        r#"(dict "a" (list 1 "true"))"# => "a:\n    - 1\n    - \"true\"", |call| swallow(yaml_writer::encode(call.any(0), call.budget).map(trimmed), false);
}

/// The text without its last line break.
fn trimmed(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

/// What a decoder must find.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Map,
    List,
}

fn decode(call: &Call<'_>, decode: fn(&str) -> Result<Vec<u8>, String>) -> Result<Value, Problem> {
    call.budget.copy(call.text(0).len())?;
    match decode(call.text(0)) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes);
            text.map(Value::from)
                .map_err(|_| Problem::new("the decoded bytes are not UTF-8, so they can't become text"))
        }
        Err(error) => Ok(error.into()),
    }
}

fn to_json(call: &Call<'_>, style: Style, must: bool) -> Result<Value, Problem> {
    swallow(json_writer::encode(call.any(0), style, call.budget), must)
}

/// The encoded text. Errors of the encoder become no text, unless the function must succeed.
fn swallow(encoded: Result<String, Failure>, must: bool) -> Result<Value, Problem> {
    match encoded {
        Ok(text) => Ok(text.into()),
        Err(Failure::Reported(_)) if !must => Ok("".into()),
        Err(failure) => Err(failure.into()),
    }
}

fn from_json(call: &Call<'_>, kind: Kind) -> Result<Value, Problem> {
    let decoded = match json_reader::decode(call.text(0), call.budget) {
        Ok(decoded) => decoded,
        Err(Failure::Reported(error)) => return with_error(call, Value::Nil, kind, error),
        Err(Failure::Fatal(problem)) => return Err(problem),
    };
    let found = match (&decoded.value, kind) {
        (Value::Map(_), Kind::Map) | (Value::List(_), Kind::List) => None,
        (Value::Nil, Kind::Map) if decoded.error.is_none() => return Ok(Value::Map(Map::nil(Type::Any))),
        (Value::Nil, Kind::List) if decoded.error.is_none() => return Ok(Value::List(List::nil(Type::Any))),
        (Value::Map(_), _) => Some("object"),
        (Value::List(_), _) => Some("array"),
        (Value::String(_), _) => Some("string"),
        (Value::Bool(_), _) => Some("bool"),
        _ => Some("number"),
    };
    let into = match kind {
        Kind::Map => "map[string]interface {}",
        Kind::List => "[]interface {}",
    };
    let mismatch = found.map(|found| format!("json: cannot unmarshal {found} into Go value of type {into}"));
    match mismatch.or(decoded.error) {
        Some(error) => with_error(call, decoded.value, kind, error),
        None => Ok(decoded.value),
    }
}

fn from_yaml(call: &Call<'_>, kind: Kind) -> Result<Value, Problem> {
    let (into, empty) = match kind {
        Kind::Map => (Target::Map, Value::map(BTreeMap::new())),
        Kind::List => (Target::List, Value::list(Vec::new())),
    };
    match yaml_reader::decode(call.text(0), into, call.budget) {
        Ok(decoded) => match (decoded.value.unwrap_or(empty), decoded.error) {
            (value, None) => Ok(value),
            (value, Some(error)) => with_error(call, value, kind, error),
        },
        Err(Failure::Reported(error)) => with_error(call, empty, kind, error),
        Err(Failure::Fatal(problem)) => Err(problem),
    }
}

/// What a decoder returns for an error: a map with the error under a key, or a list with the error alone.
fn with_error(call: &Call<'_>, value: Value, kind: Kind, error: String) -> Result<Value, Problem> {
    call.budget.copy(error.len())?;
    if kind == Kind::List {
        return call.made_list(vec![error.into()]);
    }
    let mut entries: BTreeMap<Rc<str>, Value> = BTreeMap::new();
    if let Value::Map(map) = value {
        call.budget.copy(Map::bytes(map.len()))?;
        entries.extend(map.entries(call.budget)?);
    }
    call.budget.copy(Map::bytes(1))?;
    entries.insert("Error".into(), error.into());
    Ok(Value::map(entries))
}
