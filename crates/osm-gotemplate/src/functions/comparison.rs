//! What Go's package `reflect` reports about values: kinds, names of types, emptiness and deep equality.

use std::rc::Rc;

use super::Problem;
use crate::budget::Budget;
use crate::value::{MAX_NESTING, Value};

/// `fmt.Sprintf("%T", value)`
pub(crate) fn type_name(value: &Value) -> String {
    value
        .type_of()
        .map_or_else(|| "<nil>".to_owned(), |kind| kind.to_string())
}

/// `reflect.ValueOf(value).Kind().String()`
pub(crate) fn kind(value: &Value) -> String {
    match value.underlying() {
        Value::Nil => "invalid".to_owned(),
        Value::List(_) => "slice".to_owned(),
        Value::Map(_) => "map".to_owned(),
        Value::Struct(_) => "struct".to_owned(),
        Value::Pointer(_) => "ptr".to_owned(),
        scalar => type_name(scalar),
    }
}

/// sprig's `empty`: a nil pointer is empty, but what another pointer leads to does not matter.
pub(crate) fn is_empty(value: &Value) -> bool {
    !value.is_true()
}

/// Go's panic for `reflect.TypeOf(nil).Kind()`.
pub(crate) fn nil_dereference() -> Problem {
    Problem::new("runtime error: invalid memory address or nil pointer dereference")
}

/// `reflect.DeepEqual`. Values that are nested too deeply can't be compared.
pub(crate) fn deep_equal(a: &Value, b: &Value, budget: &dyn Budget) -> Result<bool, Problem> {
    equal(a, b, budget, 0)
}

fn equal(a: &Value, b: &Value, budget: &dyn Budget, depth: usize) -> Result<bool, Problem> {
    budget.step(1)?;
    if depth > MAX_NESTING {
        return Err(Problem::new(format!(
            "values that are nested more than {MAX_NESTING} levels deep can't be compared"
        )));
    }
    match (a, b) {
        (Value::Nil, Value::Nil) => Ok(true),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Int(a, a_kind), Value::Int(b, b_kind)) => Ok(a == b && a_kind == b_kind),
        (Value::Uint(a, a_kind), Value::Uint(b, b_kind)) => Ok(a == b && a_kind == b_kind),
        (Value::Float(a, a_kind), Value::Float(b, b_kind)) => Ok(a == b && a_kind == b_kind),
        (Value::String(a), Value::String(b)) => {
            budget.read(a.len().min(b.len()))?;
            Ok(a == b)
        }
        (Value::List(a), Value::List(b)) => {
            if a.element() != b.element() || a.is_nil() != b.is_nil() {
                return Ok(false);
            }
            all_equal(a.items().iter(), b.items().iter(), budget, depth)
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.element() != b.element() || a.is_nil() != b.is_nil() {
                return Ok(false);
            }
            if a.is_same(b) {
                return Ok(true);
            }
            if a.len() != b.len() {
                return Ok(false);
            }
            members_equal(&a.entries(budget)?, &b.entries(budget)?, budget, depth)
        }
        (Value::Struct(a), Value::Struct(b)) => members_equal(a.fields(), b.fields(), budget, depth),
        (Value::Pointer(a), Value::Pointer(b)) => match (a.value(), b.value()) {
            _ if a.to() != b.to() => Ok(false),
            (None, None) => Ok(true),
            (Some(a), Some(b)) => equal(a, b, budget, depth + 1),
            _ => Ok(false),
        },
        (Value::Named(a), Value::Named(b)) => {
            Ok(a.name() == b.name() && equal(a.value(), b.value(), budget, depth + 1)?)
        }
        _ => Ok(false),
    }
}

/// Whether the keys of maps, or the fields of structs, are the same, and then their values.
fn members_equal(
    a: &[(Rc<str>, Value)],
    b: &[(Rc<str>, Value)],
    budget: &dyn Budget,
    depth: usize,
) -> Result<bool, Problem> {
    let have_same_names = a.len() == b.len() && a.iter().zip(b).all(|((a, _), (b, _))| a == b);
    let (a, b) = (a.iter().map(|(_, value)| value), b.iter().map(|(_, value)| value));
    Ok(have_same_names && all_equal(a, b, budget, depth)?)
}

fn all_equal<'a>(
    a: impl ExactSizeIterator<Item = &'a Value>,
    b: impl ExactSizeIterator<Item = &'a Value>,
    budget: &dyn Budget,
    depth: usize,
) -> Result<bool, Problem> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (a, b) in a.zip(b) {
        if !equal(a, b, budget, depth + 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}
