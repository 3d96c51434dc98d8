//! Converts what the upstream OSM passes on unchanged: paths, encodings, units and modules. It neither checks
//! nor merges them, so that the program on the machine decides what they become. Here they become the same.
//! `docs/go-templates.md` has the table.

use std::collections::BTreeMap;

use osm_api::config::StageConfig;
use osm_api::profile::Unit;
use osm_user_data::filled::keep_last;
use osm_user_data::reader::{Reader, unsupported_module};
use osm_user_data::stage::Stage;
use osm_user_data::yaml;
use serde_json::Value;

/// A path as it is on the machine: absolute, without `//`, `.` and `..`. `None` where no file can have it.
pub(crate) fn clean_path(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let is_file = !parts.is_empty() && !path.contains(char::is_control);
    is_file.then(|| format!("/{}", parts.join("/")))
}

/// Makes of a rendered stage what becomes of it on the machine. Returns a warning for each module that is
/// left out.
pub(crate) fn settle(stage: Stage, reader: Reader, config: &mut StageConfig) -> Vec<String> {
    for file in &mut config.files {
        file.path = clean_path(&file.path).unwrap_or_default();
    }
    settle_units(&mut config.units);
    settle_modules(stage, reader, &mut config.modules)
}

/// Units and drop-ins that are listed more than once become one, as the last one of them has it.
fn settle_units(units: &mut Vec<Unit>) {
    let mut settled: Vec<Unit> = Vec::new();
    let mut places = BTreeMap::<String, usize>::new();
    for unit in units.drain(..) {
        let place = *places.entry(unit.name.clone()).or_insert(settled.len());
        match settled.get_mut(place) {
            None => settled.push(unit),
            Some(known) => {
                known.enable = unit.enable.or(known.enable);
                known.mask = unit.mask.or(known.mask);
                known.content = unit.content.or(known.content.take());
                known.drop_ins.extend(unit.drop_ins);
            }
        }
    }
    for unit in &mut settled {
        keep_last(&mut unit.drop_ins, |drop_in| &drop_in.name);
        if unit.mask == Some(true) {
            (unit.enable, unit.content) = (None, None);
        }
    }
    *units = settled;
}

fn settle_modules(stage: Stage, reader: Reader, modules: &mut Option<Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    let Some(named) = modules.as_mut().and_then(Value::as_object_mut) else {
        return warnings;
    };
    named.retain(|name, value| match unsupported_module(reader, name) {
        Some(problem) => {
            warnings.push(format!("{}.modules.{name} is left out: {problem}", stage.field()));
            false
        }
        None => !value.is_null(),
    });
    for (name, value) in named.iter_mut() {
        match (name.as_str(), value) {
            ("bootcmd" | "runcmd", Value::Array(commands)) => commands.iter_mut().for_each(read_unquoted),
            ("rh_subscription" | "yum_repo_dir" | "yum_repos", value) => read_below(value),
            _ => {}
        }
    }
    if named.is_empty() {
        *modules = None;
    }
    warnings
}

/// [`read_unquoted`] for every text of a tree. One that is empty is null to YAML.
fn read_below(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null() && *value != "");
            fields.values_mut().for_each(read_below);
        }
        text => read_unquoted(text),
    }
}

/// The upstream OSM writes these texts into its YAML without quotes, so that one with quotes of its own, a
/// list in brackets or a block becomes what YAML reads. What YAML would break, such as a command with a
/// colon, stays the text that was meant.
fn read_unquoted(value: &mut Value) {
    let starts = ['\'', '"', '[', '|', '>'];
    let Some(text) = value
        .as_str()
        .filter(|text| text.trim_start().starts_with(starts))
    else {
        return;
    };
    let mut documents = yaml::read(text).unwrap_or_default().into_iter();
    let read = match (documents.next(), documents.next()) {
        (Some(Value::String(text)), None) => Value::String(text),
        (Some(Value::Array(items)), None) => {
            let word = |item: Value| match item {
                Value::String(text) => Some(Value::String(text)),
                Value::Bool(_) | Value::Number(_) => Some(Value::String(item.to_string())),
                _ => None,
            };
            match items.into_iter().map(word).collect() {
                Some(words) => Value::Array(words),
                None => return,
            }
        }
        _ => return,
    };
    *value = read;
}
