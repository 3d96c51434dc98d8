//! Numbers: arithmetic, and conversions with the results of `github.com/spf13/cast`.
//!
//! Integers are Go's `int64`, whose arithmetic wraps.

use std::num::IntErrorKind;

use super::table::table;
use super::{Call, Problem};
use crate::strconv::{parse_float, parse_int};
use crate::value::Value;

table! {
    "atoi": (String) -> "int", "Returns the integer that the text is in decimal notation, or 0.", r#""42""# => "42", atoi;
    "int": (Any) -> "int", "Returns the value as an integer: numbers are truncated, texts are parsed, and other values are 0.",
        r#""0x1F""# => "31", |call| Ok(Value::int(to_int64(call.any(0))));
    "int64": (Any) -> "int64", "Returns the value as an integer: numbers are truncated, texts are parsed, and other values are 0.",
        "3.9" => "3", |call| Ok(Value::int64(to_int64(call.any(0))));
    "float64": (Any) -> "float64", "Returns the value as a floating-point number: texts are parsed, and other values are 0.",
        r#""1.50""# => "1.5", |call| Ok(Value::float(to_float64(call.any(0))));
    "add": (; Any) -> "int64", "Returns the sum of integers.", "1 2 3" => "6", |call| fold(call, 0, |sum, number| Ok(sum.wrapping_add(number)));
    "add1": (Any) -> "int64", "Returns the integer plus 1.", "41" => "42", |call| Ok(Value::int64(to_int64(call.any(0)).wrapping_add(1)));
    "sub": (Any, Any) -> "int64", "Returns the difference of two integers.", "5 3" => "2",
        |call| Ok(Value::int64(to_int64(call.any(0)).wrapping_sub(to_int64(call.any(1)))));
    "mul": (Any; Any) -> "int64", "Returns the product of integers.", "2 3 4" => "24",
        |call| fold_from_first(call, |product, number| Ok(product.wrapping_mul(number)));
    "div": (Any, Any) -> "int64", "Returns the quotient of two integers, truncated toward zero.", "7 2" => "3",
        |call| fold_from_first(call, |dividend, divisor| checked_divisor(divisor).map(|divisor| dividend.wrapping_div(divisor)));
    "mod": (Any, Any) -> "int64", "Returns the remainder of the division of two integers.", "7 2" => "1",
        |call| fold_from_first(call, |dividend, divisor| checked_divisor(divisor).map(|divisor| dividend.wrapping_rem(divisor)));
    "max": (Any; Any) -> "int64", "Returns the largest of the integers.", "1 3 2" => "3",
        |call| fold_from_first(call, |largest, number| Ok(largest.max(number)));
    "min": (Any; Any) -> "int64", "Returns the smallest of the integers.", "3 1 2" => "1",
        |call| fold_from_first(call, |smallest, number| Ok(smallest.min(number)));
}

/// `strconv.Atoi`. Beside the error, which sprig ignores, it returns the nearest number, or 0.
fn atoi(call: &Call<'_>) -> Result<Value, Problem> {
    Ok(Value::int(match call.text(0).parse() {
        Ok(number) => number,
        Err(error) => match error.kind() {
            IntErrorKind::PosOverflow => i64::MAX,
            IntErrorKind::NegOverflow => i64::MIN,
            _ => 0,
        },
    }))
}

fn fold(call: &Call<'_>, start: i64, step: fn(i64, i64) -> Result<i64, Problem>) -> Result<Value, Problem> {
    fold_over(start, call.rest(0), step)
}

fn fold_from_first(call: &Call<'_>, step: fn(i64, i64) -> Result<i64, Problem>) -> Result<Value, Problem> {
    fold_over(to_int64(call.any(0)), call.rest(1), step)
}

fn fold_over(
    start: i64,
    numbers: &[Value],
    step: fn(i64, i64) -> Result<i64, Problem>,
) -> Result<Value, Problem> {
    let result = numbers
        .iter()
        .try_fold(start, |result, number| step(result, to_int64(number)));
    result.map(Value::int64)
}

fn checked_divisor(divisor: i64) -> Result<i64, Problem> {
    if divisor == 0 {
        return Err(Problem::new("runtime error: integer divide by zero"));
    }
    Ok(divisor)
}

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
pub(super) fn to_int64(value: &Value) -> i64 {
    match indirect(value) {
        Value::Int(number, _) => *number,
        Value::Uint(number, _) => number.cast_signed(),
        Value::Float(number, _) => truncate(*number),
        Value::String(text) => parse_int(without_zero_decimals(text)).unwrap_or(0),
        Value::Bool(value) => i64::from(*value),
        _ => 0,
    }
}

/// `cast.ToFloat64`: what is no number is 0.
#[allow(clippy::cast_precision_loss)] // As in Go.
fn to_float64(value: &Value) -> f64 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_integers_as_in_go() {
        for (value, integer) in [
            ("0x1F".into(), 31),
            ("12.00".into(), 12),
            ("12.50".into(), 0),
            ("08".into(), 0),
            (Value::float(1e300), i64::MIN),
            (Value::float(f64::NAN), i64::MIN),
            (Value::float(-1.9), -1),
            (true.into(), 1),
            (Value::Nil, 0),
        ] {
            assert_eq!(to_int64(&value), integer, "{value:?}");
        }
    }
}
