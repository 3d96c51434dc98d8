//! Functions that encode and decode: JSON, YAML and base64. TOML is only encoded.
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
mod toml_writer;
mod yaml_nodes;
mod yaml_reader;
mod yaml_scalars;
mod yaml_writer;

use std::collections::BTreeMap;
use std::rc::Rc;

use super::table::table;
use super::{Call, Problem};
use crate::value::{Map, Type, Value};
use text::Failure;

table! {
    "b64dec": (String) -> "string", "Decodes base64, or returns the error as text.",
        r#""aGVsbG8=""# => "hello", b64dec;
    "b64enc": (String) -> "string", "Encodes a text as base64 with padding.",
        r#""hello""# => "aGVsbG8=", |call| {
            call.budget.copy(call.text(0).len().saturating_mul(2))?;
            Ok(bases::encode_64(call.text(0).as_bytes()).into())
        };
    "fromJson": (String) -> "map[string]interface {}", "Decodes a JSON object; the result has the key Error if that fails.",
        (r#"{{ (fromJson "{\"a\": 1}").a }}"#) => "1", from_json;
    "fromYaml": (String) -> "map[string]interface {}", "Decodes a YAML map; the result has the key Error if that fails.",
        (r#"{{ (fromYaml "a: 0x10").a }}"#) => "16", from_yaml;
    "toJson": (Any) -> "string", "Encodes a value as JSON, in which <, > and & are escape sequences.",
        r#"(dict "b" "<" "a" 1)"# => r#"{"a":1,"b":"\u003c"}"#, |call| swallow(json_writer::encode(call.any(0), call.budget));
    "toToml": (Any) -> "string", "Encodes a map as TOML, or returns the error as text.",
        r#"(dict "a" 1 "b" (dict "c" "x"))"# => "a = 1\n\n[b]\n  c = \"x\"\n", |call| match toml_writer::encode(call.any(0), call.budget) {
            Ok(text) | Err(Failure::Reported(text)) => Ok(text.into()),
            Err(Failure::Fatal(problem)) => Err(problem),
        };
    "toYaml": (Any) -> "string", "Encodes a value as YAML with an indent of four spaces, without the last line break.",
        r#"(dict "a" (list 1 "true"))"# => "a:\n    - 1\n    - \"true\"", |call| swallow(yaml_writer::encode(call.any(0), call.budget).map(trimmed));
}

/// The text without its last line break.
fn trimmed(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

fn b64dec(call: &Call<'_>) -> Result<Value, Problem> {
    call.budget.copy(call.text(0).len())?;
    match bases::decode_64(call.text(0)) {
        Ok(bytes) => {
            let text = String::from_utf8(bytes);
            text.map(Value::from)
                .map_err(|_| Problem::new("the decoded bytes are not UTF-8, so they can't become text"))
        }
        Err(error) => Ok(error.into()),
    }
}

/// The encoded text. Errors of the encoder become no text.
fn swallow(encoded: Result<String, Failure>) -> Result<Value, Problem> {
    match encoded {
        Ok(text) => Ok(text.into()),
        Err(Failure::Reported(_)) => Ok("".into()),
        Err(Failure::Fatal(problem)) => Err(problem),
    }
}

fn from_json(call: &Call<'_>) -> Result<Value, Problem> {
    let decoded = match json_reader::decode(call.text(0), call.budget) {
        Ok(decoded) => decoded,
        Err(Failure::Reported(error)) => return with_error(call, Value::Nil, error),
        Err(Failure::Fatal(problem)) => return Err(problem),
    };
    let found = match &decoded.value {
        Value::Map(_) => None,
        Value::Nil if decoded.error.is_none() => return Ok(Value::Map(Map::nil(Type::Any))),
        Value::List(_) => Some("array"),
        Value::String(_) => Some("string"),
        Value::Bool(_) => Some("bool"),
        _ => Some("number"),
    };
    let mismatch = found.map(|found| {
        format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}")
    });
    match mismatch.or(decoded.error) {
        Some(error) => with_error(call, decoded.value, error),
        None => Ok(decoded.value),
    }
}

fn from_yaml(call: &Call<'_>) -> Result<Value, Problem> {
    let empty = || Value::map(BTreeMap::new());
    match yaml_reader::decode(call.text(0), call.budget) {
        Ok(decoded) => match (decoded.value.unwrap_or_else(empty), decoded.error) {
            (value, None) => Ok(value),
            (value, Some(error)) => with_error(call, value, error),
        },
        Err(Failure::Reported(error)) => with_error(call, empty(), error),
        Err(Failure::Fatal(problem)) => Err(problem),
    }
}

/// What a decoder returns for an error: a map with the error under a key.
fn with_error(call: &Call<'_>, value: Value, error: String) -> Result<Value, Problem> {
    call.budget.copy(error.len())?;
    let mut entries: BTreeMap<Rc<str>, Value> = BTreeMap::new();
    if let Value::Map(map) = value {
        call.budget.copy(Map::bytes(map.len()))?;
        entries.extend(map.entries(call.budget)?);
    }
    call.budget.copy(Map::bytes(1))?;
    entries.insert("Error".into(), error.into());
    Ok(Value::map(entries))
}
