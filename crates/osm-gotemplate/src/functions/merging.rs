//! Merging and copying of maps: what `dario.cat/mergo` and `github.com/mitchellh/copystructure` do with the values of templates.
//!
//! Maps are merged in place. Values that a map lacks are shared with the map that they come from, so that a later merge changes both.

use std::rc::Rc;

use super::{Call, Problem, version_methods};
use crate::budget::Budget;
use crate::value::{List, MAX_NESTING, Map, Pointer, Type, Value};

/// Merges all maps into the first. The result is an empty text if maps can't be merged.
pub(crate) fn merge(call: &Call<'_>, overwrite: bool) -> Result<Value, Problem> {
    match merge_or_fail(call, overwrite) {
        Err(Problem::Failed(message)) if message == DIFFERENT_TYPES => Ok("".into()),
        result => result,
    }
}

/// Merges all maps into the first.
pub(crate) fn merge_or_fail(call: &Call<'_>, overwrite: bool) -> Result<Value, Problem> {
    let sources = call.arguments.len();
    let mut target = call.map(0).cloned().unwrap_or_else(|| Map::nil(Type::Any));
    for source in (1..sources).filter_map(|index| call.map(index)) {
        if source.is_nil() {
            continue;
        }
        if target.is_nil() {
            call.budget.copy(Map::bytes(0))?;
            target = Map::new(Type::Any, [].into());
        }
        merge_into(&target, source, overwrite, call.budget, 0)?;
    }
    Ok(Value::Map(target))
}

const DIFFERENT_TYPES: &str = "src and dst must be of same type";

fn merge_into(
    target: &Map,
    source: &Map,
    overwrite: bool,
    budget: &dyn Budget,
    depth: usize,
) -> Result<(), Problem> {
    if depth > MAX_NESTING {
        return Err(Problem::new(format!(
            "maps that are nested more than {MAX_NESTING} levels deep can't be merged"
        )));
    }
    budget.step(1)?;
    for (key, value) in source.entries(budget)? {
        let present = target.get(&key);
        if matches!(value, Value::Nil) {
            if overwrite {
                assign(target, source, key, value, budget)?;
            }
            continue;
        }
        let is_list = matches!(value.underlying(), Value::List(_));
        match value.underlying() {
            Value::Map(_) | Value::Struct(_) | Value::Pointer(_) => {
                merge_values(present.as_ref(), &value, overwrite, budget, depth)?;
            }
            Value::List(_) if overwrite || target.is_empty() => {
                assign(target, source, key.clone(), value.clone(), budget)?;
            }
            _ => {}
        }
        let holds_something = present.as_ref().filter(|present| !is_empty(present));
        let is_merged = holds_something.is_some_and(|present| {
            is_list
                || matches!(
                    (present.underlying(), value.underlying()),
                    (Value::Map(_), Value::Map(_))
                )
        });
        if !is_merged && (overwrite || holds_something.is_none()) {
            assign(target, source, key, value, budget)?;
        }
    }
    Ok(())
}

/// Merges a map into a map that the target has already. Other values can't be changed in place.
fn merge_values(
    target: Option<&Value>,
    source: &Value,
    overwrite: bool,
    budget: &dyn Budget,
    depth: usize,
) -> Result<(), Problem> {
    match (target.map(Value::underlying), source.underlying()) {
        (Some(Value::Map(target)), Value::Map(source)) if !target.is_nil() => {
            merge_into(target, source, overwrite, budget, depth + 1)
        }
        (Some(Value::Pointer(target)), Value::Map(_) | Value::Struct(_)) if !overwrite => {
            let Some(pointed_to) = target.value() else {
                return Ok(());
            };
            if pointed_to.type_of() != source.type_of() {
                return Err(Problem::new(DIFFERENT_TYPES));
            }
            merge_values(Some(pointed_to), source, overwrite, budget, depth + 1)
        }
        _ => Ok(()),
    }
}

/// Sets a key to the value of another map, whose type must fit.
fn assign(
    target: &Map,
    source: &Map,
    key: Rc<str>,
    value: Value,
    budget: &dyn Budget,
) -> Result<(), Problem> {
    if *target.element() != Type::Any && target.element() != source.element() {
        return Err(Problem::new(format!(
            "reflect.Value.SetMapIndex: value of type {} is not assignable to type {}",
            source.element(),
            target.element()
        )));
    }
    insert(target, key, value, budget)
}

/// mergo's emptiness: a pointer to an empty value is empty too, but a complex number never is.
fn is_empty(value: &Value) -> bool {
    match value.underlying() {
        Value::Pointer(pointer) => pointer.value().is_none_or(is_empty),
        Value::Complex(..) => false,
        _ => !value.is_true(),
    }
}

/// Sets a key. The map must not become a part of itself.
pub(crate) fn insert(map: &Map, key: Rc<str>, value: Value, budget: &dyn Budget) -> Result<(), Problem> {
    charge_parts(&value, budget)?;
    budget.copy(Map::ENTRY_BYTES.saturating_add(key.len()))?;
    map.insert(key, value)
        .map_err(|cycle| Problem::new(cycle.to_string()))
}

/// Charges a step for each part of a value.
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

/// Copies a value with all maps and lists in it. Values of types with names are shared: nothing changes them.
pub(crate) fn deep_copy(value: &Value, budget: &dyn Budget) -> Result<Value, Problem> {
    if matches!(value, Value::Nil) {
        return Err(Problem::new("reflect: call of reflect.Value.Type on zero Value"));
    }
    copy(value, budget, 0)
}

fn copy(value: &Value, budget: &dyn Budget, depth: usize) -> Result<Value, Problem> {
    budget.step(1)?;
    if depth > MAX_NESTING {
        return Err(Problem::new(format!(
            "values that are nested more than {MAX_NESTING} levels deep can't be copied"
        )));
    }
    Ok(match value {
        Value::List(list) if !list.is_nil() => {
            budget.copy(List::bytes(list.items().len()))?;
            let mut items = Vec::with_capacity(list.items().len());
            for item in list.items() {
                items.push(copy(item, budget, depth + 1)?);
            }
            Value::List(List::new(list.element().clone(), items))
        }
        Value::Map(map) if !map.is_nil() => {
            budget.copy(Map::bytes(map.len()))?;
            let entries = map
                .entries(budget)?
                .into_iter()
                .map(|(key, value)| Ok((key, copy(&value, budget, depth + 1)?)));
            Value::Map(Map::new(
                map.element().clone(),
                entries.collect::<Result<_, Problem>>()?,
            ))
        }
        Value::Pointer(pointer) => match pointer.value() {
            Some(to) => {
                budget.copy(Pointer::BYTES)?;
                Value::Pointer(Pointer::to_value(copy(to, budget, depth + 1)?))
            }
            None => value.clone(),
        },
        Value::Named(named) if &**named.name() == version_methods::VERSION => {
            budget.copy(version_methods::BYTES_OF_VERSION)?;
            version_methods::empty()
        }
        _ => value.clone(),
    })
}
