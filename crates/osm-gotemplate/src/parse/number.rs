//! The values of number constants: every type that a constant fits, as Go's ideal constants do. Complex
//! numbers and hexadecimal floating-point numbers are not supported.

use super::unquote::{self, Unquoted};
use crate::format;
use crate::strconv::{parse_float, parse_int, parse_uint};

/// A number constant. What it can't be is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Number {
    pub(crate) int: Option<i64>,
    pub(crate) float: Option<f64>,
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
        float: Some(code.into()),
    })
}

/// The value of another number constant.
pub(super) fn of_number(text: &str) -> Result<Number, String> {
    if let Some(int) = parse_int(text) {
        return Ok(Number {
            int: Some(int),
            float: Some(int as f64),
        });
    }
    if let Some(uint) = parse_uint(text) {
        return Ok(Number {
            int: None,
            float: Some(uint as f64),
        });
    }
    if let Some(float) = parse_float(text) {
        if !text.contains(['.', 'e', 'E']) {
            return Err(format!("integer overflow: {}", format::quote(text)));
        }
        return Ok(Number {
            int: float_to_int(float),
            float: Some(float),
        });
    }
    if text.ends_with('i') || text.contains(['p', 'P']) {
        return Err(unsupported(text));
    }
    Err(format!("illegal number syntax: {}", format::quote(text)))
}

/// Why a complex number, or a hexadecimal one with an exponent, is refused.
pub(super) fn unsupported(text: &str) -> String {
    format!("{text} is not supported; use an integer or a decimal number")
}

fn float_to_int(float: f64) -> Option<i64> {
    let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&float);
    (fits && float.trunc() == float).then_some(float as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_every_type_that_it_fits() {
        let number = |text| of_number(text).map(|number| (number.int, number.float));
        assert_eq!(number("1e3"), Ok((Some(1000), Some(1000.0))));
        assert_eq!(number("-5"), Ok((Some(-5), Some(-5.0))));
        assert_eq!(number("0x1F"), Ok((Some(31), Some(31.0))));
        assert_eq!(number("1.5"), Ok((None, Some(1.5))));
        assert_eq!(
            number("18446744073709551615"),
            Ok((None, Some(18446744073709551615.0)))
        );
        assert_eq!(of_char(r"'\n'").unwrap().int, Some(10));
        for text in ["1__0", "1_", "_1", "0x", "1e", "1e400", ".", "+", "0b2"] {
            let error = format!("illegal number syntax: {text:?}");
            assert_eq!(number(text), Err(error));
        }
        for text in ["99999999999999999999", "089"] {
            let error = format!("integer overflow: {text:?}");
            assert_eq!(number(text), Err(error));
        }
        for text in ["2i", "0x1p-2"] {
            assert_eq!(number(text), Err(unsupported(text)));
        }
    }
}
