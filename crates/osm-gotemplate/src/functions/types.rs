//! Types, and what depends on whether values are empty.

use super::comparison::{deep_equal, is_empty, kind, type_name};
use super::table::table;
use super::{Call, Problem};
use crate::value::Value;

table! {
    "typeOf": (Any) -> "string", "Returns the name of the value's type.", "(list 1)" => "[]interface {}", |call| call.made(type_name(call.any(0)));
    "typeIs": (String, Any) -> "bool", "Returns whether the value's type has the name.", r#""int" 1"# => "true",
        |call| Ok((type_name(call.any(1)) == call.text(0)).into());
    "kindOf": (Any) -> "string", "Returns the kind of the value's type, as Go's package `reflect` names it.", "(dict)" => "map", |call| call.made(kind(call.any(0)));
    "kindIs": (String, Any) -> "bool", "Returns whether the value's type is of the kind.", r#""slice" (list 1)"# => "true",
        |call| Ok((kind(call.any(1)) == call.text(0)).into());
    "deepEqual": (Any, Any) -> "bool", "Returns whether two values, and all values in them, are equal and of the same types.",
        "(list 1 2) (list 1 2)" => "true", |call| deep_equal(call.any(0), call.any(1), call.budget).map(Value::Bool);
    "default": (Any; Any) -> "interface {}", "Returns the second value unless it is empty, else the first.", r#""nginx" """# => "nginx", default;
    "empty": (Any) -> "bool", "Returns whether the value is nil, false, 0, or has no elements.", "0" => "true", |call| Ok(is_empty(call.any(0)).into());
    "coalesce": (; Any) -> "interface {}", "Returns the first value that is not empty.", r#"0 "" "a""# => "a", coalesce;
    "all": (; Any) -> "bool", "Returns whether no value is empty.", r#"1 "a" true"# => "true", |call| Ok((!call.arguments.iter().any(is_empty)).into());
    "any": (; Any) -> "bool", "Returns whether some value is not empty.", r#"0 "" 1"# => "true", |call| Ok((!call.arguments.iter().all(is_empty)).into());
    "ternary": (Any, Any, Bool) -> "interface {}", "Returns the first value if the third is true, else the second.", r#""yes" "no" true"# => "yes", ternary;
    "fail": (String) -> "string", "Fails with the message.", (r#"{{ if false }}{{ fail "no disk" }}{{ end }}"#) => "", |call| Err(Problem::new(call.text(0)));
}

fn default(call: &Call<'_>) -> Result<Value, Problem> {
    let given = call.rest(1).first().filter(|given| !is_empty(given));
    Ok(given.unwrap_or(call.any(0)).clone())
}

fn coalesce(call: &Call<'_>) -> Result<Value, Problem> {
    let first = call.arguments.iter().find(|value| !is_empty(value));
    Ok(first.cloned().unwrap_or(Value::Nil))
}

fn ternary(call: &Call<'_>) -> Result<Value, Problem> {
    let is_true = matches!(call.any(2), Value::Bool(true));
    Ok(call.any(if is_true { 0 } else { 1 }).clone())
}
