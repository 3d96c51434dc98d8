//! Numbers: arithmetic, conversions and sequences.
//!
//! Integers are Go's `int64`, whose arithmetic wraps.

use super::conversions::{NotInt, parse_int, to_float64, to_int64};
use super::table::table;
use super::{Call, Problem};
use crate::value::{IntKind, List, Type, Value};

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
    "max" "biggest": (Any; Any) -> "int64", "Returns the largest of the integers.", "1 3 2" => "3",
        |call| fold_from_first(call, |largest, number| Ok(largest.max(number)));
    "min": (Any; Any) -> "int64", "Returns the smallest of the integers.", "3 1 2" => "1",
        |call| fold_from_first(call, |smallest, number| Ok(smallest.min(number)));
    "until": (Int) -> "[]int", "Returns the integers from 0 up to, but without, the number.", "3" => "[0 1 2]", until;
    "untilStep": (Int, Int, Int) -> "[]int", "Returns the integers from the first number up to, but without, the second by steps of the third.",
        "0 10 4" => "[0 4 8]", |call| sequence(call, call.int(0), call.int(1), call.int(2)).map(int_list);
    "seq": (; Int) -> "string", "Returns integers with spaces between, like the command `seq`: an end; a start and an end; or a start, a step and an end.",
        "1 2 7" => "1 3 5 7", seq;
}

fn atoi(call: &Call<'_>) -> Result<Value, Problem> {
    Ok(Value::int(parse_or_nearest(call.text(0))))
}

/// What `strconv` returns beside the error that sprig ignores: the nearest number, or 0.
fn parse_or_nearest(text: &str) -> i64 {
    match parse_int(text, 10) {
        Ok(number) | Err(NotInt::Range(number)) => number,
        Err(NotInt::Syntax) => 0,
    }
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

fn until(call: &Call<'_>) -> Result<Value, Problem> {
    let step = if call.int(0) < 0 { -1 } else { 1 };
    sequence(call, 0, call.int(0), step).map(int_list)
}

fn int_list(numbers: Vec<i64>) -> Value {
    let numbers = numbers.into_iter().map(Value::int).collect();
    Value::List(List::new(Type::Int(IntKind::Int), numbers))
}

/// The integers from `start` to `stop`, which is not one of them. There are none if `step` leads away from `stop`.
fn sequence(call: &Call<'_>, start: i64, stop: i64, step: i64) -> Result<Vec<i64>, Problem> {
    let leads_away = if stop < start { step >= 0 } else { step <= 0 };
    if leads_away || start == stop {
        return Ok(Vec::new());
    }
    let count = start.abs_diff(stop).div_ceil(step.unsigned_abs());
    call.budget.step(count)?;
    let bytes = usize::try_from(count)
        .unwrap_or(usize::MAX)
        .saturating_mul(size_of::<Value>());
    call.budget.copy(bytes)?;
    let mut numbers = Vec::new();
    let mut number = start;
    for _ in 0..count {
        numbers.push(number);
        number = number.wrapping_add(step);
    }
    Ok(numbers)
}

fn seq(call: &Call<'_>) -> Result<Value, Problem> {
    let (start, step, end) = match call.arguments.len() {
        1 => (1, None, call.int(0)),
        2 => (call.int(0), None, call.int(1)),
        3 => (call.int(0), Some(call.int(1)), call.int(2)),
        _ => return Ok(Value::string("")),
    };
    let direction = if end < start { -1 } else { 1 };
    let numbers = sequence(
        call,
        start,
        end.wrapping_add(direction),
        step.unwrap_or(direction),
    )?;
    let mut text = String::new();
    for number in numbers {
        let number = number.to_string();
        call.budget.copy(number.len().saturating_add(1))?;
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&number);
    }
    Ok(Value::string(text))
}
