//! Quoted texts and characters, as Go's `strconv` writes them.

use std::fmt::Write;

/// Go's `strconv.Quote`, or `QuoteToASCII`.
pub(crate) fn quote(text: &str, ascii_only: bool) -> String {
    let mut out = String::with_capacity(text.len().saturating_add(2));
    out.push('"');
    for c in text.chars() {
        escape(&mut out, c, '"', ascii_only);
    }
    out.push('"');
    out
}

/// Go's `strconv.QuoteRune`, or `QuoteRuneToASCII`.
pub(super) fn quote_char(c: char, ascii_only: bool) -> String {
    let mut out = String::from('\'');
    escape(&mut out, c, '\'', ascii_only);
    out.push('\'');
    out
}

/// Whether the text can stand between backquotes unchanged: Go's `strconv.CanBackquote`.
pub(super) fn can_backquote(text: &str) -> bool {
    text.chars()
        .all(|c| c == '\t' || (c >= ' ' && !matches!(c, '`' | '\u{7f}' | '\u{feff}')))
}

fn escape(out: &mut String, c: char, delimiter: char, ascii_only: bool) {
    // Writing to a String never fails.
    match c {
        '\\' => out.push_str("\\\\"),
        _ if c == delimiter => {
            out.push('\\');
            out.push(c);
        }
        _ if is_print(c) && (c.is_ascii() || !ascii_only) => out.push(c),
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

/// Go's `strconv.IsPrint`: letters, marks, numbers, punctuation, symbols and the space. It also knows the characters that Unicode
/// added after version 15, which is that of Go 1.26.
pub(crate) fn is_print(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // The standard library escapes the same categories. A letter before the character keeps combining marks as they are.
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
