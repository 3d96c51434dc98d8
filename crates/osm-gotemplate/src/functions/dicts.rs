//! Dictionaries: maps with strings as keys. `set`, `unset`, `merge` and their like change the map that they are given, as in Go.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::comparison::type_name;
use super::merging::{deep_copy, insert, merge, merge_or_fail};
use super::table::table;
use super::{Call, Problem};
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
    "pluck": (String; Map) -> "[]interface {}", "Returns the values of the key in all maps that have it.", r#""a" (dict "a" 1) (dict "a" 2)"# => "[1 2]", pluck;
    "keys": (; Map) -> "[]string", "Returns the keys of the maps, sorted within each map.", r#"(dict "b" 1 "a" 2)"# => "[a b]", keys;
    "values": (Map) -> "[]interface {}", "Returns the values of the map, sorted by their keys.", r#"(dict "b" 1 "a" 2)"# => "[2 1]", values;
    "pick": (Map; String) -> "map[string]interface {}", "Returns a new map with only the keys.", r#"(dict "a" 1 "b" 2) "a""# => "map[a:1]", pick;
    "omit": (Map; String) -> "map[string]interface {}", "Returns a new map without the keys.", r#"(dict "a" 1 "b" 2) "a""# => "map[b:2]", omit;
    "merge": (Map; Map) -> "interface {}", "Adds what the first map lacks from the others, and returns the first map.",
        r#"(dict "a" 1) (dict "a" 2 "b" 3)"# => "map[a:1 b:3]", |call| merge(call, false);
    "mustMerge": (Map; Map) -> "interface {}", "Adds what the first map lacks from the others, and returns the first map.",
        r#"(dict "a" 1) (dict "a" 2 "b" 3)"# => "map[a:1 b:3]", |call| merge_or_fail(call, false);
    "mergeOverwrite": (Map; Map) -> "interface {}", "Sets in the first map what the others have, and returns the first map.",
        r#"(dict "a" 1) (dict "a" 2 "b" 3)"# => "map[a:2 b:3]", |call| merge(call, true);
    "mustMergeOverwrite": (Map; Map) -> "interface {}", "Sets in the first map what the others have, and returns the first map.",
        r#"(dict "a" 1) (dict "a" 2 "b" 3)"# => "map[a:2 b:3]", |call| merge_or_fail(call, true);
    "dig": (; Any) -> "interface {}", "Returns the value that keys lead to from map to map, or the default before the map.",
        r#""a" "b" "none" (dict "a" (dict "b" 1))"# => "1", dig;
    "deepCopy" "mustDeepCopy": (Any) -> "interface {}", "Returns a copy of the value and of all maps and lists in it.", r#"(dict "a" (list 1))"# => "map[a:[1]]",
        |call| deep_copy(call.any(0), call.budget);
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
    insert(&map, call.text(1).into(), call.any(2).clone(), call.budget)?;
    Ok(Value::Map(map))
}

fn unset(call: &Call<'_>) -> Result<Value, Problem> {
    let map = map_or_nil(call, 0);
    map.remove(call.text(1));
    Ok(Value::Map(map))
}

fn pluck(call: &Call<'_>) -> Result<Value, Problem> {
    let maps = (1..call.arguments.len()).filter_map(|index| call.map(index));
    call.made_list(maps.filter_map(|map| map.get(call.text(0))).collect())
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

fn dig(call: &Call<'_>) -> Result<Value, Problem> {
    let [keys @ .., default, start] = call.arguments else {
        return Err(too_few_for_dig());
    };
    if keys.is_empty() {
        return Err(too_few_for_dig());
    }
    let mut map = as_map(start)?.clone();
    let keys = keys.iter().map(as_text).collect::<Result<Vec<_>, _>>()?;
    call.budget.step(keys.len() as u64)?;
    let last = keys.len() - 1;
    for (index, key) in keys.into_iter().enumerate() {
        let Some(value) = map.get(key) else { break };
        if index == last {
            return Ok(value);
        }
        map = as_map(&value)?.clone();
    }
    Ok(default.clone())
}

fn too_few_for_dig() -> Problem {
    Problem::new("dig needs at least three arguments")
}

fn as_map(value: &Value) -> Result<&Map, Problem> {
    match value {
        Value::Map(map) if *map.element() == Type::Any => Ok(map),
        _ => Err(wrong_interface(value, "map[string]interface {}")),
    }
}

fn as_text(value: &Value) -> Result<&str, Problem> {
    match value {
        Value::String(text) => Ok(text),
        _ => Err(wrong_interface(value, "string")),
    }
}

/// Go's panic for a value that an interface holds in place of the wanted type.
fn wrong_interface(value: &Value, wanted: &str) -> Problem {
    let name = match value {
        Value::Nil => "nil".to_owned(),
        value => type_name(value),
    };
    Problem::new(format!(
        "interface conversion: interface {{}} is {name}, not {wanted}"
    ))
}
