//! cloud-init modules that Ignition has a counterpart for: users and groups.

use serde_json::{Map, Value, json};

use super::{Filled, unfit};
use crate::Stage;
use crate::error::UserDataError;
use crate::user_data::users::{self, Kind, Words};

/// Why a profile for Ignition can't have this module, if so.
pub(in crate::user_data) fn unsupported(module: &str) -> Option<&'static str> {
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

const WORDS: Words = Words {
    program: "Ignition",
    fields: &[
        ("name", "name", Kind::Text),
        ("gecos", "gecos", Kind::Text),
        ("homedir", "homeDir", Kind::Text),
        ("no_create_home", "noCreateHome", Kind::Flag),
        ("no_log_init", "noLogInit", Kind::Flag),
        ("no_user_group", "noUserGroup", Kind::Flag),
        ("passwd", "passwordHash", Kind::Text),
        ("hashed_passwd", "passwordHash", Kind::Text),
        ("primary_group", "primaryGroup", Kind::Text),
        ("shell", "shell", Kind::Text),
        ("system", "system", Kind::Flag),
        ("uid", "uid", Kind::Number),
    ],
    keys: "sshAuthorizedKeys",
};

/// `passwd` of a config: the pool's SSH keys, and the users and groups of the modules.
pub(in crate::user_data) fn passwd(
    stage: Stage,
    filled: &Filled,
) -> Result<Map<String, Value>, UserDataError> {
    let place = |key: &str| format!("{}.modules.{key}", stage.field());
    for key in filled.modules.keys() {
        if let Some(problem) = unsupported(key) {
            return Err(unfit(&place(key), problem));
        }
    }
    let users = users::list(
        &WORDS,
        &filled.ssh_keys,
        filled.modules.get("users"),
        &place("users"),
    )?;
    let users = users.into_iter().map(Value::Object).collect();
    let groups = match filled.modules.get("groups") {
        Some(groups) => named_groups(&place("groups"), groups)?,
        None => Vec::new(),
    };
    Ok(Map::from_iter([
        ("users".to_owned(), Value::Array(users)),
        ("groups".to_owned(), Value::Array(groups)),
    ]))
}

fn named_groups(place: &str, module: &Value) -> Result<Vec<Value>, UserDataError> {
    let mut groups: Vec<Value> = Vec::new();
    for (of_group, item) in users::items(place, module)? {
        let name = item.as_str().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| {
            unfit(
                &of_group,
                "must be a group's name; list the group at its users to give it members",
            )
        })?;
        let group = json!({"name": name});
        if groups.contains(&group) {
            return Err(unfit(place, "a group is listed more than once"));
        }
        groups.push(group);
    }
    Ok(groups)
}
