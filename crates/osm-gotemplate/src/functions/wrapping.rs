//! Lines and abbreviations, as `github.com/Masterminds/goutils` makes them. All lengths are in bytes.

use super::{Call, Problem};
use crate::value::Value;

/// The text between two positions, or a problem if one of them is within a character.
pub(super) fn cut<'a>(call: &Call<'_>, text: &'a str, start: usize, end: usize) -> Result<&'a str, Problem> {
    call.budget.copy(end.saturating_sub(start))?;
    if start == end {
        return Ok("");
    }
    text.get(start..end).ok_or_else(not_utf8)
}

fn not_utf8() -> Problem {
    Problem::new("the text would be cut within a character, and would not be UTF-8")
}

/// Cuts a text to `width` bytes, with `...` where text is missing. A narrow width changes nothing.
pub(super) fn abbreviate(call: &Call<'_>, offset: i64, width: i64, text: &str) -> Result<Value, Problem> {
    let unchanged = || call.made(text);
    if width < 4 || offset > 0 && width < 7 {
        return unchanged();
    }
    let (Ok(width), offset) = (usize::try_from(width), usize::try_from(offset).unwrap_or(0)) else {
        return unchanged();
    };
    if text.len() <= width {
        return unchanged();
    }
    let room = width - 3;
    let offset = offset.min(text.len()).min(text.len() - room);
    if offset <= 4 {
        return call.made(format!("{}...", cut(call, text, 0, room)?));
    }
    if offset + room < text.len() {
        // The rest is longer than the room, so it is cut too.
        let rest = cut(call, text, offset, offset + room - 3)?;
        return call.made(format!("...{rest}..."));
    }
    call.made(format!("...{}", cut(call, text, text.len() - room, text.len())?))
}

/// Breaks a text into lines of at most `width` bytes at spaces. Longer words are broken or stay longer.
pub(super) fn wrap(
    call: &Call<'_>,
    width: i64,
    separator: &str,
    text: &str,
    breaks_words: bool,
) -> Result<Value, Problem> {
    let width = usize::try_from(width.max(1)).unwrap_or(usize::MAX);
    let separator = if separator.is_empty() { "\n" } else { separator };
    let mut lines = Vec::new();
    let mut left = text.as_bytes();
    let mut end_line = |line: &[u8]| -> Result<(), Problem> {
        call.budget.step(1)?;
        call.budget.copy(line.len().saturating_add(separator.len()))?;
        lines.extend_from_slice(line);
        lines.extend_from_slice(separator.as_bytes());
        Ok(())
    };
    while left.len() > width {
        if let Some(rest) = left.strip_prefix(b" ") {
            left = rest;
            continue;
        }
        let (line, rest) = left.split_at_checked(width).unwrap_or((left, b""));
        // A space just behind the line ends it too.
        let last_space = if rest.first() == Some(&b' ') {
            Some(line.len())
        } else {
            line.iter().rposition(|&byte| byte == b' ')
        };
        let next_space = || {
            rest.iter()
                .position(|&byte| byte == b' ')
                .map(|position| width + position)
        };
        let (end, skipped) = match last_space {
            Some(space) => (space, 1),
            None if breaks_words => (width, 0),
            None => match next_space() {
                Some(space) => (space, 1),
                None => break,
            },
        };
        end_line(left.get(..end).unwrap_or_default())?;
        left = left.get(end + skipped..).unwrap_or_default();
    }
    call.budget.copy(left.len())?;
    lines.extend_from_slice(left);
    let lines = String::from_utf8(lines).map_err(|_| not_utf8())?;
    Ok(Value::string(lines))
}
