//! cloud-init modules that Ignition has a counterpart for: users and groups.

use osm_api::profile::ProvisioningUtility;
use serde_json::{Map, Value, json};

use super::super::unfit;
use super::{DEFAULT_USER, Filled};
use crate::Stage;
use crate::error::UserDataError;

/// Why a profile for Ignition can't have this module, if so.
pub(crate) fn unsupported(utility: ProvisioningUtility, module: &str) -> Option<&'static str> {
    if utility == ProvisioningUtility::CloudInit {
        return None;
    }
    match module {
        "users" | "groups" => None,
        "bootcmd" | "runcmd" => {
            Some("Ignition runs no commands: write a script under files, and a unit that runs it under units")
        }
        "packages" | "package_update" | "package_upgrade" | "package_reboot_if_required" => {
            Some("Flatcar has no package manager: let a unit fetch what you need to /opt")
        }
        _ => Some("Ignition has no such module; it has users and groups: use files and units instead"),
    }
}

/// Fields of a user, as cloud-init and as Ignition call them.
const USER_FIELDS: [(&str, &str); 12] = [
    ("name", "name"),
    ("gecos", "gecos"),
    ("homedir", "homeDir"),
    ("no_create_home", "noCreateHome"),
    ("no_log_init", "noLogInit"),
    ("no_user_group", "noUserGroup"),
    ("passwd", "passwordHash"),
    ("hashed_passwd", "passwordHash"),
    ("primary_group", "primaryGroup"),
    ("shell", "shell"),
    ("system", "system"),
    ("uid", "uid"),
];

/// `passwd` of a config: the pool's SSH keys and what the modules say.
pub(super) fn passwd(stage: Stage, filled: &Filled) -> Result<Map<String, Value>, UserDataError> {
    let place = |key: &str| format!("{}.modules.{key}", stage.field());
    let mut users: Vec<Map<String, Value>> = Vec::new();
    let mut groups: Vec<Value> = Vec::new();
    if !filled.ssh_keys.is_empty() {
        let core = json!({"name": DEFAULT_USER, "sshAuthorizedKeys": distinct(&filled.ssh_keys)});
        users.extend(core.as_object().cloned());
    }
    for (key, value) in &filled.modules {
        let place = place(key);
        if let Some(problem) = unsupported(ProvisioningUtility::Ignition, key) {
            return Err(unfit(&place, problem));
        }
        let items = value.as_array().ok_or_else(|| unfit(&place, "must be a list"))?;
        for (i, item) in items.iter().enumerate() {
            let place = format!("{place}[{i}]");
            if key == "groups" {
                let name = item.as_str().filter(|name| !name.is_empty());
                let name = name.ok_or_else(|| {
                    unfit(&place, "must be a group's name; list the group at its users to give it members")
                })?;
                groups.push(json!({"name": name}));
            } else if item != "default" {
                add_user(&mut users, user(&place, item)?, &place)?;
            }
        }
    }
    let users = users.into_iter().map(Value::Object).collect();
    let mut passwd = Map::from_iter([("users".to_owned(), Value::Array(users))]);
    distinct_names(&groups, &place("groups"))?;
    passwd.insert("groups".to_owned(), Value::Array(groups));
    Ok(passwd)
}

/// The default user may be there already, with the pool's keys.
fn add_user(
    users: &mut Vec<Map<String, Value>>,
    user: Map<String, Value>,
    place: &str,
) -> Result<(), UserDataError> {
    let Some(known) = users.iter_mut().find(|known| known.get("name") == user.get("name")) else {
        users.push(user);
        return Ok(());
    };
    if known.get("name").is_none_or(|name| name != DEFAULT_USER) || known.len() > 2 {
        return Err(unfit(place, "this user is listed more than once"));
    }
    let keys = |user: &Map<String, Value>| user.get("sshAuthorizedKeys").map_or_else(Vec::new, texts);
    let keys = [keys(known), keys(&user)].concat();
    known.extend(user);
    known.insert("sshAuthorizedKeys".to_owned(), json!(distinct(&keys)));
    Ok(())
}

fn user(place: &str, item: &Value) -> Result<Map<String, Value>, UserDataError> {
    let item = item.as_object().ok_or_else(|| unfit(place, "must be an object with the user's name"))?;
    let mut user = Map::new();
    for (key, value) in item {
        let place = format!("{place}.{key}");
        match key.as_str() {
            "ssh_authorized_keys" => {
                user.insert("sshAuthorizedKeys".to_owned(), json!(distinct(&words(&place, value, None)?)));
            }
            "groups" => {
                user.insert("groups".to_owned(), json!(distinct(&words(&place, value, Some(','))?)));
            }
            // Without a password hash, nobody can log in with one.
            "lock_passwd" if *value == json!(true) => {}
            _ => {
                let known = USER_FIELDS.iter().find(|(known, _)| known == key);
                let (_, name) =
                    known.ok_or_else(|| unfit(&place, "Ignition can't set this for a user: remove it"))?;
                let fits = match *name {
                    "noCreateHome" | "noLogInit" | "noUserGroup" | "system" => value.is_boolean(),
                    "uid" => value.as_u64().is_some_and(|uid| u32::try_from(uid).is_ok()),
                    _ => value.as_str().is_some_and(|text| !text.contains(['\0', '\n'])),
                };
                if !fits {
                    return Err(unfit(&place, "has a value that Ignition can't take here"));
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
fn words(place: &str, value: &Value, separator: Option<char>) -> Result<Vec<String>, UserDataError> {
    let list = match (value, separator) {
        (Value::String(text), Some(separator)) => text.split(separator).map(str::to_owned).collect(),
        (Value::Array(items), _) if items.iter().all(Value::is_string) => texts(value),
        _ => return Err(unfit(place, "must be a list of texts")),
    };
    Ok(list)
}

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Trimmed, each once, in order: a repetition makes Ignition refuse the config.
fn distinct(items: &[String]) -> Vec<&str> {
    let mut seen: Vec<&str> = Vec::new();
    for item in items.iter().map(|item| item.trim()).filter(|item| !item.is_empty()) {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn distinct_names(groups: &[Value], place: &str) -> Result<(), UserDataError> {
    let repeated =
        groups.iter().enumerate().any(|(i, group)| groups.iter().take(i).any(|seen| seen == group));
    if repeated { Err(unfit(place, "a group is listed more than once")) } else { Ok(()) }
}
