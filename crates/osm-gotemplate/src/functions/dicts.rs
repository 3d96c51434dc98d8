//! Dictionaries: maps with strings as keys. `set` and `unset` change the map that they are given, as in Go.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::table::table;
use super::{Call, Problem};
use crate::budget::Budget;
use crate::format::strval;
use crate::value::{Map, Type, Value};

table! {
    "dict": (; Any) -> "map[string]interface {}", "Returns a map of the keys and values, which alternate.", r#""a" 1 "b" 2"# => "map[a:1 b:2]", dict;
    "get": (Map, String) -> "interface {}", "Returns the value of the key, or an empty text.", r#"(dict "a" 1) "a""# => "1",
        |call| Ok(call.map(0).and_then(|map| map.get(call.text(1))).unwrap_or_else(|| "".into()));
    "set": (Map, String, Any) -> "map[string]interface {}", "Sets the key in the map, and returns the map.", r#"(dict "a" 1) "b" 2"# => "map[a:1 b:2]", set;
    "unset": (Map, String) -> "map[string]interface {}", "Removes the key from the map, and returns the map.", r#"(dict "a" 1 "b" 2) "b""# => "map[a:1]", unset;
    "hasKey": (Map, String) -> "bool", "Returns whether the map has the key.", r#"(dict "a" 1) "a""# => "true",
        |call| Ok(call.map(0).is_some_and(|map| map.get(call.text(1)).is_some()).into());
    "keys": (; Map) -> "[]string", "Returns the keys of the maps, sorted within each map.", r#"(dict "b" 1 "a" 2)"# => "[a b]", keys;
    "values": (Map) -> "[]interface {}", "Returns the values of the map, sorted by their keys.", r#"(dict "b" 1 "a" 2)"# => "[2 1]", values;
    "pick": (Map; String) -> "map[string]interface {}", "Returns a new map with only the keys.", r#"(dict "a" 1 "b" 2) "a""# => "map[a:1]", pick;
    "omit": (Map; String) -> "map[string]interface {}", "Returns a new map without the keys.", r#"(dict "a" 1 "b" 2) "a""# => "map[b:2]", omit;
}

/// The argument, where a nil map has the type of other maps.
fn map_or_nil(call: &Call<'_>, index: usize) -> Map {
    call.map(index).cloned().unwrap_or_else(|| Map::nil(Type::Any))
}

fn made_map(call: &Call<'_>, entries: BTreeMap<Rc<str>, Value>) -> Result<Value, Problem> {
    call.budget.copy(Map::bytes(entries.len()))?;
    Ok(Value::map(entries))
}

fn dict(call: &Call<'_>) -> Result<Value, Problem> {
    let mut entries = BTreeMap::new();
    for pair in call.arguments.chunks(2) {
        call.budget.step(1)?;
        let key: Rc<str> = match pair.first() {
            Some(Value::String(key)) => key.clone(),
            key => strval(key.unwrap_or(&Value::Nil), call.budget)?.into(),
        };
        entries.insert(key, pair.get(1).cloned().unwrap_or_else(|| "".into()));
    }
    made_map(call, entries)
}

fn set(call: &Call<'_>) -> Result<Value, Problem> {
    let map = map_or_nil(call, 0);
    if map.is_nil() {
        return Err(Problem::new("assignment to entry in nil map"));
    }
    charge_parts(call.any(2), call.budget)?;
    call.budget
        .copy(Map::ENTRY_BYTES.saturating_add(call.text(1).len()))?;
    map.insert(call.text(1).into(), call.any(2).clone())
        .map_err(|cycle| Problem::new(cycle.to_string()))?;
    Ok(Value::Map(map))
}

/// Charges a step for each part of a value, in which the map is looked for.
fn charge_parts(value: &Value, budget: &dyn Budget) -> Result<(), Problem> {
    let mut to_visit = vec![value.clone()];
    while let Some(value) = to_visit.pop() {
        budget.step(1)?;
        match value.underlying() {
            Value::List(list) => to_visit.extend_from_slice(list.items()),
            Value::Map(map) => to_visit.extend(map.entries(budget)?.into_iter().map(|(_, value)| value)),
            Value::Pointer(pointer) => to_visit.extend(pointer.value().cloned()),
            Value::Struct(fields) => to_visit.extend(fields.fields().iter().map(|(_, value)| value.clone())),
            _ => {}
        }
    }
    Ok(())
}

fn unset(call: &Call<'_>) -> Result<Value, Problem> {
    let map = map_or_nil(call, 0);
    map.remove(call.text(1));
    Ok(Value::Map(map))
}

fn keys(call: &Call<'_>) -> Result<Value, Problem> {
    let mut keys = Vec::new();
    for index in 0..call.arguments.len() {
        let entries = map_or_nil(call, index).entries(call.budget)?;
        keys.extend(entries.into_iter().map(|(key, _)| key));
    }
    Ok(Value::strings(keys))
}

fn values(call: &Call<'_>) -> Result<Value, Problem> {
    let entries = map_or_nil(call, 0).entries(call.budget)?;
    Ok(Value::list(entries.into_iter().map(|(_, value)| value).collect()))
}

/// The texts after the first argument.
fn names<'a>(call: &Call<'a>) -> BTreeSet<&'a str> {
    (1..call.arguments.len()).map(|index| call.text(index)).collect()
}

fn pick(call: &Call<'_>) -> Result<Value, Problem> {
    let map = map_or_nil(call, 0);
    let names = names(call).into_iter();
    made_map(
        call,
        names
            .filter_map(|name| Some((name.into(), map.get(name)?)))
            .collect(),
    )
}

fn omit(call: &Call<'_>) -> Result<Value, Problem> {
    let names = names(call);
    let entries = map_or_nil(call, 0).entries(call.budget)?.into_iter();
    made_map(call, entries.filter(|(key, _)| !names.contains(&**key)).collect())
}
