//! Numbers: arithmetic, conversions and sequences.
//!
//! Integers are Go's `int64`, whose arithmetic wraps. `addf`, `subf`, `mulf` and `divf` calculate with decimal numbers.

use super::conversions::{NotInt, parse_int, to_float64, to_int64};
use super::decimals::{Decimal, Operation};
use super::table::table;
use super::{Call, Problem};
use crate::format::sprint;
use crate::value::{IntKind, List, Type, Value};

table! {
    "atoi": (String) -> "int", "Returns the integer that the text is in decimal notation, or 0.", r#""42""# => "42", atoi;
    "int": (Any) -> "int", "Returns the value as an integer: numbers are truncated, texts are parsed, and other values are 0.",
        r#""0x1F""# => "31", |call| Ok(Value::int(to_int64(call.any(0))));
    "int64": (Any) -> "int64", "Returns the value as an integer: numbers are truncated, texts are parsed, and other values are 0.",
        "3.9" => "3", |call| Ok(Value::int64(to_int64(call.any(0))));
    "float64": (Any) -> "float64", "Returns the value as a floating-point number: texts are parsed, and other values are 0.",
        r#""1.50""# => "1.5", |call| Ok(Value::float(to_float64(call.any(0))));
    "toDecimal": (Any) -> "int64", "Returns the number that the value's text is in octal notation, or 0.", "777" => "511", to_decimal;
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
    "maxf": (Any; Any) -> "float64", "Returns the largest of the floating-point numbers.", "1.5 3.25 2" => "3.25", |call| fold_floats(call, maximum);
    "minf": (Any; Any) -> "float64", "Returns the smallest of the floating-point numbers.", "1.5 3.25 2" => "1.5", |call| fold_floats(call, minimum);
    "addf": (; Any) -> "float64", "Returns the sum of decimal numbers.", "0.1 0.2" => "0.3",
        |call| decimals(call, &Value::Int(0, IntKind::Int), call.rest(0), Decimal::add);
    "add1f": (Any) -> "float64", "Returns the decimal number plus 1.", "0.1" => "1.1", |call| decimals(call, call.any(0), &[Value::int(1)], Decimal::add);
    "subf": (Any; Any) -> "float64", "Returns the first decimal number minus the others.", "7.5 2 3" => "2.5",
        |call| decimals(call, call.any(0), call.rest(1), Decimal::sub);
    "mulf": (Any; Any) -> "float64", "Returns the product of decimal numbers.", "1.1 3" => "3.3",
        |call| decimals(call, call.any(0), call.rest(1), Decimal::mul);
    "divf": (Any; Any) -> "float64", "Returns the first decimal number divided by the others.", "10 4" => "2.5",
        |call| decimals(call, call.any(0), call.rest(1), Decimal::div);
    "ceil": (Any) -> "float64", "Returns the smallest whole number that is not below the number.", "1.1" => "2", |call| Ok(Value::float(to_float64(call.any(0)).ceil()));
    "floor": (Any) -> "float64", "Returns the largest whole number that is not above the number.", "1.9" => "1", |call| Ok(Value::float(to_float64(call.any(0)).floor()));
    "round": (Any, Int; Float64) -> "float64", "Returns the number rounded to decimal places; a third argument replaces 0.5 as where rounding up starts.",
        "3.14159 2" => "3.14", round;
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
pub(crate) fn parse_or_nearest(text: &str) -> i64 {
    match parse_int(text, 10) {
        Ok(number) | Err(NotInt::Range(number)) => number,
        Err(NotInt::Syntax) => 0,
    }
}

fn to_decimal(call: &Call<'_>) -> Result<Value, Problem> {
    let text = sprint(call.arguments, call.budget)?;
    Ok(Value::int64(parse_int(&text, 8).unwrap_or(0)))
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

fn fold_floats(call: &Call<'_>, step: fn(f64, f64) -> f64) -> Result<Value, Problem> {
    let others = call.rest(1).iter().map(to_float64);
    Ok(Value::float(others.fold(to_float64(call.any(0)), step)))
}

/// Go's `math.Max`, which prefers infinity to what is no number, and what is no number to numbers.
fn maximum(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && b == 0.0 {
        if a.is_sign_negative() { b } else { a }
    } else if a > b {
        a
    } else {
        b
    }
}

fn minimum(a: f64, b: f64) -> f64 {
    -maximum(-a, -b)
}

fn decimals(
    call: &Call<'_>,
    start: &Value,
    numbers: &[Value],
    operation: Operation,
) -> Result<Value, Problem> {
    let mut result = Decimal::from_float(to_float64(start))?;
    for number in numbers {
        call.budget.step(1)?;
        let number = Decimal::from_float(to_float64(number))?;
        result = operation(&result, &number, call.budget)?;
    }
    result.to_float(call.budget).map(Value::float)
}

fn round(call: &Call<'_>) -> Result<Value, Problem> {
    let round_up_from = if call.arguments.len() > 2 {
        call.float(2)
    } else {
        0.5
    };
    let power = power_of_ten(call.int(1));
    let digits = power * to_float64(call.any(0));
    // Go's `math.Modf` has no fraction of infinity.
    let fraction = if digits.is_finite() {
        digits - digits.trunc()
    } else {
        f64::NAN
    };
    let whole = if fraction >= round_up_from {
        digits.ceil()
    } else {
        digits.floor()
    };
    Ok(Value::float(whole / power))
}

/// Go's `math.Pow(10, exponent)`: repeated squaring of 10 = 0.625 × 2⁴, inverted at the end for a negative exponent.
fn power_of_ten(exponent: i64) -> f64 {
    let (mut result, mut result_exponent) = (1.0_f64, 0_i64);
    let (mut square, mut square_exponent) = (0.625_f64, 4_i64);
    let mut left = exponent.unsigned_abs();
    while left != 0 {
        if square_exponent > 1 << 12 {
            result_exponent += square_exponent;
            break;
        }
        if left & 1 == 1 {
            result *= square;
            result_exponent += square_exponent;
        }
        square *= square;
        square_exponent <<= 1;
        if square < 0.5 {
            square += square;
            square_exponent -= 1;
        }
        left >>= 1;
    }
    if exponent < 0 {
        result = 1.0 / result;
        result_exponent = -result_exponent;
    }
    while result_exponent != 0 && result != 0.0 && result.is_finite() {
        let step = result_exponent.clamp(-1000, 1000);
        result *= f64::powi(2.0, i32::try_from(step).unwrap_or(0));
        result_exponent -= step;
    }
    result
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
