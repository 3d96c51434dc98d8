//! Conversions between values, with the results of `github.com/spf13/cast` and of Go's `strconv`.

use crate::value::Value;

/// The value that pointers lead to. A nil pointer stays as it is.
fn indirect(value: &Value) -> &Value {
    let mut value = value;
    while let Value::Pointer(pointer) = value {
        match pointer.value() {
            Some(to) => value = to,
            None => break,
        }
    }
    value
}

/// `cast.ToInt64`: what is no number is 0.
pub(crate) fn to_int64(value: &Value) -> i64 {
    match indirect(value) {
        Value::Int(number, _) => *number,
        Value::Uint(number, _) => number.cast_signed(),
        Value::Float(number, _) => truncate(*number),
        Value::String(text) => parse_int(without_zero_decimals(text), 0).unwrap_or(0),
        Value::Bool(value) => i64::from(*value),
        _ => 0,
    }
}

/// `cast.ToFloat64`: what is no number is 0.
#[allow(clippy::cast_precision_loss)] // As in Go.
pub(crate) fn to_float64(value: &Value) -> f64 {
    match indirect(value) {
        Value::Int(number, _) => *number as f64,
        Value::Uint(number, _) => *number as f64,
        Value::Float(number, _) => *number,
        Value::String(text) => parse_float(text).unwrap_or(0.0),
        Value::Bool(value) => f64::from(u8::from(*value)),
        _ => 0.0,
    }
}

/// Go's conversion from `float64` to `int64` on amd64, where numbers out of range become the smallest one.
#[allow(clippy::cast_possible_truncation)]
fn truncate(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

/// `1.00` without `.00`.
fn without_zero_decimals(text: &str) -> &str {
    let whole = text.trim_end_matches('0');
    match whole.strip_suffix('.') {
        Some(number) if whole.len() < text.len() => number,
        _ => text,
    }
}

/// Why a text is no integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotInt {
    Syntax,
    /// Out of range; Go returns the nearest number beside the error.
    Range(i64),
}

/// `strconv.ParseInt(text, base, 64)`. Base 0 takes the base from a prefix and permits underscores.
pub(crate) fn parse_int(text: &str, base: u32) -> Result<i64, NotInt> {
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, text.get(1..)),
        Some(b'+') => (false, text.get(1..)),
        _ => (false, Some(text)),
    };
    let digits = digits.unwrap_or_default();
    let limit = if negative { i64::MIN } else { i64::MAX };
    let number = match parse_magnitude(digits, base)? {
        Some(magnitude) if negative => 0_i64.checked_sub_unsigned(magnitude),
        Some(magnitude) => i64::try_from(magnitude).ok(),
        None => None,
    };
    number.ok_or(NotInt::Range(limit))
}

/// The number without sign, none if it is too large.
fn parse_magnitude(text: &str, base: u32) -> Result<Option<u64>, NotInt> {
    let (radix, digits) = if base == 0 { radix_of(text) } else { (base, text) };
    if digits.is_empty() {
        return Err(NotInt::Syntax);
    }
    if base == 0 && text.contains('_') && !underscores_separate_digits(text) {
        return Err(NotInt::Syntax);
    }
    let mut number = Some(0_u64);
    for character in digits.chars() {
        if base == 0 && character == '_' {
            continue;
        }
        let digit = character.to_digit(radix).ok_or(NotInt::Syntax)?;
        number = number
            .and_then(|number| number.checked_mul(u64::from(radix)))
            .and_then(|number| number.checked_add(u64::from(digit)));
    }
    Ok(number)
}

/// The base that a prefix gives, and the text after the prefix.
fn radix_of(text: &str) -> (u32, &str) {
    let prefixes = [("0b", 2), ("0B", 2), ("0o", 8), ("0O", 8), ("0x", 16), ("0X", 16)];
    for (prefix, radix) in prefixes {
        if let Some(digits) = text.strip_prefix(prefix).filter(|digits| !digits.is_empty()) {
            return (radix, digits);
        }
    }
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => (8, digits),
        _ => (10, text),
    }
}

/// Whether each underscore is between digits, or between a prefix and a digit.
fn underscores_separate_digits(number: &str) -> bool {
    #[derive(PartialEq)]
    enum Saw {
        Start,
        Digit,
        Underscore,
        Other,
    }
    let number = number.strip_prefix(['+', '-']).unwrap_or(number);
    let lower = number.as_bytes().get(..2).map(<[u8]>::to_ascii_lowercase);
    let is_hexadecimal = lower.as_deref() == Some(b"0x");
    let has_prefix = is_hexadecimal || lower.is_some_and(|start| matches!(&*start, b"0b" | b"0o"));
    let mut saw = if has_prefix { Saw::Digit } else { Saw::Start };
    for byte in number.bytes().skip(if has_prefix { 2 } else { 0 }) {
        if byte.is_ascii_digit() || is_hexadecimal && byte.is_ascii_hexdigit() {
            saw = Saw::Digit;
        } else if byte == b'_' {
            if saw != Saw::Digit {
                return false;
            }
            saw = Saw::Underscore;
        } else {
            if saw == Saw::Underscore {
                return false;
            }
            saw = Saw::Other;
        }
    }
    saw != Saw::Underscore
}

/// `strconv.ParseFloat(text, 64)`, none where it returns an error.
pub(crate) fn parse_float(text: &str) -> Option<f64> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, text.get(1..)?),
        b'+' => (false, text.get(1..)?),
        _ => (false, text),
    };
    let sign = if negative { -1.0 } else { 1.0 };
    if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
        return Some(sign * f64::INFINITY);
    }
    if text.eq_ignore_ascii_case("nan") {
        return Some(f64::NAN);
    }
    if unsigned.contains('_') && !underscores_separate_digits(unsigned) {
        return None;
    }
    let unsigned = unsigned.replace('_', "");
    let hexadecimal = unsigned
        .strip_prefix("0x")
        .or_else(|| unsigned.strip_prefix("0X"));
    let number = match hexadecimal {
        Some(digits) => parse_hexadecimal_float(digits)?,
        None => {
            let is_decimal = unsigned.starts_with(|start: char| start.is_ascii_digit() || start == '.');
            unsigned.parse::<f64>().ok().filter(|_| is_decimal)?
        }
    };
    number.is_finite().then_some(sign * number)
}

/// `1.8p3`: hexadecimal digits, and an exponent of two that must be given.
fn parse_hexadecimal_float(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P'])?;
    let (sign, exponent) = match exponent.as_bytes().first()? {
        b'-' => (-1, exponent.get(1..)?),
        b'+' => (1, exponent.get(1..)?),
        _ => (1, exponent),
    };
    if exponent.is_empty() || !exponent.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut exponent = sign * exponent.parse::<i64>().unwrap_or(100_000).min(100_000);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut mantissa = 0_u64;
    let mut is_inexact = false;
    for (is_fraction, digit) in whole
        .chars()
        .map(|digit| (false, digit))
        .chain(fraction.chars().map(|digit| (true, digit)))
    {
        let digit = digit.to_digit(16)?;
        if mantissa >> 59 == 0 {
            mantissa = mantissa << 4 | u64::from(digit);
            exponent -= if is_fraction { 4 } else { 0 };
        } else {
            is_inexact |= digit != 0;
            exponent += if is_fraction { 0 } else { 4 };
        }
    }
    // A last bit that is set keeps what was cut off from being rounded as half.
    Some(scale(mantissa | u64::from(is_inexact), exponent))
}

/// `mantissa` × 2^`exponent`, rounded once to even.
#[allow(clippy::cast_precision_loss)]
fn scale(mantissa: u64, exponent: i64) -> f64 {
    if mantissa == 0 {
        return 0.0;
    }
    let bits = i64::from(64 - mantissa.leading_zeros());
    let top = exponent + bits; // The number is below 2^top.
    if top > 1024 {
        return f64::INFINITY;
    }
    // Bits of the result: 53, and fewer for a subnormal number.
    let precision = (top + 1074).min(53);
    let drop = bits - precision;
    if precision < 0 {
        return 0.0;
    }
    let (kept, dropped) = if drop > 0 {
        let kept = mantissa
            .checked_shr(u32::try_from(drop).unwrap_or(64))
            .unwrap_or(0);
        let half = 1_u128 << (drop - 1);
        let rest = u128::from(mantissa) & ((1_u128 << drop) - 1);
        let up = rest > half || rest == half && kept & 1 == 1;
        (kept + u64::from(up), drop)
    } else {
        (mantissa, 0)
    };
    let (mut number, mut exponent) = (kept as f64, exponent + dropped);
    while exponent != 0 {
        // Each step is exact: `kept` has no more bits than the result.
        let step = exponent.clamp(-1000, 1000);
        number *= f64::powi(2.0, i32::try_from(step).unwrap_or(0));
        exponent -= step;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_parsed_as_go_parses_them() {
        let ints = [
            ("0x1F", 31),
            ("017", 15),
            ("1_000", 1000),
            ("0b101", 5),
            ("-0o17", -15),
            ("12.00", 12),
            ("12.50", 0),
            ("08", 0),
            ("1__0", 0),
            ("_1", 0),
            ("9223372036854775808", 0),
            ("-9223372036854775808", i64::MIN),
            ("", 0),
            ("0x", 0),
            ("+5", 5),
        ];
        for (text, expected) in ints {
            assert_eq!(to_int64(&text.into()), expected, "{text}");
        }
        let floats = [
            ("1e3", Some(1000.0)),
            ("0x1.8p1", Some(3.0)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1p-1075", Some(0.0)),
            ("0x1.8p-1074", Some(1e-323)),
            ("1_0.5", Some(10.5)),
            ("1e999", None),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            (".", None),
            ("0x1", None),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("1e", None),
            ("1__0", None),
            ("--1", None),
            ("+-1", None),
        ];
        for (text, expected) in floats {
            assert_eq!(parse_float(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_out_of_range_become_the_smallest_integer() {
        assert_eq!(to_int64(&Value::float(1e300)), i64::MIN);
        assert_eq!(to_int64(&Value::float(f64::NAN)), i64::MIN);
        assert_eq!(to_int64(&Value::float(-1.9)), -1);
    }
}
