//! The one place where YAML is written and read.
//!
//! Readers differ: cloud-init's is YAML 1.1, where `yes`, `12:30` and `1_000` are not strings. So every
//! string is quoted, except multi-line text that a literal block carries unharmed, because operators read
//! these documents.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::Value;
use serde_saphyr::LitStr;

/// `value` as a YAML document. Strings that hold a `<MACHINE_NAME>`, blank lines made of spaces, or anything
/// else that a later text replacement could change stay on one quoted line.
///
/// # Errors
/// Only for values that no YAML can hold, such as numbers that are not finite.
pub fn write(value: &Value) -> Result<String, String> {
    write_sparing(value, &[])
}

/// As [`write()`], for a reader that replaces the texts `spared` before it parses: each starts with `$`,
/// which is written as an escape where one of them would be. Keys are written as they are.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_sparing(value: &Value, spared: &[&str]) -> Result<String, String> {
    let options = serde_saphyr::ser_options! { quote_all: false, prefer_block_scalars: false };
    let written = serde_saphyr::to_string_with_options(&Node(value, spared), options)
        .map_err(|error| error.to_string())?;
    // They occur in double quotes only.
    let written = spared.iter().fold(written, |written, text| {
        written.replace(text, &text.replace('$', "\\x24"))
    });
    // Blank lines of literal blocks come indented. No other line is blank, and no block has one that must
    // stay so.
    let lines = written.lines().map(|line| {
        if line.trim_matches(' ').is_empty() {
            ""
        } else {
            line
        }
    });
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}

/// Every document of a stream, empty ones left out. Reads as kubectl does: YAML 1.1 booleans and octal
/// numbers, duplicate keys refused.
///
/// # Errors
/// What is wrong, with line and column, on one line.
pub fn read(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true, strict_booleans: false };
    let documents: Vec<Option<Value>> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| error.to_string().lines().next().unwrap_or_default().to_owned())?;
    Ok(documents
        .into_iter()
        .flatten()
        .filter(|document| !document.is_null())
        .collect())
}

/// `value` on one line, as JSON that YAML readers take, too: JSON leaves some characters as they are that
/// YAML does not allow, or takes for the end of a line.
pub fn json(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().all(is_plain) {
        return text;
    }
    // Outside of strings there are none.
    let escaped = |c: char| match u32::from(c) {
        code if !is_plain(c) && code <= 0xffff => format!("\\u{code:04x}"),
        _ => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Characters that every YAML reader takes as themselves, anywhere in a line.
fn is_plain(c: char) -> bool {
    let code = u32::from(c);
    !(c.is_control() || matches!(code, 0x2028 | 0x2029 | 0xfeff) || code & 0xfffe == 0xfffe)
}

/// Whether a literal block carries `text` unharmed through every reader and through machine-controller, which
/// empties lines made of blanks.
fn fits_literal(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n')
        && !body.ends_with('\n')
        && !body.starts_with([' ', '\t', '\n'])
        && text.chars().all(|c| c == '\n' || c == '\t' || is_plain(c))
        && !body
            .lines()
            .any(|line| !line.is_empty() && line.trim_matches([' ', '\t']).is_empty())
}

/// Serialises a JSON tree with the styles described above.
struct Node<'a>(&'a Value, &'a [&'a str]);

impl Serialize for Node<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(value, spared) = self;
        match value {
            Value::String(text)
                if fits_literal(text) && !spared.iter().any(|spared| text.contains(spared)) =>
            {
                LitStr(text).serialize(serializer)
            }
            Value::String(text) => serde_saphyr::DoubleQuoted(text.as_str()).serialize(serializer),
            Value::Array(items) => {
                let mut seq = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    seq.serialize_element(&Node(item, spared))?;
                }
                seq.end()
            }
            Value::Object(map) => {
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in map {
                    out.serialize_entry(key, &Node(value, spared))?;
                }
                out.end()
            }
            scalar => scalar.serialize(serializer),
        }
    }
}
