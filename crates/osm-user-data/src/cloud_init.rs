//! Cloud-config documents.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::gzip;
use osm_api::profile::Unit;
use serde_json::{Map, Value, json};

use crate::error::UserDataError;
use crate::filled::{Filled, FilledFile, Packing, has_machine_name};
use crate::stage::Stage;
use crate::units::unit_files;
use crate::yaml;

/// Keys that such a machine keeps as they are: its name, and the users that may log in.
const OF_OWNERS: [&str; 3] = ["hostname", "ssh_pwauth", "ssh_authorized_keys"];

/// A shorter file stays readable; compression would save little.
const MIN_PACKED: usize = 1024;

/// The cloud-config of a stage.
pub(crate) fn write(stage: Stage, filled: Filled, packing: Packing) -> Result<String, UserDataError> {
    text(stage, document(stage, filled, packing))
}

/// The cloud-config of the first stage for a machine that its owner has already set up.
pub(crate) fn write_for_owned(filled: Filled) -> Result<String, UserDataError> {
    // The script encodes the whole document.
    let mut document = document(Stage::Bootstrap, filled, Packing::Plain);
    document.retain(|key, _| !OF_OWNERS.contains(&key.as_str()));
    text(Stage::Bootstrap, document)
}

/// The cloud-config of a stage, as an object.
pub(crate) fn document(stage: Stage, filled: Filled, packing: Packing) -> Map<String, Value> {
    // The whole provisioning document is compressed in its Secret.
    let packing = match stage {
        Stage::Bootstrap => packing,
        Stage::Provisioning => Packing::Plain,
    };
    let mut document = Map::new();
    let mut files = Vec::new();
    if let Some(name) = &filled.name {
        document.insert("hostname".to_owned(), json!(name));
    }
    if stage == Stage::Bootstrap {
        document.insert("ssh_pwauth".to_owned(), json!(false));
        if !filled.ssh_keys.is_empty() {
            document.insert("ssh_authorized_keys".to_owned(), json!(filled.ssh_keys));
        }
    }
    files.extend(filled.files.iter().map(|file| write_file(file, packing)));
    let of_units = filled.units.iter().flat_map(unit_files);
    files.extend(of_units.map(|(path, text)| json!({"path": path, "permissions": "0644", "content": text})));
    if !files.is_empty() {
        document.insert("write_files".to_owned(), Value::Array(files));
    }
    document.extend(filled.modules);
    let mut commands = unit_commands(&filled.units);
    if !commands.is_empty() {
        if let Some(Value::Array(own)) = document.remove("runcmd") {
            commands.extend(own);
        }
        document.insert("runcmd".to_owned(), Value::Array(commands));
    }
    document
}

fn text(stage: Stage, document: Map<String, Value>) -> Result<String, UserDataError> {
    let body = yaml::write(&Value::Object(document)).map_err(|_| UserDataError::Unwritable {
        place: stage.field().to_owned(),
    })?;
    Ok(format!("#cloud-config\n{body}"))
}

fn write_file(
    FilledFile {
        path,
        permissions,
        text,
        encoding,
    }: &FilledFile,
    packing: Packing,
) -> Value {
    let permissions = format!("{permissions:04}");
    let encoding = encoding.as_deref();
    if let Some(encoding) = encoding.filter(|encoding| *encoding != "b64") {
        json!({"path": path, "permissions": permissions, "encoding": encoding, "content": text})
    } else if let Some(packed) = packed(text, packing) {
        json!({"path": path, "permissions": permissions, "encoding": "gz+b64", "content": packed})
    } else if encoding.is_some() {
        json!({"path": path, "permissions": permissions, "encoding": "b64", "content": STANDARD.encode(text)})
    } else {
        json!({"path": path, "permissions": permissions, "content": text})
    }
}

/// The text as a compressed file holds it, where that is shorter by a quarter. machine-controller has to find
/// its placeholder.
fn packed(text: &str, packing: Packing) -> Option<String> {
    if packing == Packing::Plain || text.len() < MIN_PACKED || has_machine_name(text) {
        return None;
    }
    let packed = gzip::USUAL.base64(text);
    (packed.len() <= text.len() / 4 * 3).then_some(packed)
}

/// Commands that make systemd see, mask and start the units.
fn unit_commands(units: &[Unit]) -> Vec<Value> {
    if units.is_empty() {
        return Vec::new();
    }
    let mut commands = vec![json!(["systemctl", "daemon-reload"])];
    for unit in units {
        if unit.mask == Some(true) {
            commands.push(json!(["systemctl", "mask", unit.name]));
        } else if unit.enable == Some(true) {
            commands.push(json!(["systemctl", "enable", "--now", "--no-block", unit.name]));
        }
    }
    commands
}
