//! Helpers that give a value: the same value for the same arguments, nothing else. No message repeats an
//! argument.

use std::cmp::Ordering;

use ::handlebars::JsonTruthy;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::profile::MAX_CONTENT_BYTES;
use osm_user_data::{late_bound, yaml};
use semver::{Version, VersionReq};
use serde_json::{Number, Value};

/// Largest value that a helper gives, in bytes. Nothing larger can be stored. The budget sees a value only
/// once it exists.
const MAX_VALUE: usize = MAX_CONTENT_BYTES;

type Outcome = Result<Value, String>;

/// Calls the helper `name`, which is one of [`super::lint::VALUE_HELPERS`].
pub(super) fn call(name: &str, arguments: &[&Value]) -> Outcome {
    let (fewest, most) = match name {
        "not" | "len" | "json" | "toml" | "yaml" | "shell" | "b64" | "trim" | "lit" => (1, 1),
        "and" | "or" => (2, usize::MAX),
        "concat" => (1, usize::MAX),
        _ => (2, 2),
    };
    if arguments.len() < fewest || arguments.len() > most {
        return Err(format!("takes {fewest} argument(s), not {}", arguments.len()));
    }
    let argument = |index: usize| arguments.get(index).copied().unwrap_or(&Value::Null);
    let (first, second) = (argument(0), argument(1));
    // The result can be many times as large as the arguments only in `indent`, `join` and `concat`, which
    // stop by themselves.
    let value = match name {
        "eq" => Value::from(first == second),
        "ne" => Value::from(first != second),
        "gt" => compared(first, second, Ordering::is_gt),
        "gte" => compared(first, second, Ordering::is_ge),
        "lt" => compared(first, second, Ordering::is_lt),
        "lte" => compared(first, second, Ordering::is_le),
        "not" => Value::from(!first.is_truthy(false)),
        "and" => Value::from(arguments.iter().all(|argument| argument.is_truthy(false))),
        "or" => Value::from(arguments.iter().any(|argument| argument.is_truthy(false))),
        "len" => len(first),
        "lookup" => lookup(first, second)?,
        "semver" => semver(first, second)?,
        "indent" => indent(first, second)?,
        "json" | "yaml" => Value::from(yaml::json(first)),
        "toml" => toml(first)?,
        "shell" => shell(first)?,
        "b64" => Value::from(STANDARD.encode(scalar(first)?)),
        "join" => join(first, second)?,
        "trim" => Value::from(scalar(first)?.trim()),
        "lit" => Value::from(scalar(first)?),
        "concat" => joined(arguments.iter().copied(), "")?,
        _ => return Err("there is no such helper".to_owned()),
    };
    match value.as_str() {
        Some(text) if text.len() > MAX_VALUE => Err(too_large()),
        _ => Ok(value),
    }
}

/// Text of a scalar; null is the empty text.
fn scalar(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Ok(String::new()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        _ => Err("takes text, not a list or map".to_owned()),
    }
}

fn too_large() -> String {
    format!("gives more than {MAX_VALUE} bytes")
}

/// Compares two numbers, two texts or two conditions. A text is compared with a number as a number. Values of
/// other types are neither equal nor different in size.
fn compared(a: &Value, b: &Value, holds: fn(Ordering) -> bool) -> Value {
    let numbers = |a: &Number, b: &Number| match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    };
    let parsed = |text: &String| text.parse::<Number>().ok();
    let ordering = match (a, b) {
        (Value::Number(a), Value::Number(b)) => numbers(a, b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::String(b)) => parsed(b).and_then(|b| numbers(a, &b)),
        (Value::String(a), Value::Number(b)) => parsed(a).and_then(|a| numbers(&a, b)),
        _ => None,
    };
    Value::Bool(ordering.is_some_and(holds))
}

fn len(value: &Value) -> Value {
    Value::from(match value {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        Value::String(text) => text.len(),
        _ => 0,
    })
}

fn lookup(value: &Value, key: &Value) -> Outcome {
    let value = match value {
        Value::Array(items) => key
            .as_u64()
            .and_then(|index| items.get(usize::try_from(index).ok()?)),
        Value::Object(fields) => key.as_str().and_then(|key| fields.get(key)),
        _ => None,
    };
    value
        .cloned()
        .ok_or_else(|| "there is no such key or item".to_owned())
}

fn shell(value: &Value) -> Outcome {
    let quoted = late_bound::shell(&scalar(value)?);
    quoted
        .map(Value::String)
        .ok_or_else(|| "the text has a NUL character, which no shell can hold".to_owned())
}

/// A pre-release counts as its release: what 1.36.0 has, 1.36.0-rc.1 mostly has too.
fn semver(version: &Value, requirement: &Value) -> Outcome {
    let version = scalar(version)?;
    let version = Version::parse(version.strip_prefix('v').unwrap_or(&version))
        .map_err(|_| "the first argument isn't a version such as 1.34.2".to_owned())?;
    let requirement = VersionReq::parse(&scalar(requirement)?)
        .map_err(|_| "the second argument isn't a requirement such as \">=1.34, <1.36\"".to_owned())?;
    Ok(Value::Bool(requirement.matches(&Version::new(
        version.major,
        version.minor,
        version.patch,
    ))))
}

fn indent(width: &Value, text: &Value) -> Outcome {
    let width = width.as_u64().filter(|width| *width <= 100);
    let width = width.ok_or("the first argument is the number of spaces, at most 100")?;
    let margin: String = (0..width).map(|_| ' ').collect();
    let text = scalar(text)?;
    if text.lines().count().saturating_mul(margin.len()) > MAX_VALUE {
        return Err(too_large());
    }
    let indented = |line: &str| {
        if line.trim().is_empty() {
            line.to_owned()
        } else {
            format!("{margin}{line}")
        }
    };
    Ok(Value::String(
        text.split('\n').map(indented).collect::<Vec<_>>().join("\n"),
    ))
}

fn toml(value: &Value) -> Outcome {
    let value = ::toml::Value::try_from(value)
        .map_err(|_| "TOML has no form for this value, such as null: ask with {{#if}} first".to_owned())?;
    Ok(Value::String(value.to_string()))
}

fn join(items: &Value, separator: &Value) -> Outcome {
    let items = items.as_array().ok_or("takes a list and a separator")?;
    let separator = scalar(separator)?;
    joined(items.iter(), &separator)
}

/// Stops before the text is larger than [`MAX_VALUE`].
fn joined<'v>(items: impl Iterator<Item = &'v Value>, separator: &str) -> Outcome {
    let mut text = String::new();
    for (i, item) in items.enumerate() {
        let (separator, item) = (if i == 0 { "" } else { separator }, scalar(item)?);
        if text
            .len()
            .saturating_add(separator.len())
            .saturating_add(item.len())
            > MAX_VALUE
        {
            return Err(too_large());
        }
        text.push_str(separator);
        text.push_str(&item);
    }
    Ok(Value::String(text))
}
