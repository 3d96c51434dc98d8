//! Helpers that give a value: the same value for the same arguments, nothing else. No message repeats an argument.

use std::cmp::Ordering;

use ::handlebars::JsonTruthy;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::profile::MAX_CONTENT_BYTES;
use semver::{Version, VersionReq};
use serde_json::{Number, Value};

use crate::{late_bound, yaml};

/// Largest value that a helper gives, in bytes. Nothing larger can be stored. The budget sees a value only once it exists, and an
/// expression has as many as `lint` allows.
const MAX_VALUE: usize = MAX_CONTENT_BYTES;

type Outcome = Result<Value, String>;

/// A helper, by what it does with its arguments.
struct ValueHelper {
    name: &'static str,
    /// Fewest and most arguments.
    arguments: (usize, usize),
    run: fn(&[&Value]) -> Outcome,
}

const ANY: usize = usize::MAX;

static HELPERS: [ValueHelper; 22] = [
    ValueHelper {
        name: "eq",
        arguments: (2, 2),
        run: |args| Ok(Value::Bool(first(args)? == second(args)?)),
    },
    ValueHelper {
        name: "ne",
        arguments: (2, 2),
        run: |args| Ok(Value::Bool(first(args)? != second(args)?)),
    },
    ValueHelper {
        name: "gt",
        arguments: (2, 2),
        run: |args| compared(args, Ordering::is_gt),
    },
    ValueHelper {
        name: "gte",
        arguments: (2, 2),
        run: |args| compared(args, Ordering::is_ge),
    },
    ValueHelper {
        name: "lt",
        arguments: (2, 2),
        run: |args| compared(args, Ordering::is_lt),
    },
    ValueHelper {
        name: "lte",
        arguments: (2, 2),
        run: |args| compared(args, Ordering::is_le),
    },
    ValueHelper {
        name: "not",
        arguments: (1, 1),
        run: |args| Ok(Value::Bool(!first(args)?.is_truthy(false))),
    },
    ValueHelper {
        name: "len",
        arguments: (1, 1),
        run: len,
    },
    ValueHelper {
        name: "lookup",
        arguments: (2, 2),
        run: lookup,
    },
    ValueHelper {
        name: "and",
        arguments: (2, ANY),
        run: |args| Ok(Value::Bool(args.iter().all(|arg| arg.is_truthy(false)))),
    },
    ValueHelper {
        name: "or",
        arguments: (2, ANY),
        run: |args| Ok(Value::Bool(args.iter().any(|arg| arg.is_truthy(false)))),
    },
    ValueHelper {
        name: "semver",
        arguments: (2, 2),
        run: semver,
    },
    ValueHelper {
        name: "indent",
        arguments: (2, 2),
        run: indent,
    },
    ValueHelper {
        name: "json",
        arguments: (1, 1),
        run: |args| Ok(Value::String(yaml::json(first(args)?))),
    },
    ValueHelper {
        name: "toml",
        arguments: (1, 1),
        run: toml,
    },
    ValueHelper {
        name: "yaml",
        arguments: (1, 1),
        run: |args| Ok(Value::String(yaml::flow(first(args)?))),
    },
    ValueHelper {
        name: "shell",
        arguments: (1, 1),
        run: shell,
    },
    ValueHelper {
        name: "b64",
        arguments: (1, 1),
        run: |args| Ok(Value::String(STANDARD.encode(scalar(first(args)?)?))),
    },
    ValueHelper {
        name: "join",
        arguments: (2, 2),
        run: join,
    },
    ValueHelper {
        name: "trim",
        arguments: (1, 1),
        run: |args| Ok(Value::String(scalar(first(args)?)?.trim().to_owned())),
    },
    ValueHelper {
        name: "lit",
        arguments: (1, 1),
        run: |args| Ok(Value::String(scalar(first(args)?)?.to_string())),
    },
    ValueHelper {
        name: "concat",
        arguments: (1, ANY),
        run: concat,
    },
];

/// Calls the helper `name`.
pub(super) fn call(name: &str, arguments: &[&Value]) -> Outcome {
    let helper = HELPERS.iter().find(|helper| helper.name == name);
    let ValueHelper {
        arguments: (fewest, most),
        run,
        ..
    } = helper.ok_or("there is no such helper")?;
    if arguments.len() < *fewest || arguments.len() > *most {
        return Err(format!("takes {fewest} argument(s), not {}", arguments.len()));
    }
    // The result can be many times as large as the arguments only in `indent`, `join` and `concat`, which stop by themselves.
    let value = run(arguments)?;
    match value.as_str() {
        Some(text) if text.len() > MAX_VALUE => Err(too_large()),
        _ => Ok(value),
    }
}

fn first<'v>(args: &[&'v Value]) -> Result<&'v Value, String> {
    args.first().copied().ok_or_else(|| "takes a value".to_owned())
}

fn second<'v>(args: &[&'v Value]) -> Result<&'v Value, String> {
    args.get(1).copied().ok_or_else(|| "takes two values".to_owned())
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

/// Compares two numbers, two texts or two conditions. A text is compared with a number as a number. Values of other types are neither
/// equal nor different in size.
fn compared(args: &[&Value], holds: fn(Ordering) -> bool) -> Outcome {
    let numbers = |a: &Number, b: &Number| match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
    };
    let parsed = |text: &String| text.parse::<Number>().ok();
    let ordering = match (first(args)?, second(args)?) {
        (Value::Number(a), Value::Number(b)) => numbers(a, b),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
        (Value::Number(a), Value::String(b)) => parsed(b).and_then(|b| numbers(a, &b)),
        (Value::String(a), Value::Number(b)) => parsed(a).and_then(|a| numbers(&a, b)),
        _ => None,
    };
    Ok(Value::Bool(ordering.is_some_and(holds)))
}

fn len(args: &[&Value]) -> Outcome {
    Ok(Value::from(match first(args)? {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        Value::String(text) => text.len(),
        _ => 0,
    }))
}

fn lookup(args: &[&Value]) -> Outcome {
    let key = second(args)?;
    let value = match first(args)? {
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

fn shell(args: &[&Value]) -> Outcome {
    let quoted = late_bound::shell(&scalar(first(args)?)?);
    quoted
        .map(Value::String)
        .ok_or_else(|| "the text has a NUL character, which no shell can hold".to_owned())
}

/// A pre-release counts as its release: what 1.36.0 has, 1.36.0-rc.1 mostly has too.
fn semver(args: &[&Value]) -> Outcome {
    let version = scalar(first(args)?)?;
    let version = Version::parse(version.strip_prefix('v').unwrap_or(&version))
        .map_err(|_| "the first argument is no version such as 1.34.2".to_owned())?;
    let requirement = VersionReq::parse(&scalar(second(args)?)?)
        .map_err(|_| "the second argument is no requirement such as \">=1.34, <1.36\"".to_owned())?;
    Ok(Value::Bool(requirement.matches(&Version::new(
        version.major,
        version.minor,
        version.patch,
    ))))
}

fn indent(args: &[&Value]) -> Outcome {
    let width = first(args)?.as_u64().filter(|width| *width <= 100);
    let width = width.ok_or("the first argument is the number of spaces, at most 100")?;
    let margin: String = (0..width).map(|_| ' ').collect();
    let text = scalar(second(args)?)?;
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

fn toml(args: &[&Value]) -> Outcome {
    let value = ::toml::Value::try_from(first(args)?)
        .map_err(|_| "TOML has no form for this value, such as null: ask with {{#if}} first".to_owned())?;
    Ok(Value::String(value.to_string()))
}

fn join(args: &[&Value]) -> Outcome {
    let items = first(args)?.as_array().ok_or("takes a list and a separator")?;
    let separator = scalar(second(args)?)?;
    joined(items.iter(), &separator)
}

fn concat(args: &[&Value]) -> Outcome {
    joined(args.iter().copied(), "")
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
