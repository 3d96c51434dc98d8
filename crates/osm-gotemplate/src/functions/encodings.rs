//! Functions that encode and decode JSON, YAML and base64, and encode TOML.
//!
//! The upstream OSM adds most of them to sprig, as Helm does. They give the same data here, in another
//! layout. A decoder puts its error into the result, as in Go. An encoder that fails is an error, while Go
//! returns no text, or the error as text.

mod encode;
mod json;
#[cfg(test)]
mod tests;
mod yaml;

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::table::table;
use super::{Call, Problem};
use crate::value::{Map, Type, Value};
use encode::Format;
use json::Failure;

table! {
    "b64dec": (String) -> "string", "Decodes base64.", r#""aGVsbG8=""# => "hello", b64dec;
    "b64enc": (String) -> "string", "Encodes a text as base64 with padding.",
        r#""hello""# => "aGVsbG8=", |call| {
            call.budget.copy(call.text(0).len().saturating_mul(2))?;
            Ok(STANDARD.encode(call.text(0)).into())
        };
    "fromJson": (String) -> "map[string]interface {}", "Decodes a JSON object; the result has the key Error if that fails.",
        (r#"{{ (fromJson "{\"a\": 1}").a }}"#) => "1",
        |call| decoded(call, json::decode(call.text(0), call.budget), || Map::nil(Type::Any));
    "fromYaml": (String) -> "map[string]interface {}", "Decodes a YAML map; the result has the key Error if that fails.",
        (r#"{{ (fromYaml "a: 0x10").a }}"#) => "16",
        |call| decoded(call, yaml::decode(call.text(0), call.budget), || Map::new(Type::Any, [].into()));
    "toJson": (Any) -> "string", "Encodes a value as JSON.", r#"(dict "b" "<" "a" 1)"# => r#"{"a":1,"b":"<"}"#,
        |call| encode::encode(call.any(0), Format::Json, call.budget).map(Value::string);
    "toToml": (Any) -> "string", "Encodes a map as TOML.", r#"(dict "a" 1 "b" (dict "c" "x"))"# => "a = 1\n\n[b]\nc = \"x\"\n",
        |call| encode::encode(call.any(0), Format::Toml, call.budget).map(Value::string);
    "toYaml": (Any) -> "string", "Encodes a value as YAML, without the last line break.",
        r#"(dict "a" (list 1 "true"))"# => "a:\n- 1\n- \"true\"", |call| encode::encode(call.any(0), Format::Yaml, call.budget).map(Value::string);
}

fn b64dec(call: &Call<'_>) -> Result<Value, Problem> {
    call.budget.copy(call.text(0).len().saturating_mul(2))?;
    let digits = call.text(0).replace(['\r', '\n'], "");
    let bytes = STANDARD
        .decode(digits)
        .map_err(|_| Problem::new("the text is not base64 with padding"))?;
    let text = String::from_utf8(bytes);
    text.map(Value::from)
        .map_err(|_| Problem::new("the decoded bytes are not UTF-8, so they can't become text"))
}

/// What a decoder returns: the map, or one with the error under a key. `null` stands for no value.
fn decoded(
    call: &Call<'_>,
    decoded: Result<Value, Failure>,
    null: impl FnOnce() -> Map,
) -> Result<Value, Problem> {
    let error = match decoded {
        Ok(map @ Value::Map(_)) => return Ok(map),
        Ok(Value::Nil) => return Ok(Value::Map(null())),
        Ok(_) => "the text is not a map".to_owned(),
        Err(Failure::Malformed(error)) => error,
        Err(Failure::Fatal(problem)) => return Err(problem),
    };
    call.budget.copy(Map::bytes(1).saturating_add(error.len()))?;
    let key: Rc<str> = "Error".into();
    Ok(Value::map([(key, error.into())].into()))
}
