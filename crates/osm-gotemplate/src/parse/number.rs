//! The values of number constants: every type that a constant fits, as Go's ideal constants do. The rules are those of
//! `text/template/parse` and `strconv`.

use super::unquote::{self, Unquoted};
use crate::format;

/// A number constant. What it can't be is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Number {
    pub(crate) int: Option<i64>,
    pub(crate) uint: Option<u64>,
    pub(crate) float: Option<f64>,
    pub(crate) complex: Option<(f64, f64)>,
}

/// The value of a character constant, given with its quotes.
pub(super) fn of_char(text: &str) -> Result<Number, String> {
    let inner = text.get(1..).unwrap_or_default();
    let (unquoted, tail) = unquote::unquote_char(inner, '\'')?;
    if tail != "'" {
        return Err(format!("malformed character constant: {text}"));
    }
    let code = match unquoted {
        Unquoted::Char(c) => u32::from(c),
        Unquoted::Byte(byte) => u32::from(byte),
    };
    Ok(Number {
        int: Some(code.into()),
        uint: Some(code.into()),
        float: Some(code.into()),
        complex: None,
    })
}

/// The value of a complex constant such as `1+2i`, which Go reads with `fmt.Sscan`.
pub(super) fn of_complex(text: &str) -> Result<Number, String> {
    let (real, rest) = float_token(text);
    let imaginary = rest
        .strip_suffix('i')
        .filter(|rest| float_token(rest).1.is_empty());
    // After a sign alone, Go takes the `i` for the start of `inf`.
    let imaginary = imaginary.filter(|text| text.len() > 1 && text.starts_with(['+', '-']));
    let Some(imaginary) = imaginary else {
        return Err("syntax error scanning complex number".to_owned());
    };
    let parse = |text: &str| {
        parse_float(text)
            .map_err(|problem| format!("strconv.ParseFloat: parsing {}: {problem}", format::quote(text)))
    };
    Ok(complex(parse(real)?, parse(imaginary)?))
}

/// Splits off what looks like a float, see Go's `fmt.ss.floatToken`.
fn float_token(text: &str) -> (&str, &str) {
    let signs: &[char] = &['+', '-'];
    let mut rest = text.strip_prefix(signs).unwrap_or(text);
    let decimal = |c: char| c.is_ascii_digit() || c == '_';
    let hexadecimal = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
    let is_digit = |c: char| decimal(c) || (hexadecimal.is_some() && c.is_ascii_hexdigit());
    rest = hexadecimal.unwrap_or(rest).trim_start_matches(is_digit);
    rest = rest
        .strip_prefix('.')
        .map_or(rest, |rest| rest.trim_start_matches(is_digit));
    let exponent: &[char] = if hexadecimal.is_some() {
        &['p', 'P']
    } else {
        &['e', 'E']
    };
    if let Some(magnitude) = rest.strip_prefix(exponent) {
        rest = magnitude
            .strip_prefix(signs)
            .unwrap_or(magnitude)
            .trim_start_matches(decimal);
    }
    text.split_at_checked(text.len().saturating_sub(rest.len()))
        .unwrap_or((text, ""))
}

/// The value of another number constant.
pub(super) fn of_number(text: &str) -> Result<Number, String> {
    if let Some(imaginary) = text.strip_suffix('i').and_then(|text| parse_float(text).ok()) {
        return Ok(complex(0.0, imaginary));
    }
    let mut number = Number {
        int: parse_int(text),
        uint: parse_uint(text),
        ..Number::default()
    };
    if number.int == Some(0) {
        number.uint = Some(0); // Of `-0`.
    }
    if let Some(int) = number.int {
        number.float = Some(int as f64);
    } else if let Some(uint) = number.uint {
        number.float = Some(uint as f64);
    } else if let Ok(float) = parse_float(text) {
        if !text.contains(['.', 'e', 'E', 'p', 'P']) {
            return Err(format!("integer overflow: {}", format::quote(text)));
        }
        number.float = Some(float);
        number.int = float_to_int(float);
        number.uint = float_to_uint(float);
    } else {
        return Err(format!("illegal number syntax: {}", format::quote(text)));
    }
    Ok(number)
}

fn complex(real: f64, imaginary: f64) -> Number {
    let float = (imaginary == 0.0).then_some(real);
    Number {
        int: float.and_then(float_to_int),
        uint: float.and_then(float_to_uint),
        float,
        complex: Some((real, imaginary)),
    }
}

fn float_to_int(float: f64) -> Option<i64> {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float);
    (fits && float.trunc() == float).then_some(float as i64)
}

fn float_to_uint(float: f64) -> Option<u64> {
    let fits = (0.0..18_446_744_073_709_551_616.0).contains(&float);
    (fits && float.trunc() == float).then_some(float as u64)
}

/// Go's `strconv.ParseUint` with base 0.
fn parse_uint(text: &str) -> Option<u64> {
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
    if plain.is_empty() {
        return Some(0); // What remains of `0_` is refused above.
    }
    u64::from_str_radix(&plain, radix).ok()
}

fn parse_int(text: &str) -> Option<i64> {
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

/// Go's `strconv.ParseFloat` with 64 bits.
fn parse_float(text: &str) -> Result<f64, &'static str> {
    let value = parse_extended(text).ok_or(unquote::INVALID)?;
    if value.is_finite() {
        Ok(value)
    } else {
        Err("value out of range")
    }
}

fn parse_extended(text: &str) -> Option<f64> {
    if text.contains('_') && !underscores_fit(text) {
        return None;
    }
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hexadecimal) if !hexadecimal.is_empty() => hexadecimal_float(hexadecimal)?,
        _ if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') => digits.parse::<f64>().ok()?,
        _ => return None,
    };
    Some(sign * value)
}

/// A hexadecimal mantissa with its binary exponent, without `0x`.
fn hexadecimal_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let magnitude = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if magnitude.is_empty() || !magnitude.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let magnitude = magnitude.parse::<i64>().unwrap_or(i64::MAX).min(10_000_000);
    let mut power = if exponent.starts_with('-') {
        magnitude.saturating_neg()
    } else {
        magnitude
    };
    // The first 16 digits that count are exact. Of the others it only matters whether they are zero, for rounding.
    let mut bits: u64 = 0;
    let mut lost = false;
    let digits = whole.chars().map(|digit| (digit, false));
    for (digit, is_fraction) in digits.chain(fraction.chars().map(|digit| (digit, true))) {
        let digit = u64::from(digit.to_digit(16)?);
        if bits >> 60 == 0 {
            bits = bits << 4 | digit;
            if is_fraction {
                power = power.saturating_sub(4);
            }
        } else {
            lost |= digit != 0;
            if !is_fraction {
                power = power.saturating_add(4);
            }
        }
    }
    Some(scale(bits, lost, power))
}

/// `bits` times two to the `power`, rounded to even. `lost` means that there were bits below.
fn scale(mut bits: u64, lost: bool, mut power: i64) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    let shift = bits.leading_zeros();
    bits <<= shift;
    power = power.saturating_sub(i64::from(shift));
    // `bits` has 64 significant bits; 53 remain, or fewer for numbers below the normal ones.
    let drop = (-1074i64).saturating_sub(power).max(11);
    let Ok(drop @ ..=64) = u32::try_from(drop) else {
        return 0.0;
    };
    let (kept, rest, half) = if drop == 64 {
        (0, bits, 1u64 << 63)
    } else {
        let rest = bits & (1u64 << drop).wrapping_sub(1);
        (bits >> drop, rest, 1u64 << drop.saturating_sub(1))
    };
    let up = rest > half || (rest == half && (lost || kept & 1 == 1));
    let kept = kept.saturating_add(u64::from(up));
    let power = power.saturating_add(i64::from(drop));
    if power > 1100 {
        return f64::INFINITY;
    }
    // Two exact steps, because two to the power alone may be no finite number.
    let mut value = kept as f64;
    let mut power = i32::try_from(power).unwrap_or(i32::MIN);
    while power > 1000 {
        value *= 2f64.powi(1000);
        power = power.saturating_sub(1000);
    }
    while power < -1000 {
        value *= 2f64.powi(-1000);
        power = power.saturating_add(1000);
    }
    value * 2f64.powi(power)
}

/// Whether each underscore is between two digits, or between the prefix of a base and a digit.
fn underscores_fit(text: &str) -> bool {
    #[derive(Clone, Copy, PartialEq)]
    enum Saw {
        Start,
        Digit,
        Underscore,
        Other,
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let prefix = digits
        .get(..2)
        .map(str::to_ascii_lowercase)
        .filter(|prefix| matches!(prefix.as_str(), "0b" | "0o" | "0x"));
    let hexadecimal = prefix.as_deref() == Some("0x");
    let mut saw = if prefix.is_some() { Saw::Digit } else { Saw::Start };
    for c in digits.chars().skip(prefix.map_or(0, |prefix| prefix.len())) {
        let is_digit = c.is_ascii_digit() || (hexadecimal && c.is_ascii_hexdigit());
        saw = match (c, saw) {
            _ if is_digit => Saw::Digit,
            ('_', Saw::Digit) => Saw::Underscore,
            ('_', _) | (_, Saw::Underscore) => return false,
            _ => Saw::Other,
        };
    }
    saw != Saw::Underscore
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_every_type_that_it_fits() {
        let float = of_number("1e3").unwrap();
        assert_eq!(
            (float.int, float.uint, float.float),
            (Some(1000), Some(1000), Some(1000.0))
        );
        let negative = of_number("-5").unwrap();
        assert_eq!(
            (negative.int, negative.uint, negative.float),
            (Some(-5), None, Some(-5.0))
        );
        assert_eq!(of_number("18446744073709551615").unwrap().int, None);
        assert_eq!(of_number("2i").unwrap().complex, Some((0.0, 2.0)));
        assert_eq!(of_number("0i").unwrap().int, Some(0));
        assert_eq!(of_complex("1e+2-3.5i").unwrap().complex, Some((100.0, -3.5)));
        assert_eq!(of_char(r"'\n'").unwrap().int, Some(10));
    }

    #[test]
    fn integers_have_the_prefixes_and_underscores_of_go() {
        for (text, value) in [
            ("0x1F", 31),
            ("0b101", 5),
            ("017", 15),
            ("0o17", 15),
            ("1_000", 1000),
            ("0x_1f", 31),
            ("0_7", 7),
        ] {
            assert_eq!(of_number(text).unwrap().int, Some(value), "{text}");
        }
        for text in ["1__0", "1_", "_1", "0x", "1e", "1e400", ".", "+", "0b2"] {
            assert_eq!(
                of_number(text),
                Err(format!("illegal number syntax: {text:?}")),
                "{text}"
            );
        }
        for text in ["99999999999999999999", "089"] {
            assert_eq!(
                of_number(text),
                Err(format!("integer overflow: {text:?}")),
                "{text}"
            );
        }
    }

    #[test]
    fn hexadecimal_floats_are_exact() {
        for (text, value) in [
            ("0x1p-2", 0.25),
            ("0x1.8p1", 3.0),
            ("0x1p-1074", 5e-324),
            ("0x1p-1075", 0.0),
            ("0x1.8p-1075", 5e-324),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x123456789abcdef01p0", 20988295479420645121.0),
        ] {
            assert_eq!(of_number(text).unwrap().float, Some(value), "{text}");
        }
        assert!(of_number("0x1p1024").is_err());
    }
}
