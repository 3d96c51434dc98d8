//! Texts. Positions and lengths are in bytes, as in Go; a cut within a character is a problem, because values
//! are UTF-8.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::table::table;
use super::{Call, Problem};
use crate::format::{sprint, sprintf, strval};
use crate::value::Value;

table! {
    "trunc": (Int, String) -> "string", "Returns the first bytes of the text; for a negative number, the last ones.", r#"5 "hello world""# => "hello", trunc;
    "substr": (Int, Int, String) -> "string", "Returns the bytes of the text from a start up to, but without, an end.", r#"0 5 "hello world""# => "hello", substr;
    "trim": (String) -> "string", "Returns the text without white space at its start and end.", r#""  a b ""# => "a b", |call| part(call, 0, str::trim);
    "trimAll": (String, String) -> "string", "Returns the text without any of the characters at its start and end.", r#""$" "$5.00$""# => "5.00",
        trim_all;
    "trimPrefix": (String, String) -> "string", "Returns the text without the prefix.", r#""-" "-hello""# => "hello",
        |call| part(call, 1, |text| text.strip_prefix(call.text(0)).unwrap_or(text));
    "trimSuffix": (String, String) -> "string", "Returns the text without the suffix.", r#""-" "hello-""# => "hello",
        |call| part(call, 1, |text| text.strip_suffix(call.text(0)).unwrap_or(text));
    "upper": (String) -> "string", "Returns the text in upper case.", r#""hello""# => "HELLO", |call| map(call, char::to_uppercase);
    "lower": (String) -> "string", "Returns the text in lower case.", r#""HELLO""# => "hello", |call| map(call, char::to_lowercase);
    "repeat": (Int, String) -> "string", "Returns the text a number of times.", r#"3 "ab""# => "ababab", |call| repeat(call, call.int(0), call.text(1)).map(Value::string);
    "replace": (String, String, String) -> "string", "Returns the last text with each occurrence of the first replaced by the second.",
        r#"" " "-" "I am""# => "I-am", replace;
    "contains": (String, String) -> "bool", "Returns whether the second text contains the first.", r#""ell" "hello""# => "true",
        |call| test(call, |part, text| text.contains(part));
    "hasPrefix": (String, String) -> "bool", "Returns whether the second text starts with the first.", r#""he" "hello""# => "true",
        |call| test(call, |prefix, text| text.starts_with(prefix));
    "hasSuffix": (String, String) -> "bool", "Returns whether the second text ends with the first.", r#""lo" "hello""# => "true",
        |call| test(call, |suffix, text| text.ends_with(suffix));
    "quote": (; Any) -> "string", "Returns the texts of the values in double quotes, escaped as in Go, with spaces between.", r#""a\"b" 1"# => r#""a\"b" "1""#, quote;
    "squote": (; Any) -> "string", "Returns the texts of the values in single quotes, not escaped, with spaces between.", r#""a" 1"# => "'a' '1'", squote;
    "cat": (; Any) -> "string", "Returns the texts of the values with spaces between.", r#""a" 1 "b""# => "a 1 b", cat;
    "indent": (Int, String) -> "string", "Returns the text with spaces before each line.", r#"2 "a\nb""# => "  a\n  b",
        |call| indent(call, "").map(Value::string);
    "nindent": (Int, String) -> "string", "Returns a line break, and the text with spaces before each line.", r#"2 "a\nb""# => "\n  a\n  b",
        |call| indent(call, "\n").map(Value::string);
    "toString": (Any) -> "string", "Returns the text of the value.", "(list 1 2)" => "[1 2]", |call| Ok(strval(call.any(0), call.budget)?.into());
    "splitList": (String, String) -> "[]string", "Returns the parts of the second text between separators.", r#"":" "a:b""# => "[a b]",
        |call| parts(call, call.text(0), call.text(1)).map(Value::strings);
}

/// A part of the text at an index.
fn part<'a>(call: &Call<'a>, index: usize, select: impl Fn(&'a str) -> &'a str) -> Result<Value, Problem> {
    call.made(select(call.text(index)))
}

fn trim_all(call: &Call<'_>) -> Result<Value, Problem> {
    call.budget
        .copy(call.text(0).len().saturating_mul(size_of::<char>() * 2))?;
    let characters: BTreeSet<char> = call.text(0).chars().collect();
    part(call, 1, |text| {
        text.trim_matches(|character| characters.contains(&character))
    })
}

/// The first argument, after each character is replaced, unless more than one would replace it: Go knows only
/// the simple mappings.
fn map<I: Iterator<Item = char>>(call: &Call<'_>, replace: fn(char) -> I) -> Result<Value, Problem> {
    let replaced = call.text(0).chars().map(|character| {
        let mut mapping = replace(character);
        match (mapping.next(), mapping.next()) {
            (Some(mapped), None) => mapped,
            _ => character,
        }
    });
    call.made(replaced.collect::<String>())
}

fn test(call: &Call<'_>, test: fn(&str, &str) -> bool) -> Result<Value, Problem> {
    Ok(test(call.text(0), call.text(1)).into())
}

/// The text between two positions, or a problem if one of them is within a character.
fn cut<'a>(call: &Call<'_>, text: &'a str, start: usize, end: usize) -> Result<&'a str, Problem> {
    call.budget.copy(end.saturating_sub(start))?;
    if start == end {
        return Ok("");
    }
    let not_utf8 = || Problem::new("the text would be cut within a character, and would not be UTF-8");
    text.get(start..end).ok_or_else(not_utf8)
}

fn trunc(call: &Call<'_>) -> Result<Value, Problem> {
    let (count, text) = (call.int(0), call.text(1));
    let size = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    let (start, end) = match size {
        _ if count < 0 && size < text.len() => (text.len() - size, text.len()),
        _ if count >= 0 && size < text.len() => (0, size),
        _ => return Ok(call.any(1).clone()),
    };
    cut(call, text, start, end).map(Value::string)
}

fn substr(call: &Call<'_>) -> Result<Value, Problem> {
    let (start, end, text) = (call.int(0), call.int(1), call.text(2));
    let out_of_range =
        |range: String| Problem::new(format!("runtime error: slice bounds out of range {range}"));
    let len = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let (start, end) = match (start, end) {
        (..0, ..0) => return Err(out_of_range(format!("[:{end}]"))),
        (..0, _) if end > len => return Err(out_of_range(format!("[:{end}] with length {len}"))),
        (..0, _) => (0, end),
        (_, ..0) => (start, len),
        _ => (start, end.min(len)),
    };
    if start > end {
        return Err(out_of_range(format!("[{start}:{end}]")));
    }
    let (start, end) = (
        usize::try_from(start).unwrap_or(0),
        usize::try_from(end).unwrap_or(0),
    );
    cut(call, text, start, end).map(Value::string)
}

/// The text a number of times, after its size has been charged.
fn repeat(call: &Call<'_>, count: i64, text: &str) -> Result<String, Problem> {
    let count = usize::try_from(count).map_err(|_| Problem::new("strings: negative Repeat count"))?;
    call.budget.copy(count.saturating_mul(text.len()))?;
    Ok(if text.is_empty() {
        String::new()
    } else {
        text.repeat(count)
    })
}

/// The text with each occurrence of `old` replaced, after its size has been charged. An empty `old` is before
/// and after each character.
fn replaced(call: &Call<'_>, text: &str, old: &str, new: &str) -> Result<String, Problem> {
    let count = text.matches(old).count();
    call.budget
        .copy(text.len().saturating_add(count.saturating_mul(new.len())))?;
    Ok(text.replace(old, new))
}

fn replace(call: &Call<'_>) -> Result<Value, Problem> {
    replaced(call, call.text(2), call.text(0), call.text(1)).map(Value::string)
}

fn indent(call: &Call<'_>, before: &str) -> Result<String, Problem> {
    let padding = repeat(call, call.int(0), " ")?;
    let lines = replaced(call, call.text(1), "\n", &format!("\n{padding}"))?;
    call.budget.copy(lines.len().saturating_add(padding.len()))?;
    Ok(format!("{before}{padding}{lines}"))
}

/// Texts of the arguments that are not nil, with spaces between.
fn joined(call: &Call<'_>, text: impl Fn(&Value) -> Result<String, Problem>) -> Result<Value, Problem> {
    let values = call.arguments.iter().filter(|value| !matches!(value, Value::Nil));
    let texts = values.map(text).collect::<Result<Vec<_>, _>>()?;
    call.made(texts.join(" "))
}

fn quote(call: &Call<'_>) -> Result<Value, Problem> {
    joined(call, |value| {
        sprintf("%q", &[Value::string(strval(value, call.budget)?)], call.budget)
    })
}

fn squote(call: &Call<'_>) -> Result<Value, Problem> {
    joined(call, |value| {
        sprintf("'%v'", std::slice::from_ref(value), call.budget)
    })
}

fn cat(call: &Call<'_>) -> Result<Value, Problem> {
    joined(call, |value| sprint(std::slice::from_ref(value), call.budget))
}

/// Go's `strings.Split`: an empty separator splits after each character.
fn parts(call: &Call<'_>, separator: &str, text: &str) -> Result<Vec<Rc<str>>, Problem> {
    let count = text.matches(separator).count().saturating_add(1);
    call.budget.step(count as u64)?;
    call.budget.copy(
        text.len()
            .saturating_add(count.saturating_mul(size_of::<Value>() * 2)),
    )?;
    let parts: Vec<&str> = match separator {
        "" => text.split_inclusive(|_| true).collect(),
        separator => text.split(separator).collect(),
    };
    Ok(parts.into_iter().map(Rc::from).collect())
}
