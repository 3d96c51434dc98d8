//! Cloud-configs for coreos-cloudinit, with which Flatcar applies them: a Go program that shares little but
//! the name with cloud-init.
//!
//! It applies user data at every boot, and runs no commands; units are its business. Before it reads a
//! document, it replaces words such as `$private_ipv4` in the whole text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::gzip;
use osm_api::names::MACHINE_NAME_PLACEHOLDER;
use osm_api::profile::Unit;
use serde_json::{Map, Value, json};

use crate::error::UserDataError;
use crate::filled::{Filled, FilledFile, Packing, distinct, mode, unfit};
use crate::stage::Stage;
use crate::units::{unit_files, unit_texts};
use crate::{static_network, yaml};

/// Words that coreos-cloudinit would replace by an address, or by nothing.
const REPLACED: [&str; 4] = ["$public_ipv4", "$private_ipv4", "$public_ipv6", "$private_ipv6"];

/// The cloud-config of a stage.
pub(crate) fn write(stage: Stage, filled: &Filled, packing: Packing) -> Result<String, UserDataError> {
    let document = Value::Object(document(filled, packing)?);
    let body = yaml::write_sparing(&document, &REPLACED).map_err(|_| UserDataError::Unwritable {
        place: stage.field().to_owned(),
    })?;
    Ok(format!("#cloud-config\n{body}"))
}

/// The cloud-config as an object.
pub(crate) fn document(filled: &Filled, packing: Packing) -> Result<Map<String, Value>, UserDataError> {
    let file = |path: &str, mode: u32, text: &str| file(path, mode, text, packing);
    let mut document = Map::new();
    let (mut files, mut units) = (Vec::new(), Vec::new());
    if let Some(name) = &filled.name {
        document.insert("hostname".to_owned(), json!(name));
    }
    for FilledFile {
        path,
        permissions,
        text,
        encoding,
    } in &filled.files
    {
        let mode = mode(path, *permissions)?;
        if let Some(encoding) = encoded(encoding.as_deref()) {
            let permissions = format!("{mode:04o}");
            files.push(
                json!({"path": path, "permissions": permissions, "encoding": encoding, "content": text}),
            );
            continue;
        }
        // As a unit it takes effect at once: systemd-networkd, which runs by now, is restarted for it before
        // anything else starts.
        match static_network::unit(path) {
            Some(name) => units.push(json!({"name": name, "content": text})),
            None => files.push(file(path, mode, text)),
        }
    }
    // What must be started comes first: coreos-cloudinit waits for each, and has been seen to wait for a stop
    // in vain.
    let (masked, others): (Vec<&Unit>, Vec<&Unit>) =
        filled.units.iter().partition(|unit| unit.mask == Some(true));
    for unit in others.into_iter().chain(masked) {
        units.push(write_unit(unit)?);
        // It leaves out what is empty.
        let empty = unit_files(unit).filter(|(_, text)| text.is_empty());
        files.extend(empty.map(|(path, text)| file(&path, 0o644, text)));
    }
    document.insert(
        "ssh_authorized_keys".to_owned(),
        json!(distinct(&filled.ssh_keys)),
    );
    document.insert("write_files".to_owned(), Value::Array(files));
    if !units.is_empty() {
        document.insert("coreos".to_owned(), json!({"units": units}));
    }
    document.retain(|_, part| *part != json!([]));
    Ok(document)
}

/// The encoding of a text that is encoded already. coreos-cloudinit knows names in lower case only.
fn encoded(encoding: Option<&str>) -> Option<String> {
    let name = encoding.filter(|encoding| *encoding != "b64")?;
    Some(name.trim().to_ascii_lowercase()).filter(|name| name != "text/plain")
}

/// A text that reads well stays readable, unless it is shorter compressed. That machine-controller must find
/// its placeholder comes first.
fn file(path: &str, mode: u32, text: &str, packing: Packing) -> Value {
    let compressed = match packing {
        Packing::Packed => Some(gzip::BEST.base64(text)).filter(|compressed| compressed.len() < text.len()),
        Packing::Plain => None,
    };
    let plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
    let permissions = format!("{mode:04o}");
    let (encoding, content) = match compressed {
        _ if text.contains(MACHINE_NAME_PLACEHOLDER) => ("", text.to_owned()),
        Some(compressed) => ("gzip+base64", compressed),
        None if text.chars().all(plain) => ("", text.to_owned()),
        None => ("base64", STANDARD.encode(text)),
    };
    match encoding {
        "" => json!({"path": path, "permissions": permissions, "content": content}),
        _ => json!({"path": path, "permissions": permissions, "encoding": encoding, "content": content}),
    }
}

/// An enabled unit is started. At later boots that is systemd's business, but the document is applied again:
/// to start what runs does nothing. A masked unit may be running, so it is stopped.
fn write_unit(unit: &Unit) -> Result<Value, UserDataError> {
    for (path, text) in unit_files(unit) {
        if text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
            return Err(unfit(
                &path,
                "the text has control characters, which systemd would not read",
            ));
        }
    }
    let mut written = Map::from_iter([("name".to_owned(), json!(unit.name))]);
    if unit.mask == Some(true) {
        written.insert("mask".to_owned(), json!(true));
        written.insert("command".to_owned(), json!("stop"));
    } else if unit.enable == Some(true) {
        written.insert("enable".to_owned(), json!(true));
        // A template has no instance that could be started.
        if !unit.name.contains("@.") {
            written.insert("command".to_owned(), json!("start"));
        }
    }
    written.extend(unit_texts(unit, "content", "drop-ins"));
    Ok(Value::Object(written))
}
