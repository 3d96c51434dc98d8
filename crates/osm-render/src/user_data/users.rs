//! Users, as cloud-init's module `users` lists them, in the words of another program.

use serde_json::{Map, Value, json};

use super::unfit;
use crate::error::UserDataError;

/// The user that every Flatcar has.
pub(super) const DEFAULT_USER: &str = "core";

/// What a program that makes users calls their fields.
pub(super) struct Words {
    /// The program's name, for messages.
    pub(super) program: &'static str,
    /// Fields of a user: cloud-init's names, the program's, and what they hold.
    pub(super) fields: &'static [(&'static str, &'static str, Kind)],
    /// Its name of `ssh_authorized_keys`.
    pub(super) keys: &'static str,
}

/// What a field of a user holds.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Text,
    Flag,
    Number,
}

/// A user in the program's words.
pub(super) type User = Map<String, Value>;

/// The pool's SSH keys, as those of the default user, and the users of the module. Keys are trimmed, and each is listed once:
/// Ignition refuses repetitions.
pub(super) fn list(
    words: &Words,
    ssh_keys: &[String],
    module: Option<&Value>,
    place: &str,
) -> Result<Vec<User>, UserDataError> {
    let mut users: Vec<User> = Vec::new();
    if !ssh_keys.is_empty() {
        users.push(Map::from_iter([
            ("name".to_owned(), json!(DEFAULT_USER)),
            (words.keys.to_owned(), json!(distinct(ssh_keys))),
        ]));
    }
    for (place, item) in module.map_or_else(|| Ok(Vec::new()), |module| items(place, module))? {
        if item != "default" {
            add(words, &mut users, user(words, &place, item)?, &place)?;
        }
    }
    Ok(users)
}

/// The items of a list with their places.
pub(super) fn items<'a>(place: &str, list: &'a Value) -> Result<Vec<(String, &'a Value)>, UserDataError> {
    let items = list.as_array().ok_or_else(|| unfit(place, "must be a list"))?;
    Ok(items
        .iter()
        .enumerate()
        .map(|(i, item)| (format!("{place}[{i}]"), item))
        .collect())
}

/// The default user may be there already, with the pool's keys.
fn add(words: &Words, users: &mut Vec<User>, user: User, place: &str) -> Result<(), UserDataError> {
    let Some(known) = users
        .iter_mut()
        .find(|known| known.get("name") == user.get("name"))
    else {
        users.push(user);
        return Ok(());
    };
    if known.get("name").is_none_or(|name| name != DEFAULT_USER) || known.len() > 2 {
        return Err(unfit(place, "this user is listed more than once"));
    }
    let keys = |user: &User| user.get(words.keys).map_or_else(Vec::new, texts);
    let keys = [keys(known), keys(&user)].concat();
    known.extend(user);
    known.insert(words.keys.to_owned(), json!(distinct(&keys)));
    Ok(())
}

fn user(words: &Words, place: &str, item: &Value) -> Result<User, UserDataError> {
    let item = item
        .as_object()
        .ok_or_else(|| unfit(place, "must be an object with the user's name"))?;
    let mut user = Map::new();
    for (key, value) in item {
        let place = format!("{place}.{key}");
        match key.as_str() {
            "ssh_authorized_keys" => {
                user.insert(
                    words.keys.to_owned(),
                    json!(distinct(&several(&place, value, None)?)),
                );
            }
            "groups" => {
                user.insert(
                    "groups".to_owned(),
                    json!(distinct(&several(&place, value, Some(','))?)),
                );
            }
            // Without a password hash, no user can log in with a password.
            "lock_passwd" if *value == json!(true) => {}
            _ => {
                let Some((_, name, kind)) = words.fields.iter().find(|(known, ..)| known == key) else {
                    let problem = format!("{} can't set this for a user; remove it", words.program);
                    return Err(unfit(&place, problem));
                };
                let fits = match kind {
                    Kind::Flag => value.is_boolean(),
                    Kind::Number => value.as_u64().is_some_and(|number| u32::try_from(number).is_ok()),
                    Kind::Text => value.as_str().is_some_and(|text| !text.contains(['\0', '\n'])),
                };
                if !fits {
                    let problem = format!("has a value that {} does not accept here", words.program);
                    return Err(unfit(&place, problem));
                }
                user.insert((*name).to_owned(), value.clone());
            }
        }
    }
    if user.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(unfit(place, "has no name"));
    }
    Ok(user)
}

/// A list of texts, or one text, perhaps with several in it.
fn several(place: &str, value: &Value, separator: Option<char>) -> Result<Vec<String>, UserDataError> {
    let list = match (value, separator) {
        (Value::String(text), Some(separator)) => text.split(separator).map(str::to_owned).collect(),
        (Value::Array(items), _) if items.iter().all(Value::is_string) => texts(value),
        _ => return Err(unfit(place, "must be a list of strings")),
    };
    Ok(list)
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// Trimmed, each once, in order.
fn distinct(items: &[String]) -> Vec<&str> {
    let mut seen: Vec<&str> = Vec::new();
    for item in items
        .iter()
        .map(|item| item.trim())
        .filter(|item| !item.is_empty())
    {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}
