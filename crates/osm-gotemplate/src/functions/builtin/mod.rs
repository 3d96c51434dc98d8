//! Go's own functions: logic, indexing, printing and escaping. The comparisons are in `comparisons`.
//!
//! Sprig has a function `slice`, too, which replaces Go's.

mod comparisons;

use super::table::table;
use super::{Call, Problem};
use crate::format;
use crate::value::{Type, Value};

pub(crate) use comparisons::FUNCTIONS as COMPARISONS;

table! {
    "and": (Reflected; Reflected) -> "any",
        "Returns the first argument that is empty, or the last one. The arguments after it are not evaluated.",
        "true 0 (index nil)" => "0", |_| not_a_function("and");
    "call": (Reflected; Reflected) -> "any",
        "Calls a function that the data holds. No data has functions here, so it always fails.",
        ("{{ if false }}{{ call .Function 1 }}{{ end }}") => "", |_| not_a_function("call");
    "html": (; Any) -> "string",
        "Prints the arguments and escapes the characters that have a meaning in HTML.",
        r#""<a>""# => "&lt;a&gt;", |call| escape(call, html);
    "index": (Reflected; Reflected) -> "any",
        "Returns the element of a list or map at a position or key. Further arguments look inside the element.",
        r#""abc" 1"# => "98", index;
    "js": (; Any) -> "string",
        "Prints the arguments and escapes the characters that have a meaning in JavaScript.",
        r#""it's""# => r"it\'s", |call| escape(call, js);
    "len": (Reflected) -> "int",
        "Returns the number of elements of a list or map, or of bytes of a text.",
        r#""abc""# => "3", len;
    "not": (Reflected) -> "bool",
        "Returns whether the argument is empty: false, 0, nil, or without elements.",
        "0" => "true", |call| Ok(Value::Bool(!call.any(0).is_true()));
    "or": (Reflected; Reflected) -> "any",
        "Returns the first argument that is not empty, or the last one. The arguments after it are not evaluated.",
        r#""" "a" (index nil)"# => "a", |_| not_a_function("or");
    "print": (; Any) -> "string",
        "Prints the arguments, with a space between two that are both not texts.",
        r#"1 2 "a" 3"# => "1 2a3", |call| Ok(Value::string(format::sprint(call.arguments, call.budget)?));
    "printf": (String; Any) -> "string",
        "Prints the arguments as the format before them describes it, e.g. `%s`, `%q` or `%03d`.",
        r#""%s-%03d" "a" 7"# => "a-007",
        |call| Ok(Value::string(format::sprintf(call.text(0), call.rest(1), call.budget)?));
    "println": (; Any) -> "string",
        "Prints the arguments with spaces between all, and a line break.",
        r#""a" 1"# => "a 1\n", |call| Ok(Value::string(format::sprintln(call.arguments, call.budget)?));
    "urlquery": (; Any) -> "string",
        "Prints the arguments and escapes them for the query of a URL.",
        r#""a b&c""# => "a+b%26c", |call| escape(call, url_query);
}

/// The executor evaluates `and`, `or` and `call` itself.
fn not_a_function(name: &str) -> Result<Value, Problem> {
    Err(Problem::new(format!("{name} is not called as a function")))
}

/// Follows pointers. None if one is nil.
fn indirect(value: &Value) -> Option<&Value> {
    let mut value = value;
    while let Value::Pointer(pointer) = value.underlying() {
        value = pointer.value().filter(|value| !matches!(value, Value::Nil))?;
    }
    Some(value)
}

fn type_name(value: &Value) -> String {
    value.type_of().unwrap_or(Type::Any).to_string()
}

fn len(call: &Call<'_>) -> Result<Value, Problem> {
    let Some(value) = indirect(call.any(0)) else {
        return Err(Problem::new("len of nil pointer"));
    };
    let length = match value.underlying() {
        Value::List(list) => list.items().len(),
        Value::Map(map) => map.len(),
        Value::String(text) => text.len(),
        Value::Nil => return Err(Problem::new("reflect: call of reflect.Value.Type on zero Value")),
        _ => return Err(Problem::new(format!("len of type {}", type_name(value)))),
    };
    Ok(Value::int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn index(call: &Call<'_>) -> Result<Value, Problem> {
    let mut item = call.any(0).clone();
    if matches!(item, Value::Nil) {
        return Err(Problem::new("index of untyped nil"));
    }
    for index in call.rest(1) {
        call.budget.step(1)?;
        let target = indirect(&item).filter(|target| !matches!(target, Value::Nil));
        let Some(target) = target else {
            return Err(Problem::new("index of nil pointer"));
        };
        let next = match target.underlying() {
            Value::List(list) => {
                let position = position(index, list.items().len())?;
                list.items()
                    .get(position)
                    .cloned()
                    .ok_or_else(|| out_of_range(position, list.items().len()))?
            }
            Value::String(text) => {
                let position = position(index, text.len())?;
                let byte = text.as_bytes().get(position).copied();
                // Go panics only with the message of its reflection here.
                let byte = byte.ok_or_else(|| Problem::new("reflect: string index out of range"))?;
                Value::Uint(byte.into(), crate::value::UintKind::Uint8)
            }
            Value::Map(map) => {
                let key = key(index)?;
                map.get(key).unwrap_or_else(|| map.element().zero())
            }
            _ => {
                return Err(Problem::new(format!(
                    "can't index item of type {}",
                    type_name(target)
                )));
            }
        };
        item = next;
    }
    Ok(item)
}

fn out_of_range(_: usize, _: usize) -> Problem {
    Problem::new("reflect: slice index out of range")
}

/// An index as a position. As in Go, the length itself is only refused later.
fn position(index: &Value, length: usize) -> Result<usize, Problem> {
    let position = match index.underlying() {
        Value::Int(position, _) => *position,
        Value::Uint(position, _) => position.cast_signed(),
        Value::Nil => return Err(Problem::new("cannot index slice/array with nil")),
        _ => {
            let name = type_name(index);
            return Err(Problem::new(format!("cannot index slice/array with type {name}")));
        }
    };
    let in_range = usize::try_from(position)
        .ok()
        .filter(|position| *position <= length);
    in_range.ok_or_else(|| Problem::new(format!("index out of range: {position}")))
}

fn key(index: &Value) -> Result<&str, Problem> {
    match index {
        Value::String(key) => Ok(key),
        Value::Nil => Err(Problem::new("value is nil; should be of type string")),
        _ => Err(Problem::new(format!(
            "value has type {}; should be string",
            type_name(index)
        ))),
    }
}

/// Prints the arguments as a template does, and escapes the text.
fn escape(call: &Call<'_>, escape: fn(&str) -> String) -> Result<Value, Problem> {
    let printed = match call.arguments {
        [Value::String(text)] => {
            call.budget.copy(text.len())?;
            text.to_string()
        }
        arguments => {
            let shown: Vec<Value> = arguments.iter().map(printable).collect();
            format::sprint(&shown, call.budget)?
        }
    };
    // An escaped character takes at most six times its length.
    call.budget.copy(printed.len().saturating_mul(6))?;
    Ok(Value::string(escape(&printed)))
}

/// What a template prints for a value.
fn printable(value: &Value) -> Value {
    let mut value = value;
    if matches!(value, Value::Nil) {
        return "<no value>".into();
    }
    while let Value::Pointer(pointer) = value.underlying() {
        match pointer.value() {
            Some(target) => value = target,
            None => break,
        }
    }
    value.clone()
}

fn html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => escaped.push('\u{fffd}'),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn js(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '\'' | '"' => {
                escaped.push('\\');
                escaped.push(c);
            }
            '<' | '>' | '&' | '=' | '\0'..='\x1f' => escaped.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if c.is_ascii() || format::quotes::is_print(c) => escaped.push(c),
            c => escaped.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    escaped
}

fn url_query(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => escaped.push('+'),
            b'-' | b'_' | b'.' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => escaped.push(byte.into()),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}
