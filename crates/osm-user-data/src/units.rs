//! Units as files: where each goes, and what Flatcar's programs take of it.

use osm_api::profile::{DropIn, ProfileUnit, Unit};
use serde_json::{Map, Value, json};

const UNIT_FOLDER: &str = "/etc/systemd/system";

/// Where coreos-cloudinit writes the units of systemd-networkd.
const NETWORK_FOLDER: &str = "/etc/systemd/network";

pub(crate) fn unit_path(unit: &Unit) -> String {
    let folder = match unit.name.rsplit_once('.') {
        Some((_, "network" | "netdev" | "link")) => NETWORK_FOLDER,
        _ => UNIT_FOLDER,
    };
    format!("{folder}/{}", unit.name)
}

pub(crate) fn drop_in_path(unit: &Unit, drop_in: &DropIn) -> String {
    format!("{}.d/{}", unit_path(unit), drop_in.name)
}

/// The files that a unit takes: path and text.
pub fn unit_files(unit: &Unit) -> impl Iterator<Item = (String, &str)> {
    let own = unit.content.as_deref().map(|text| (unit_path(unit), text));
    let drop_ins = unit
        .drop_ins
        .iter()
        .map(|drop_in| (drop_in_path(unit, drop_in), drop_in.content.as_str()));
    own.into_iter().chain(drop_ins)
}

/// The texts of a unit as Flatcar's programs take them, which leave out what is empty: under `content`, and
/// under `drop_ins` with their names.
pub(crate) fn unit_texts(unit: &Unit, content: &str, drop_ins: &str) -> Map<String, Value> {
    let own = unit.content.as_ref().filter(|text| !text.is_empty());
    let own = own.map(|text| (content.to_owned(), json!(text)));
    let others = unit.drop_ins.iter().filter(|drop_in| !drop_in.content.is_empty());
    let others: Vec<Value> = others
        .map(|drop_in| json!({"name": drop_in.name, content: drop_in.content}))
        .collect();
    let others = (!others.is_empty()).then(|| (drop_ins.to_owned(), Value::Array(others)));
    own.into_iter().chain(others).collect()
}

/// Paths of the files that a unit of a profile takes.
pub fn unit_paths(unit: &ProfileUnit) -> Vec<String> {
    let unit = Unit {
        name: unit.name.clone(),
        content: unit.content.clone(),
        drop_ins: unit.drop_ins.clone(),
        ..Unit::default()
    };
    unit_files(&unit).map(|(path, _)| path).collect()
}
