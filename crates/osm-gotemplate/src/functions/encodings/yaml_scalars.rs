//! What a plain YAML scalar means to `gopkg.in/yaml.v3`, and in which styles a text can be written.

use std::sync::OnceLock;

use regex::Regex;

use super::timestamps;
use crate::value::{UintKind, Value};

/// What a plain scalar is.
pub(super) enum Resolved {
    Text,
    Value(Value),
}

fn is_match(text: &str, cell: &'static OnceLock<Option<Regex>>, pattern: &str) -> bool {
    let regex = cell.get_or_init(|| Regex::new(pattern).ok());
    regex.as_ref().is_some_and(|regex| regex.is_match(text))
}

/// `resolve` of yaml.v3, but a timestamp is a text.
pub(super) fn resolve(text: &str) -> Resolved {
    match text {
        "true" | "True" | "TRUE" => return Resolved::Value(true.into()),
        "false" | "False" | "FALSE" => return Resolved::Value(false.into()),
        "" | "~" | "null" | "Null" | "NULL" => return Resolved::Value(Value::Nil),
        ".nan" | ".NaN" | ".NAN" => return Resolved::Value(Value::float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Resolved::Value(Value::float(f64::INFINITY));
        }
        "-.inf" | "-.Inf" | "-.INF" => return Resolved::Value(Value::float(f64::NEG_INFINITY)),
        _ => {}
    }
    match text.bytes().next() {
        Some(b'.') => {
            static UNDERSCORES: OnceLock<Option<Regex>> = OnceLock::new();
            let is_number = is_match(
                text,
                &UNDERSCORES,
                r"^\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?$",
            );
            let number = is_number.then(|| float(&text.replace('_', ""))).flatten();
            number.map_or(Resolved::Text, Resolved::Value)
        }
        Some(b'+' | b'-' | b'0'..=b'9') => {
            let plain = text.replace('_', "");
            let number = integer(&plain)
                .or_else(|| float(&plain))
                .or_else(|| prefixed(&plain));
            number.map_or(Resolved::Text, Resolved::Value)
        }
        _ => Resolved::Text,
    }
}

/// Whether a text must be quoted, so that it is a text when it is read again.
pub(super) fn needs_quotes(text: &str) -> bool {
    static BASE_60: OnceLock<Option<Regex>> = OnceLock::new();
    let is_old_bool = matches!(
        text,
        "y" | "Y"
            | "yes"
            | "Yes"
            | "YES"
            | "on"
            | "On"
            | "ON"
            | "n"
            | "N"
            | "no"
            | "No"
            | "NO"
            | "off"
            | "Off"
            | "OFF"
    );
    timestamps::is_timestamp(text)
        || !matches!(resolve(text), Resolved::Text)
        || is_old_bool
        || (text.contains(':')
            && is_match(
                text,
                &BASE_60,
                r"^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?$",
            ))
}

/// Go's `strconv.ParseInt` and `ParseUint` with base 0.
fn integer(text: &str) -> Option<Value> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (digits, base) = if let Some(digits) = lower.strip_prefix("0x") {
        (digits, 16)
    } else if let Some(digits) = lower.strip_prefix("0b") {
        (digits, 2)
    } else if let Some(digits) = lower.strip_prefix("0o") {
        (digits, 8)
    } else if lower.len() > 1 && lower.starts_with('0') {
        (lower.get(1..).unwrap_or_default(), 8)
    } else {
        (lower.as_str(), 10)
    };
    in_base(sign, digits, base, text.starts_with('+'))
}

fn in_base(sign: &str, digits: &str, base: u32, has_plus: bool) -> Option<Value> {
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return None;
    }
    if let Ok(number) = i64::from_str_radix(&format!("{sign}{digits}"), base) {
        return Some(Value::int(number));
    }
    if !sign.is_empty() || has_plus {
        return None;
    }
    let number = u64::from_str_radix(digits, base).ok()?;
    Some(Value::Uint(number, UintKind::Uint64))
}

/// `0b` and `0o` with a second sign, which yaml.v3 accepts.
fn prefixed(text: &str) -> Option<Value> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (digits, base) = match rest.strip_prefix("0b") {
        Some(digits) => (digits, 2),
        None => (rest.strip_prefix("0o")?, 8),
    };
    match digits.strip_prefix(['+', '-']).filter(|_| sign.is_empty()) {
        Some(unsigned) => in_base(
            if digits.starts_with('-') { "-" } else { "" },
            unsigned,
            base,
            true,
        ),
        None => in_base(sign, digits, base, false),
    }
}

fn float(text: &str) -> Option<Value> {
    static FLOAT: OnceLock<Option<Regex>> = OnceLock::new();
    if !is_match(
        text,
        &FLOAT,
        r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$",
    ) {
        return None;
    }
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some(Value::float(number))
}

/// In which styles a text can be written in a block.
pub(super) struct Styles {
    pub(super) plain: bool,
    pub(super) single_quoted: bool,
    pub(super) block: bool,
    pub(super) has_line_breaks: bool,
}

pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Characters that are written as they are. Those outside the basic multilingual plane are not.
pub(super) fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}') && c != '\u{feff}'
}

/// `yaml_emitter_analyze_scalar` of yaml.v3.
pub(super) fn styles(text: &str) -> Styles {
    if text.is_empty() {
        return Styles {
            plain: true,
            single_quoted: true,
            block: false,
            has_line_breaks: false,
        };
    }
    let mut indicators = text.starts_with("---") || text.starts_with("...");
    let (mut has_line_breaks, mut special, mut tabs) = (false, false, false);
    let (mut break_then_space, mut space_then_break) = (false, false);
    let mut previous = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let blank_follows = chars.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
        indicators |= match (c, previous) {
            (
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                | '`',
                None,
            ) => true,
            ('?' | '-', None) | (':', _) => blank_follows,
            ('#', Some(before)) => is_break(before) || matches!(before, ' ' | '\t' | '\0'),
            _ => false,
        };
        if c == '\t' {
            tabs = true;
        } else if !is_printable(c) {
            special = true;
        }
        if c == ' ' {
            break_then_space |= previous.is_some_and(is_break);
        } else if is_break(c) {
            has_line_breaks = true;
            space_then_break |= previous == Some(' ');
        }
        previous = Some(c);
    }
    let starts_blank = text.starts_with(|c| c == ' ' || is_break(c));
    let ends_blank = text.ends_with(|c| c == ' ' || is_break(c));
    let single_quoted = !break_then_space && !space_then_break && !tabs && !special;
    Styles {
        plain: single_quoted && !starts_blank && !ends_blank && !has_line_breaks && !indicators,
        single_quoted,
        block: !text.ends_with(' ') && !space_then_break && !special,
        has_line_breaks,
    }
}
