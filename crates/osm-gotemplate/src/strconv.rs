//! Numbers in texts, as Go's `strconv` reads them. Floating-point numbers are decimal here.

/// `strconv.ParseUint` with base 0: a prefix gives the base, and underscores may separate digits.
pub(crate) fn parse_uint(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, radix) = match lower.as_bytes() {
        [b'0', b'b', _, ..] => (lower.get(2..)?, 2),
        [b'0', b'o', _, ..] => (lower.get(2..)?, 8),
        [b'0', b'x', _, ..] => (lower.get(2..)?, 16),
        [] => return None,
        [b'0'] => return Some(0),
        [b'0', ..] => (lower.get(1..)?, 8),
        _ => (lower.as_str(), 10),
    };
    let plain: String = digits.chars().filter(|c| *c != '_').collect();
    if digits.starts_with(['+', '-']) || (plain.len() < digits.len() && !underscores_fit(text)) {
        return None;
    }
    u64::from_str_radix(&plain, radix).ok()
}

/// `strconv.ParseInt` with base 0.
pub(crate) fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = parse_uint(digits)?;
    if negative {
        0i64.checked_sub_unsigned(value)
    } else {
        i64::try_from(value).ok()
    }
}

/// `strconv.ParseFloat` for decimal numbers.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    if text.contains('_') && !underscores_fit(text) {
        return None;
    }
    let plain = text.replace('_', "");
    let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    plain.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Whether each underscore is between two digits, or between the prefix of a base and a digit.
fn underscores_fit(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let number = lower.strip_prefix(['+', '-']).unwrap_or(&lower);
    let digits = ["0x", "0b", "0o"]
        .iter()
        .find_map(|prefix| number.strip_prefix(prefix));
    let is_hexadecimal = number.starts_with("0x");
    let is_digit = |c: u8| c.is_ascii_digit() || (is_hexadecimal && c.is_ascii_hexdigit());
    let mut before = digits.is_some();
    let mut bytes = digits.unwrap_or(number).bytes().peekable();
    while let Some(byte) = bytes.next() {
        if byte == b'_' && !(before && bytes.peek().is_some_and(|next| is_digit(*next))) {
            return false;
        }
        before = is_digit(byte);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_go_reads_them() {
        for (text, number) in [
            ("0x1F", Some(31)),
            ("017", Some(15)),
            ("0_7", Some(7)),
            ("1_000", Some(1000)),
            ("0x_1_f", Some(31)),
            ("0b101", Some(5)),
            ("-0o17", Some(-15)),
            ("+5", Some(5)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("08", None),
            ("1__0", None),
            ("_1", None),
            ("1_", None),
            ("0b_", None),
            ("0_", None),
            ("", None),
            ("0x", None),
            ("--1", None),
        ] {
            assert_eq!(parse_int(text), number, "{text}");
        }
        for (text, number) in [
            ("1e3", Some(1000.0)),
            ("-.5", Some(-0.5)),
            ("5.", Some(5.0)),
            ("1e999", None),
            (".", None),
            ("1e", None),
            ("inf", None),
            ("+-1", None),
            ("1_0.5e1_0", Some(10.5e10)),
            ("1_.5", None),
            ("0x1p-2", None),
        ] {
            assert_eq!(parse_float(text), number, "{text}");
        }
    }
}
