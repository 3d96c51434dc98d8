//! Patches, and server-side apply.

use serde_json::{Map, Value};

use super::kinds::Kind;
use super::state::Failure;

/// The object after a patch of this content type.
pub(super) fn patched(kind: &Kind, old: &Value, content_type: &str, patch: Value) -> Result<Value, Failure> {
    let mut object = old.clone();
    match content_type {
        "application/json-patch+json" => {
            let operations: json_patch::Patch = serde_json::from_value(patch)
                .map_err(|error| Failure::new(400, "BadRequest", format!("not a JSON patch: {error}")))?;
            json_patch::patch(&mut object, &operations).map_err(|error| {
                Failure::new(422, "Invalid", format!("the patch does not apply: {error}"))
            })?;
        }
        // Of the kinds that are not custom, no list that anybody patches here is merged by keys.
        "application/strategic-merge-patch+json" if !kind.custom && !has_directives(&patch) => {
            json_patch::merge(&mut object, &patch);
        }
        "application/merge-patch+json" => json_patch::merge(&mut object, &patch),
        other => {
            let message = format!("patches of {} can't be {other}", kind.plural);
            return Err(Failure::new(415, "UnsupportedMediaType", message));
        }
    }
    Ok(object)
}

/// Whether a strategic merge patch says more than what to merge.
fn has_directives(patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields
            .iter()
            .any(|(key, value)| key.starts_with('$') || has_directives(value)),
        Value::Array(items) => items.iter().any(has_directives),
        _ => false,
    }
}

/// Fields of a status that are one value, whatever is in them.
const ATOMIC: [&str; 1] = ["rendered"];

/// Server-side apply with force of `new`, after the same manager has applied `last`: what it no longer sends
/// is removed, unless another manager has sent it too (`others`). Lists of objects with a `type` are maps by
/// it, other lists are one value.
pub(super) fn apply(target: &mut Value, last: Option<&Value>, others: &[&Value], new: &Value) {
    if let Some(last) = last {
        remove_left_out(target, last, others, new);
    }
    add(target, new);
}

fn add(target: &mut Value, new: &Value) {
    match new {
        Value::Object(new) => {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            let Value::Object(target) = target else { return };
            for (key, value) in new.iter().filter(|(_, value)| !value.is_null()) {
                let target = target.entry(key.clone()).or_insert(Value::Null);
                if ATOMIC.contains(&key.as_str()) {
                    *target = without_nulls(value);
                } else {
                    add(target, value);
                }
            }
        }
        Value::Array(items) if is_map(items) => {
            if !target.is_array() {
                *target = Value::Array(Vec::new());
            }
            let Value::Array(target) = target else { return };
            for item in items {
                match target.iter_mut().find(|known| key_of(known) == key_of(item)) {
                    Some(known) => add(known, item),
                    None => target.push(item.clone()),
                }
            }
        }
        value => *target = value.clone(),
    }
}

fn without_nulls(value: &Value) -> Value {
    let mut copy = Value::Null;
    match value {
        // One level down, nothing is atomic.
        Value::Object(_) => add(&mut copy, value),
        value => copy = value.clone(),
    }
    copy
}

fn remove_left_out(target: &mut Value, last: &Value, others: &[&Value], new: &Value) {
    match (target, last) {
        (Value::Object(target), Value::Object(last)) => {
            for (key, was) in last {
                let of_others: Vec<&Value> = others.iter().filter_map(|other| other.get(key)).collect();
                let new = new.get(key).unwrap_or(&Value::Null);
                if new.is_null() && of_others.is_empty() {
                    target.remove(key);
                } else if let Some(target) = target.get_mut(key) {
                    remove_left_out(target, was, &of_others, new);
                }
            }
        }
        (Value::Array(target), Value::Array(last)) if is_map(last) => {
            for was in last {
                let Some(key) = key_of(was) else { continue };
                let of_others: Vec<&Value> = others.iter().filter_map(|other| item(other, key)).collect();
                let new = item(new, key).unwrap_or(&Value::Null);
                if new.is_null() && of_others.is_empty() {
                    target.retain(|known| key_of(known) != Some(key));
                } else if let Some(target) = target.iter_mut().find(|known| key_of(known) == Some(key)) {
                    remove_left_out(target, was, &of_others, new);
                }
            }
        }
        _ => {}
    }
}

/// Takes out of `sent` what a write has changed, from `old` to `new`: its manager no longer owns that. As
/// `Updater::update` in
/// <https://github.com/kubernetes-sigs/structured-merge-diff/blob/master/merge/update.go> with force: of the fields of other managers, "the
/// conflicts" are removed, which are those that the write modifies or adds, and those that it removes.
pub(super) fn disown(sent: &mut Value, old: &Value, new: &Value) {
    match sent {
        Value::Object(fields) => fields.retain(|key, sent| {
            let [old, new] = [old, new].map(|object| object.get(key).unwrap_or(&Value::Null));
            let is_parted = !ATOMIC.contains(&key.as_str()) && (sent.is_object() || is_list_map(sent));
            if is_parted && !new.is_null() {
                disown(sent, old, new);
            }
            (is_parted && !new.is_null()) || old == new
        }),
        Value::Array(items) => items.retain_mut(|sent| {
            let [old, new] = [old, new].map(|list| item(list, key_of(sent).unwrap_or_default()));
            if let Some(new) = new {
                disown(sent, old.unwrap_or(&Value::Null), new);
            }
            new.is_some()
        }),
        _ => {}
    }
}

fn is_list_map(list: &Value) -> bool {
    list.as_array().is_some_and(|items| is_map(items))
}

/// The item of a list with this key.
fn item<'a>(list: &'a Value, key: &str) -> Option<&'a Value> {
    let items = list.as_array()?;
    items.iter().find(|item| key_of(item) == Some(key))
}

fn is_map(items: &[Value]) -> bool {
    !items.is_empty() && items.iter().all(|item| key_of(item).is_some())
}

fn key_of(item: &Value) -> Option<&str> {
    item.get("type")?.as_str()
}
