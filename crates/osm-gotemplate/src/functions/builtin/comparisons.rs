//! Go's comparisons: `eq`, `ne`, `lt`, `le`, `gt` and `ge`.

use std::cmp::Ordering;

use crate::budget::Budget;
use crate::format;
use crate::functions::table::table;
use crate::functions::{Call, Problem};
use crate::value::{MAX_NESTING, Type, Value};

table! {
    "eq": (Reflected; Reflected) -> "bool",
        "Returns whether the first argument equals one of the others.",
        r#""a" "b" "a""# => "true", |call| Ok(Value::Bool(eq(call.any(0), call.rest(1), call.budget)?));
    "ge": (Reflected, Reflected) -> "bool",
        "Returns whether the first argument is at least the second.",
        "2 2" => "true", |call| Ok(Value::Bool(!lt(call)?));
    "gt": (Reflected, Reflected) -> "bool",
        "Returns whether the first argument is more than the second.",
        "2 1" => "true", |call| Ok(Value::Bool(!le(call)?));
    "le": (Reflected, Reflected) -> "bool",
        "Returns whether the first argument is at most the second.",
        "1 2" => "true", |call| Ok(Value::Bool(le(call)?));
    "lt": (Reflected, Reflected) -> "bool",
        "Returns whether the first argument is less than the second.",
        r#""a" "b""# => "true", |call| Ok(Value::Bool(lt(call)?));
    "ne": (Reflected, Reflected) -> "bool",
        "Returns whether the arguments differ.",
        "1 2" => "true", |call| Ok(Value::Bool(!eq(call.any(0), call.rest(1), call.budget)?));
}

fn bad_type() -> Problem {
    Problem::new("invalid type for comparison")
}

fn incompatible(first: &Value, second: &Value) -> Problem {
    let [first, second] = [first, second].map(|value| value.type_of().unwrap_or(Type::Any));
    Problem::new(format!("incompatible types for comparison: {first} and {second}"))
}

/// Whether the first value equals one of the others, see Go's `eq`.
fn eq(first: &Value, others: &[Value], budget: &dyn Budget) -> Result<bool, Problem> {
    if others.is_empty() {
        return Err(Problem::new("missing argument for comparison"));
    }
    for other in others {
        budget.step(1)?;
        let equal = match (first.underlying(), other.underlying()) {
            (Value::Bool(first), Value::Bool(other)) => first == other,
            (Value::Int(first, _), Value::Int(other, _)) => first == other,
            (Value::Uint(first, _), Value::Uint(other, _)) => first == other,
            (Value::Int(int, _), Value::Uint(uint, _)) | (Value::Uint(uint, _), Value::Int(int, _)) => {
                u64::try_from(*int) == Ok(*uint)
            }
            (Value::Float(first, _), Value::Float(other, _)) => first == other,
            (Value::String(first), Value::String(other)) => {
                budget.read(first.len().min(other.len()))?;
                first == other
            }
            (a, b) if is_basic(a) || is_basic(b) => {
                if !matches!(a, Value::Nil) && !matches!(b, Value::Nil) {
                    return Err(incompatible(first, other));
                }
                false
            }
            (a, b) => eq_others(first, other, a, b, budget)?,
        };
        if equal {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Compares values that are not of basic types.
fn eq_others(
    first: &Value,
    other: &Value,
    a: &Value,
    b: &Value,
    budget: &dyn Budget,
) -> Result<bool, Problem> {
    let comparable = std::mem::discriminant(a) == std::mem::discriminant(b);
    if !comparable && !matches!(a, Value::Nil) && !matches!(b, Value::Nil) {
        let [first_type, other_type] = [first, other].map(|value| value.type_of().unwrap_or(Type::Any));
        let values = [first.clone(), other.clone()];
        let [first_text, other_text] = values.map(|value| format::sprintf("%s", &[value], budget));
        // The order is Go's.
        let other_text = other_text.and_then(|_| format::sprint(std::slice::from_ref(other), budget));
        return Err(Problem::new(format!(
            "non-comparable types {}: {first_type}, {other_type}: {}",
            first_text?, other_text?
        )));
    }
    if is_nil(a) || is_nil(b) {
        return Ok(is_nil(a) == is_nil(b));
    }
    if matches!(b, Value::List(_) | Value::Map(_)) {
        let other_text = format::sprintf("%s", std::slice::from_ref(other), budget)?;
        let other_type = other.type_of().unwrap_or(Type::Any);
        return Err(Problem::new(format!(
            "non-comparable type {other_text}: {other_type}"
        )));
    }
    identical(first, other, 0, budget)
}

/// Whether two values are equal as Go's `==` of interfaces decides it.
fn identical(first: &Value, other: &Value, depth: usize, budget: &dyn Budget) -> Result<bool, Problem> {
    budget.step(1)?;
    if depth > MAX_NESTING {
        return Err(Problem::new("values are nested too deeply to be compared"));
    }
    let types = (first.type_of(), other.type_of());
    if types.0 != types.1 {
        return Ok(false);
    }
    match (first.underlying(), other.underlying()) {
        (Value::Struct(fields), Value::Struct(others)) => {
            for ((name, field), (other_name, other)) in fields.fields().iter().zip(others.fields()) {
                if name != other_name || !identical(field, other, depth.saturating_add(1), budget)? {
                    return Ok(false);
                }
            }
            Ok(fields.fields().len() == others.fields().len())
        }
        (Value::Pointer(pointer), Value::Pointer(other)) => Ok(pointer.is_same(other)),
        (Value::List(_) | Value::Map(_), _) => {
            let name = types.0.unwrap_or(Type::Any);
            Err(Problem::new(format!(
                "runtime error: comparing uncomparable type {name}"
            )))
        }
        (Value::Nil, Value::Nil) => Ok(true),
        (_, other_value) => eq(first, std::slice::from_ref(other_value), budget),
    }
}

fn is_nil(value: &Value) -> bool {
    match value {
        Value::Nil => true,
        Value::List(list) => list.is_nil(),
        Value::Map(map) => map.is_nil(),
        Value::Pointer(pointer) => pointer.value().is_none(),
        _ => false,
    }
}

fn is_basic(value: &Value) -> bool {
    matches!(
        value,
        Value::Bool(_) | Value::Int(..) | Value::Uint(..) | Value::Float(..) | Value::String(_)
    )
}

/// The order of two values. None for a float that is not a number.
fn compare(call: &Call<'_>) -> Result<Option<Ordering>, Problem> {
    let (first, second) = (call.any(0), call.any(1));
    match (first.underlying(), second.underlying()) {
        (a, b) if !is_basic(a) || !is_basic(b) => Err(bad_type()),
        (Value::Int(a, _), Value::Int(b, _)) => Ok(Some(a.cmp(b))),
        (Value::Uint(a, _), Value::Uint(b, _)) => Ok(Some(a.cmp(b))),
        (Value::Int(a, _), Value::Uint(b, _)) => {
            Ok(Some(u64::try_from(*a).map_or(Ordering::Less, |a| a.cmp(b))))
        }
        (Value::Uint(a, _), Value::Int(b, _)) => {
            Ok(Some(u64::try_from(*b).map_or(Ordering::Greater, |b| a.cmp(&b))))
        }
        (Value::Float(a, _), Value::Float(b, _)) => Ok(a.partial_cmp(b)),
        (Value::String(a), Value::String(b)) => {
            call.budget.read(a.len().min(b.len()))?;
            Ok(Some(a.cmp(b)))
        }
        (Value::Bool(_), Value::Bool(_)) => Err(bad_type()),
        _ => Err(incompatible(first, second)),
    }
}

fn lt(call: &Call<'_>) -> Result<bool, Problem> {
    Ok(compare(call)? == Some(Ordering::Less))
}

fn le(call: &Call<'_>) -> Result<bool, Problem> {
    Ok(matches!(compare(call)?, Some(Ordering::Less | Ordering::Equal)))
}
