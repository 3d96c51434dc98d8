//! Escapes, named classes and repetitions of regular expressions, with the errors of Go's `regexp/syntax`.

/// Go's error for a part of an expression.
pub(super) fn error(problem: &str, expression: &str) -> String {
    format!("error parsing regexp: {problem}: `{expression}`")
}

/// The start of `text` without its end `rest`.
pub(super) fn before<'a>(text: &'a str, rest: &str) -> &'a str {
    text.get(..text.len().saturating_sub(rest.len()))
        .unwrap_or_default()
}

pub(super) fn after(text: &str, bytes: usize) -> &str {
    text.get(bytes..).unwrap_or_default()
}

/// Parses `[:alpha:]` and its like.
pub(super) fn parse_posix_class(text: &str) -> Result<Option<(&str, &str)>, String> {
    const NAMES: [&str; 14] = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
        "upper", "word", "xdigit",
    ];
    let Some((name, rest)) = text.strip_prefix("[:").and_then(|name| name.split_once(":]")) else {
        return Ok(None);
    };
    let written = before(text, rest);
    if !NAMES.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Err(error("invalid character class range", written));
    }
    Ok(Some((written, rest)))
}

pub(super) fn parse_class_character<'t>(text: &'t str, whole: &str) -> Result<(char, &'t str), String> {
    match text.chars().next() {
        None => Err(error("missing closing ]", whole)),
        Some('\\') => parse_escape(text),
        Some(character) => Ok((character, after(text, character.len_utf8()))),
    }
}

/// Parses an escaped character.
pub(super) fn parse_escape(text: &str) -> Result<(char, &str), String> {
    let rest = after(text, 1);
    let Some(character) = rest.chars().next() else {
        return Err(error("trailing backslash at end of expression", ""));
    };
    let mut rest = after(rest, character.len_utf8());
    let digits = |text: &str, radix: u32, max: usize| {
        text.chars()
            .take(max)
            .take_while(|digit| digit.is_digit(radix))
            .count()
    };
    let number = |text: &str, radix| u32::from_str_radix(text, radix).ok().and_then(char::from_u32);
    let simple = match character {
        'a' => Some('\x07'),
        'f' => Some('\x0C'),
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        'v' => Some('\x0B'),
        '1'..='7' if digits(rest, 8, 1) == 0 => None,
        '0'..='7' => {
            let octal = after(text, 1);
            let (octal, after_octal) = octal
                .split_at_checked(1 + digits(rest, 8, 2))
                .unwrap_or((octal, ""));
            rest = after_octal;
            number(octal, 8)
        }
        'x' => {
            let hexadecimal = match rest.strip_prefix('{') {
                Some(braced) => braced.split_once('}').filter(|(hexadecimal, _)| {
                    !hexadecimal.starts_with('+') && number(hexadecimal, 16).is_some()
                }),
                None => rest.split_at_checked(2).filter(|_| digits(rest, 16, 2) == 2),
            };
            rest = match (hexadecimal, rest.strip_prefix('{')) {
                (Some((_, after_number)), _) => after_number,
                // Go's error shows the text up to the first character that does not fit.
                (None, Some(braced)) => {
                    let (mut number, mut shown) = (0, 0);
                    for digit in braced.chars() {
                        shown += digit.len_utf8();
                        number = digit.to_digit(16).map_or(u32::MAX, |digit| number * 16 + digit);
                        if number > u32::from(char::MAX) {
                            break;
                        }
                    }
                    after(braced, shown)
                }
                (None, None) => {
                    let shown: usize = rest.chars().take(2).map(char::len_utf8).sum();
                    after(rest, shown)
                }
            };
            hexadecimal.and_then(|(hexadecimal, _)| number(hexadecimal, 16))
        }
        _ if character.is_ascii() && !character.is_ascii_alphanumeric() => Some(character),
        _ => None,
    };
    let escaped = simple.ok_or_else(|| error("invalid escape sequence", before(text, rest)))?;
    Ok((escaped, rest))
}

/// Parses `{2}`, `{2,}` or `{2,3}`. Numbers that are too large become the largest.
pub(super) fn parse_repeat(text: &str) -> Option<(u64, Option<u64>, &str)> {
    let (bounds, rest) = text.strip_prefix('{')?.split_once('}')?;
    let number = |digits: &str| {
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let has_leading_zero = digits.len() > 1 && digits.starts_with('0');
        (is_number && !has_leading_zero).then(|| digits.parse().unwrap_or(u64::MAX))
    };
    let (min, max) = match bounds.split_once(',') {
        None => (number(bounds)?, Some(number(bounds)?)),
        Some((min, "")) => (number(min)?, None),
        Some((min, max)) => (number(min)?, Some(number(max)?)),
    };
    Some((min, max, rest))
}
