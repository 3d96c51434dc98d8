//! Lists.

use std::rc::Rc;

use super::comparison::{deep_equal, is_empty, kind, nil_dereference};
use super::numbers::to_int64;
use super::table::table;
use super::{Call, Problem};
use crate::budget::Budget;
use crate::format::strval;
use crate::standard;
use crate::value::{List, Type, Value};

table! {
    "list": (; Any) -> "[]interface {}", "Returns a list of the values.", r#"1 "a" true"# => "[1 a true]", |call| call.made_list(call.rest(0).to_vec());
    "append": (Any, Any) -> "[]interface {}", "Returns the list with the value after its last element.",
        "(list 1 2) 3" => "[1 2 3]", append;
    "prepend": (Any, Any) -> "[]interface {}", "Returns the list with the value before its first element.", "(list 1 2) 0" => "[0 1 2]", prepend;
    "concat": (; Any) -> "interface {}", "Returns one list of the elements of all lists.", "(list 1 2) (list 3)" => "[1 2 3]", concat;
    "first": (Any) -> "interface {}", "Returns the first element of the list.", "(list 1 2 3)" => "1",
        |call| Ok(elements(call, 0, "Cannot find first on type")?.first().cloned().unwrap_or(Value::Nil));
    "last": (Any) -> "interface {}", "Returns the last element of the list.", "(list 1 2 3)" => "3",
        |call| Ok(elements(call, 0, "Cannot find last on type")?.last().cloned().unwrap_or(Value::Nil));
    "rest": (Any) -> "[]interface {}", "Returns the list without its first element.", "(list 1 2 3)" => "[2 3]",
        |call| all_but_one(call, elements(call, 0, "Cannot find rest on type")?.split_first().map(|(_, rest)| rest));
    "initial": (Any) -> "[]interface {}", "Returns the list without its last element.", "(list 1 2 3)" => "[1 2]",
        |call| all_but_one(call, elements(call, 0, "Cannot find initial on type")?.split_last().map(|(_, initial)| initial));
    "reverse": (Any) -> "[]interface {}", "Returns the list in the opposite order.", "(list 1 2 3)" => "[3 2 1]",
        |call| call.made_list(elements(call, 0, "Cannot find reverse on type")?.iter().rev().cloned().collect());
    "compact": (Any) -> "[]interface {}", "Returns the elements that are not empty.", r#"(list 1 "" 2 0)"# => "[1 2]",
        |call| call.made_list(elements(call, 0, "Cannot compact on type")?.iter().filter(|item| !is_empty(item)).cloned().collect());
    "uniq": (Any) -> "[]interface {}", "Returns the elements that differ from all before.", "(list 1 2 1)" => "[1 2]", uniq;
    "without": (Any; Any) -> "[]interface {}", "Returns the elements that differ from all further arguments.", "(list 1 2 3) 2" => "[1 3]", without;
    "has": (Any, Any) -> "bool", "Returns whether the value is an element of the list.", "2 (list 1 2 3)" => "true", has;
    "slice": (Any; Any) -> "interface {}", "Returns the elements from an index up to, but without, another index.",
        "(list 1 2 3 4) 1 3" => "[2 3]", slice;
    "sortAlpha": (Any) -> "[]string", "Returns the texts of the elements in order.", r#"(list "b" "a" 1)"# => "[1 a b]", sort_alpha;
    "toStrings": (Any) -> "[]string", "Returns the texts of the elements.", r#"(list 1 "a")"# => "[1 a]", |call| texts(call.any(0), call.budget).map(string_list);
    "join": (String, Any) -> "string", "Returns the texts of the elements with a separator between.", r#"", " (list 1 2)"# => "1, 2", join;
}

/// The elements of a list. What is no list fails with the message and the kind of the value.
fn elements<'a>(call: &Call<'a>, index: usize, message: &str) -> Result<&'a [Value], Problem> {
    match call.any(index).underlying() {
        Value::List(list) => {
            call.budget.step(list.items().len() as u64)?;
            Ok(list.items())
        }
        Value::Nil => Err(nil_dereference()),
        other => Err(Problem::new(format!("{message} {}", kind(other)))),
    }
}

fn append(call: &Call<'_>) -> Result<Value, Problem> {
    let items = elements(call, 0, "Cannot push on type")?;
    call.made_list(items.iter().chain([call.any(1)]).cloned().collect())
}

fn prepend(call: &Call<'_>) -> Result<Value, Problem> {
    let items = elements(call, 0, "Cannot prepend on type")?;
    call.made_list([call.any(1)].into_iter().chain(items).cloned().collect())
}

fn concat(call: &Call<'_>) -> Result<Value, Problem> {
    let mut all = Vec::new();
    for (index, list) in call.arguments.iter().enumerate() {
        let items = elements(call, index, "Cannot concat type");
        let items = items.map_err(|problem| match (problem, list.underlying()) {
            (Problem::Failed(message), other) if !matches!(other, Value::Nil) => {
                Problem::new(format!("{message} as list"))
            }
            (problem, _) => problem,
        })?;
        call.budget.copy(size_of_val(items))?;
        all.extend_from_slice(items);
    }
    if all.is_empty() {
        return Ok(Value::List(List::nil(Type::Any)));
    }
    Ok(Value::list(all))
}

/// A list, or Go's nil list if there was no element to leave out.
fn all_but_one(call: &Call<'_>, items: Option<&[Value]>) -> Result<Value, Problem> {
    match items {
        Some(items) => call.made_list(items.to_vec()),
        None => Ok(Value::List(List::nil(Type::Any))),
    }
}

fn contains(items: &[Value], value: &Value, budget: &dyn Budget) -> Result<bool, Problem> {
    for item in items {
        if deep_equal(value, item, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(call: &Call<'_>) -> Result<Value, Problem> {
    let mut unique = Vec::new();
    for item in elements(call, 0, "Cannot find uniq on type")? {
        if !contains(&unique, item, call.budget)? {
            unique.push(item.clone());
        }
    }
    call.made_list(unique)
}

fn without(call: &Call<'_>) -> Result<Value, Problem> {
    let mut left = Vec::new();
    for item in elements(call, 0, "Cannot find without on type")? {
        if !contains(call.rest(1), item, call.budget)? {
            left.push(item.clone());
        }
    }
    call.made_list(left)
}

fn has(call: &Call<'_>) -> Result<Value, Problem> {
    if matches!(call.any(1), Value::Nil) {
        return Ok(false.into());
    }
    let items = elements(call, 1, "Cannot find has on type")?;
    contains(items, call.any(0), call.budget).map(Value::Bool)
}

fn slice(call: &Call<'_>) -> Result<Value, Problem> {
    let items = elements(call, 0, "list should be type of slice or array but")?;
    if items.is_empty() {
        return Ok(Value::Nil);
    }
    let start = call
        .rest(1)
        .first()
        .map_or(Ok(0), |start| usize::try_from(to_int64(start)));
    let end = call
        .rest(2)
        .first()
        .map_or(Ok(items.len()), |end| usize::try_from(to_int64(end)));
    let part = start
        .ok()
        .zip(end.ok())
        .and_then(|(start, end)| items.get(start..end));
    let part = part.ok_or_else(|| Problem::new("reflect.Value.Slice: slice index out of bounds"))?;
    call.budget.copy(size_of_val(part))?;
    if let Value::Named(list) = call.any(0)
        && &**list.name() == standard::IP
    {
        return Err(Problem::new("an address can't be sliced"));
    }
    let element = match call.any(0).underlying() {
        Value::List(list) => list.element().clone(),
        _ => Type::Any,
    };
    Ok(Value::List(List::new(element, part.to_vec())))
}

/// sprig's `strslice`: the texts of a list's elements that are not nil, or the text of another value.
pub(crate) fn texts(value: &Value, budget: &dyn Budget) -> Result<Vec<Rc<str>>, Problem> {
    let items = match value.underlying() {
        Value::Nil => &[],
        Value::List(list) => list.items(),
        _ => std::slice::from_ref(value),
    };
    budget.step(items.len() as u64)?;
    budget.copy(size_of_val(items))?;
    items
        .iter()
        .filter(|item| !matches!(item, Value::Nil))
        .map(|item| text(item, budget))
        .collect()
}

fn text(value: &Value, budget: &dyn Budget) -> Result<Rc<str>, Problem> {
    match value {
        Value::String(text) => Ok(text.clone()),
        value => Ok(strval(value, budget)?.into()),
    }
}

fn string_list(texts: Vec<Rc<str>>) -> Value {
    Value::strings(texts)
}

fn sort_alpha(call: &Call<'_>) -> Result<Value, Problem> {
    let mut sorted = match call.any(0) {
        Value::Nil => vec![text(&Value::Nil, call.budget)?],
        value => texts(value, call.budget)?,
    };
    let comparisons = sorted.len().checked_ilog2().unwrap_or(0) as usize + 1;
    let bytes: usize = sorted.iter().map(|text| text.len()).sum();
    call.budget.read(bytes.saturating_mul(comparisons))?;
    call.budget
        .step(sorted.len().saturating_mul(comparisons) as u64)?;
    sorted.sort_unstable();
    Ok(string_list(sorted))
}

fn join(call: &Call<'_>) -> Result<Value, Problem> {
    let (separator, texts) = (call.text(0), texts(call.any(1), call.budget)?);
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    call.budget
        .copy(bytes.saturating_add(separator.len().saturating_mul(texts.len())))?;
    Ok(Value::string(texts.join(separator)))
}
