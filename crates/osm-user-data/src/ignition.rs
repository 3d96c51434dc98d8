//! Ignition configs, spec 3.3.0, which Flatcar reads since 3185.
//!
//! Ignition refuses a config as a whole, and the machine then ends in its emergency shell: what it would
//! refuse must be found here.

use std::collections::BTreeSet;

use osm_api::gzip;
use osm_api::names::MACHINE_NAME_PLACEHOLDER;
use osm_api::profile::Unit;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};

use crate::error::UserDataError;
use crate::filled::{Filled, FilledFile, distinct, keep_last, mode, unfit};
use crate::unit_text;
use crate::units::{unit_files, unit_texts};

/// The user that every Flatcar has.
const DEFAULT_USER: &str = "core";

/// What a data URL escapes: everything but letters, digits and these.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/')
    .remove(b':')
    .remove(b'=')
    .remove(b',')
    .remove(b'@')
    .remove(b';')
    .remove(b'(')
    .remove(b')')
    .remove(b'!')
    .remove(b'*');

/// An Ignition config.
pub(crate) fn write(filled: Filled) -> Result<String, UserDataError> {
    let mut files = Vec::new();
    for FilledFile {
        path,
        permissions,
        text,
        ..
    } in &filled.files
    {
        files.push(file(path, mode(path, *permissions)?, text));
    }
    let mut units = Vec::new();
    for unit in &filled.units {
        units.extend(write_unit(unit)?);
        // Ignition leaves out what is empty.
        let empty = unit_files(unit).filter(|(_, text)| text.is_empty());
        files.extend(empty.map(|(path, text)| file(&path, 0o644, text)));
    }
    // Ignition refuses a path that occurs twice, also as that of a unit.
    let of_units: BTreeSet<String> = filled
        .units
        .iter()
        .flat_map(unit_files)
        .filter(|(_, text)| !text.is_empty())
        .map(|(path, _)| path)
        .collect();
    files.retain(|file| !of_units.contains(path_of(file)));
    keep_last(&mut files, path_of);

    let mut document = Map::from_iter([
        ("ignition".to_owned(), json!({"version": "3.3.0"})),
        ("passwd".to_owned(), Value::Object(passwd(&filled))),
        ("storage".to_owned(), json!({"files": files})),
        ("systemd".to_owned(), json!({"units": units})),
    ]);
    let is_empty = |part: &Value| {
        part.as_object()
            .is_none_or(|part| part.values().all(|list| *list == json!([])))
    };
    document.retain(|_, part| !is_empty(part));
    // `<` stays as it is, so that machine-controller finds its placeholder in units.
    Ok(format!("{}\n", Value::Object(document)))
}

/// `passwd` of a config: the pool's SSH keys.
pub(crate) fn passwd(filled: &Filled) -> Map<String, Value> {
    if filled.ssh_keys.is_empty() {
        return Map::new();
    }
    let user = json!({"name": DEFAULT_USER, "sshAuthorizedKeys": distinct(&filled.ssh_keys)});
    Map::from_iter([("users".to_owned(), json!([user]))])
}

fn path_of(file: &Value) -> &str {
    file.get("path").and_then(Value::as_str).unwrap_or_default()
}

/// May be written again: by the next stage, or after a power cut.
fn file(path: &str, mode: u32, text: &str) -> Value {
    json!({"path": path, "mode": mode, "overwrite": true, "contents": contents(text)})
}

/// A text as a data URL, compressed where that is shorter. Not where machine-controller must find its
/// placeholder.
fn contents(text: &str) -> Value {
    // With upper case digits, in which machine-controller looks for `%3CMACHINE_NAME%3E`.
    let mut plain = String::with_capacity(text.len() + 8);
    plain.push_str("data:,");
    plain.extend(utf8_percent_encode(text, ESCAPED));
    let compressed = format!("data:;base64,{}", gzip::BEST.base64(text));
    if compressed.len() < plain.len() && !text.contains(MACHINE_NAME_PLACEHOLDER) {
        json!({"compression": "gzip", "source": compressed})
    } else {
        json!({"source": plain})
    }
}

fn write_unit(unit: &Unit) -> Result<Option<Value>, UserDataError> {
    for (path, text) in unit_files(unit) {
        unit_text::check(text).map_err(|problem| unfit(&path, problem))?;
    }
    let mut written = Map::from_iter([("name".to_owned(), json!(unit.name))]);
    if unit.mask == Some(true) {
        written.insert("mask".to_owned(), json!(true));
    } else if let Some(enable) = unit.enable {
        written.insert("enabled".to_owned(), json!(enable));
    }
    written.extend(unit_texts(unit, "contents", "dropins"));
    // With a name alone there is nothing to do.
    Ok((written.len() > 1).then_some(Value::Object(written)))
}
