//! Quoted texts, as Go's `strconv` writes them.

use std::fmt::Write;

/// Go's `strconv.Quote`.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len().saturating_add(2));
    out.push('"');
    for c in text.chars() {
        escape(&mut out, c);
    }
    out.push('"');
    out
}

fn escape(out: &mut String, c: char) {
    // Writing to a String never fails.
    match c {
        '\\' | '"' => out.extend(['\\', c]),
        _ if is_print(c) => out.push(c),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        _ if c.is_ascii() => _ = write!(out, "\\x{:02x}", u32::from(c)),
        _ if u32::from(c) < 0x1_0000 => _ = write!(out, "\\u{:04x}", u32::from(c)),
        _ => _ = write!(out, "\\U{:08x}", u32::from(c)),
    }
}

/// Go's `strconv.IsPrint`: letters, marks, numbers, punctuation, symbols and the space. It also knows the
/// characters that Unicode added after version 15, which is that of Go 1.26.
pub(crate) fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // The standard library escapes the same categories. A letter before the character keeps combining marks
    // as they are.
    let mut buffer = [b'a', 0, 0, 0, 0];
    let Some((_, rest)) = buffer.split_first_mut() else {
        return false;
    };
    let length = c.encode_utf8(rest).len().saturating_add(1);
    let text = buffer
        .get(..length)
        .and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.is_some_and(|text| text.escape_debug().nth(1) == Some(c))
}
