//! Formats of `printf`: the verbs that are supported, with a width.

/// Largest width.
const LARGEST: usize = 1_000_000;

/// How a directive such as `%-8s` prints its argument.
#[derive(Clone, Copy, Default)]
pub(super) struct Flags {
    pub(super) width: usize,
    /// Fills up on the right.
    pub(super) minus: bool,
    /// Fills up with zeros.
    pub(super) zero: bool,
}

/// The start of a format.
pub(super) struct Piece<'f> {
    pub(super) text: &'f str,
    /// What comes after the text.
    pub(super) directive: Option<(Flags, char)>,
    pub(super) rest: &'f str,
}

/// Refuses a format with directives that are not supported.
pub(crate) fn check(format: &str) -> Result<(), String> {
    let mut rest = format;
    while !rest.is_empty() {
        rest = split(rest)?.rest;
    }
    Ok(())
}

/// Splits a format after its first directive.
pub(super) fn split(format: &str) -> Result<Piece<'_>, String> {
    let Some((text, directive)) = format.split_once('%') else {
        return Ok(Piece {
            text: format,
            directive: None,
            rest: "",
        });
    };
    if let Some(rest) = directive.strip_prefix('%') {
        let text = format.get(..text.len().saturating_add(1)).unwrap_or(text);
        return Ok(Piece {
            text,
            directive: None,
            rest,
        });
    }
    let after_flags = directive.trim_start_matches(['-', '0']);
    let after_width = after_flags.trim_start_matches(|c: char| c.is_ascii_digit());
    let before = |text: &str, rest: &str| text.len().saturating_sub(rest.len());
    let flags = directive
        .get(..before(directive, after_flags))
        .unwrap_or_default();
    let width = after_flags
        .get(..before(after_flags, after_width))
        .unwrap_or_default();
    let width = match width {
        "" => Some(0),
        digits => digits.parse().ok().filter(|width| *width <= LARGEST),
    };
    let mut rest = after_width.chars();
    match (width, rest.next()) {
        (Some(width), Some(verb @ ('s' | 'q' | 'v' | 'd' | 'x' | 't'))) => {
            let flags = Flags {
                width,
                minus: flags.contains('-'),
                zero: flags.contains('0'),
            };
            Ok(Piece {
                text,
                directive: Some((flags, verb)),
                rest: rest.as_str(),
            })
        }
        _ => Err(unsupported(directive)),
    }
}

fn unsupported(directive: &str) -> String {
    let end = directive.find(|c: char| c.is_ascii_alphabetic());
    let shown: String = directive
        .chars()
        .take(end.map_or(1, |end| end.saturating_add(1)).min(10))
        .collect();
    format!(
        "%{shown} is not supported; use %s, %q, %v, %d, %x or %t, which can have a width, such as %-8s or %03d"
    )
}
