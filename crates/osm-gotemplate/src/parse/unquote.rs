//! The values of string and character constants, by the rules of Go's `strconv.Unquote`.

/// Go's error for a constant that it can't read.
pub(super) const INVALID: &str = "invalid syntax";

/// The text of a quoted or raw string, given with its quotes.
pub(super) fn unquote(quoted: &str) -> Result<String, String> {
    let mut characters = quoted.chars();
    let quote = characters.next();
    let inner = characters
        .next_back()
        .filter(|last| Some(*last) == quote)
        .map(|_| characters.as_str())
        .ok_or(INVALID)?;
    if quote == Some('`') {
        return Ok(inner.replace('\r', ""));
    }
    if !inner.contains(['\\', '\n']) {
        return Ok(inner.to_owned());
    }
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while !rest.is_empty() {
        let (unquoted, after) = unquote_char(rest, '"')?;
        match unquoted {
            Unquoted::Char(c) => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            Unquoted::Byte(byte) => bytes.push(byte),
        }
        rest = after;
    }
    String::from_utf8(bytes).map_err(|_| format!("{quoted} is not UTF-8"))
}

#[derive(Clone, Copy)]
pub(super) enum Unquoted {
    Char(char),
    /// From an octal or hexadecimal escape: a byte of a string.
    Byte(u8),
}

/// The first character of a text between quotes, and the text after it. See Go's `strconv.UnquoteChar`.
pub(super) fn unquote_char(text: &str, quote: char) -> Result<(Unquoted, &str), &'static str> {
    let mut rest = text.chars();
    let first = rest.next().ok_or(INVALID)?;
    if first == quote || first == '\n' {
        return Err(INVALID);
    }
    if first != '\\' {
        return Ok((Unquoted::Char(first), rest.as_str()));
    }
    let escape = rest.next().ok_or(INVALID)?;
    let rest = rest.as_str();
    let plain = |c| Ok((Unquoted::Char(c), rest));
    match escape {
        'a' => plain('\x07'),
        'b' => plain('\x08'),
        'f' => plain('\x0c'),
        'n' => plain('\n'),
        'r' => plain('\r'),
        't' => plain('\t'),
        'v' => plain('\x0b'),
        '\\' => plain('\\'),
        '\'' | '"' if escape == quote => plain(escape),
        'x' => {
            let (code, rest) = digits(rest, 2, 16)?;
            Ok((Unquoted::Byte(u8::try_from(code).map_err(|_| INVALID)?), rest))
        }
        'u' | 'U' => {
            let (code, rest) = digits(rest, if escape == 'u' { 4 } else { 8 }, 16)?;
            Ok((Unquoted::Char(char::from_u32(code).ok_or(INVALID)?), rest))
        }
        '0'..='7' => {
            let (code, rest) = digits(text.get(1..).unwrap_or_default(), 3, 8)?;
            Ok((Unquoted::Byte(u8::try_from(code).map_err(|_| INVALID)?), rest))
        }
        _ => Err(INVALID),
    }
}

fn digits(text: &str, count: usize, radix: u32) -> Result<(u32, &str), &'static str> {
    let (digits, rest) = text.split_at_checked(count).ok_or(INVALID)?;
    if !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(INVALID);
    }
    Ok((u32::from_str_radix(digits, radix).map_err(|_| INVALID)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_unquoted_as_go_does() {
        for (quoted, text) in [
            (r#""""#, Ok("")),
            (r#""a\tb\"\\""#, Ok("a\tb\"\\")),
            (r#""\xc3\xa9\u00e9\U0001F600\101""#, Ok("éé😀A")),
            ("`a\\n\r\nb`", Ok("a\\n\nb")),
            (r#""\'""#, Err(INVALID)),
            (r#""\ud800""#, Err(INVALID)),
            (r#""\400""#, Err(INVALID)),
            (r#""\xg0""#, Err(INVALID)),
            (r#""\xff""#, Err(r#""\xff" is not UTF-8"#)),
        ] {
            assert_eq!(
                unquote(quoted).as_deref(),
                text.map_err(str::to_owned).as_ref().copied(),
                "{quoted}"
            );
        }
    }
}
