//! What the Go implementation passes on as it is: paths, encodings, units and modules. It neither checks nor merges them, so that the program
//! on the machine decides what they become. Here they become the same, with a warning where that may not be what was meant.
//! `docs/go-templates.md` has the table.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::config::StageConfig;
use osm_api::profile::{File, Unit};
use serde_json::Value;

use crate::reserved::RESERVED_PREFIX;
use crate::user_data::{self, Reader};
use crate::{Stage, yaml};

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

/// Makes of a rendered stage what becomes of it on the machine. Returns the warnings.
pub(crate) fn settle(stage: Stage, reader: Reader, config: &mut StageConfig) -> Vec<String> {
    let mut warnings = Vec::new();
    for file in &mut config.files {
        settle_file(reader, file, &mut warnings);
    }
    settle_units(&mut config.units, &mut warnings);
    warnings.extend(duplicates(stage, reader, config));
    settle_modules(stage, reader, &mut config.modules, &mut warnings);
    warnings
}

fn settle_file(reader: Reader, file: &mut File, warnings: &mut Vec<String>) {
    file.path = clean_path(&file.path).unwrap_or_default();
    let path = &file.path;
    if path.contains("{{") {
        warnings.push(format!(
            "the file {path} has this name, because paths are not templates"
        ));
    }
    let inline = file.content.inline.as_ref();
    let Some((encoding, data)) = inline.and_then(|inline| Some((inline.encoding.as_deref()?, &inline.data)))
    else {
        return;
    };
    let is_base64 = |text: &str| {
        let digits: String = text.split_whitespace().collect();
        STANDARD.decode(digits).is_ok()
    };
    let problem = if matches!(encoding, "" | "b64") {
        return;
    } else if reader == Reader::Ignition {
        "Ignition has no encodings, and writes the data as it is; write plain text, and remove the encoding"
    } else if !user_data::is_encoding(encoding) {
        "cloud-init does not know the encoding, and writes the data as it is; remove the encoding"
    } else if encoding.contains("64") && !data.contains(RESERVED_PREFIX) && !is_base64(data) {
        "the encoding needs data that is base64 already, which this is not; for plain text use b64"
    } else {
        return;
    };
    warnings.push(format!("{path}: {problem}"));
}

/// Units and drop-ins that are listed more than once become one, as the last one of them has it.
fn settle_units(units: &mut Vec<Unit>, warnings: &mut Vec<String>) {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut settled: Vec<Unit> = Vec::new();
    for unit in units.drain(..) {
        let known = places.get(&unit.name).and_then(|at| settled.get_mut(*at));
        let Some(known) = known else {
            places.insert(unit.name.clone(), settled.len());
            settled.push(unit);
            continue;
        };
        warnings.push(format!(
            "the unit {} is listed more than once; the last one is used",
            unit.name
        ));
        known.enable = unit.enable.or(known.enable);
        known.mask = unit.mask.or(known.mask);
        known.content = unit.content.or(known.content.take());
        known.drop_ins.extend(unit.drop_ins);
    }
    for unit in &mut settled {
        let name = &unit.name;
        let listed = unit.drop_ins.len();
        user_data::keep_last(&mut unit.drop_ins, |drop_in| &drop_in.name);
        if unit.drop_ins.len() < listed {
            warnings.push(format!(
                "a drop-in of {name} is listed more than once; the last one is used"
            ));
        }
        if let Some(drop_in) = unit
            .drop_ins
            .iter()
            .find(|drop_in| !drop_in.name.ends_with(".conf"))
        {
            let drop_in = &drop_in.name;
            warnings.push(format!(
                "the drop-in {drop_in} of {name} has no effect, because its name does not end in .conf"
            ));
        }
        if unit.mask == Some(true) && (unit.enable == Some(true) || unit.content.is_some()) {
            (unit.enable, unit.content) = (None, None);
            warnings.push(format!(
                "the unit {name} is masked, so that its content and enable have no effect"
            ));
        }
    }
    *units = settled;
}

/// A warning for each path that more than one of files, units and this program writes.
fn duplicates(stage: Stage, reader: Reader, config: &StageConfig) -> Vec<String> {
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for file in &config.files {
        *listed.entry(&file.path).or_default() += 1;
    }
    let of_units = config.units.iter().flat_map(user_data::unit_files);
    let of_units = of_units.filter(|(path, _)| listed.contains_key(path.as_str()));
    let of_units =
        of_units.map(|(path, _)| format!("{path} is a file and a unit; the text of the unit is used"));
    let own = user_data::own_paths(reader).iter();
    let own = own.filter(|path| stage == Stage::Bootstrap && listed.contains_key(**path));
    let own = own.map(|path| format!("{path} of the profile replaces the one that OSM writes"));
    let several = listed.iter().filter(|(_, times)| **times > 1);
    let several =
        several.map(|(path, times)| format!("{path} is listed {times} times; the last one is used"));
    several.chain(of_units).chain(own).collect()
}

fn settle_modules(stage: Stage, reader: Reader, modules: &mut Option<Value>, warnings: &mut Vec<String>) {
    let Some(named) = modules.as_mut().and_then(Value::as_object_mut) else {
        return;
    };
    named.retain(|name, value| match user_data::unsupported_module(reader, name) {
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

/// The Go implementation writes these texts into its YAML without quotes, so that one with quotes of its own, a list in brackets or a block
/// becomes what YAML reads. What YAML would break, such as a command with a colon, stays the text that was meant.
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
