//! Lists what a document puts on a machine, for people to read and compare: its files, the state of its
//! units, and everything else.

use osm_api::content::Content;
use osm_api::profile::Unit;
use serde_json::{Map, Value, json};

use crate::error::UserDataError;
use crate::filled::{Filled, Packing, keep_last, machine_name};
use crate::late_bound::{self, Filling, LateValues};
use crate::reader::Reader;
use crate::stage::Stage;
use crate::units::unit_files;
use crate::{cloud_init, coreos_cloudinit, ignition};

/// What a stage puts on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineStage {
    /// Files in the order of the document, then those of units. Each path occurs once, with what is written
    /// last.
    pub files: Vec<MachineFile>,
    /// Units that the document enables or masks.
    pub units: Vec<Unit>,
    /// Everything else in the document, in the words of the program that reads it.
    pub other: Map<String, Value>,
}

/// A file on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFile {
    /// Absolute path, without `.` and `..`.
    pub path: String,
    /// Mode in octal digits, such as `0644`.
    pub mode: String,
    /// The text, with late-bound values filled in.
    pub text: String,
}

/// What the document of a stage puts on a machine.
///
/// # Errors
/// As [`super::user_data`].
pub fn machine_stage(
    spec: &Content,
    stage: Stage,
    values: &LateValues,
) -> Result<MachineStage, UserDataError> {
    filled_machine_stage(spec, stage, Filling::Values(values))
}

/// [`machine_stage`] with a mask in the place of each late-bound value, such as
/// `<registry/docker.io/password>`. It is the same text in every encoding, also where a marker asks for
/// base64. Never use it for a machine.
///
/// # Errors
/// As there.
pub fn masked_machine_stage(spec: &Content, stage: Stage) -> Result<MachineStage, UserDataError> {
    filled_machine_stage(spec, stage, Filling::Masks(&late_bound::masks(spec)))
}

fn filled_machine_stage(
    spec: &Content,
    stage: Stage,
    filling: Filling<'_>,
) -> Result<MachineStage, UserDataError> {
    let reader = Reader::of(spec.os_name, spec.provisioning_utility);
    let filled = Filled::new(spec, stage, filling, machine_name(spec, stage))?;
    let of_units = filled.units.iter().flat_map(unit_files);
    let of_units = of_units.map(|(path, text)| MachineFile {
        path,
        mode: "0644".to_owned(),
        text: text.to_owned(),
    });
    let others = filled.files.iter().map(|file| MachineFile {
        path: file.path.clone(),
        mode: format!("{:04}", file.permissions),
        text: file.text.clone(),
    });
    let mut files: Vec<MachineFile> = others.chain(of_units).collect();
    keep_last(&mut files, |file| &file.path);
    let has_state = |unit: &&Unit| unit.mask == Some(true) || unit.enable == Some(true);
    let units = filled.units.iter().filter(has_state).cloned();
    Ok(MachineStage {
        files,
        units: units.collect(),
        other: other(reader, stage, filled)?,
    })
}

/// What the document contains besides files and units.
fn other(reader: Reader, stage: Stage, filled: Filled) -> Result<Map<String, Value>, UserDataError> {
    let mut other = match reader {
        Reader::CloudInit => cloud_init::document(stage, filled, Packing::Plain),
        Reader::CoreosCloudinit => coreos_cloudinit::document(&filled, Packing::Plain)?,
        Reader::Ignition => Map::from_iter([("passwd".to_owned(), Value::Object(ignition::passwd(&filled)))]),
    };
    other.remove("write_files");
    if let Some(coreos) = other.get_mut("coreos").and_then(Value::as_object_mut) {
        coreos.remove("units");
    }
    other.retain(|_, part| *part != json!({}) && *part != json!([]));
    Ok(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_readable_in_every_encoding_and_show_no_value() {
        let late = |id: &str, kind: &str, key: &str| json!({"id": id, "kind": kind, "source": {"namespace": "n", "name": "s", "key": key}});
        let encodings = ["raw", "toml", "yaml", "json", "shell", "b64"];
        let lines = encodings
            .map(|encoding| format!("{encoding} %%osm-late{{registry/docker.io/password,{encoding}}}%%"));
        let spec: Content = serde_json::from_value(json!({
            "osName": "ubuntu", "cloudProvider": {"name": "aws"},
            "provisioningConfig": {
                "files": [{"path": "/a", "content": {"inline": {"encoding": "b64", "data": lines.join("\n")}}}],
                "modules": {"runcmd": ["login %%osm-late{secret/k,text}%%"]},
            },
            "lateBoundValues": [
                late("registry/docker.io/password", "RegistryPassword", "docker.io"), late("secret/k", "SecretKey", "k"),
            ],
        }))
        .unwrap();
        let machine = masked_machine_stage(&spec, Stage::Provisioning).unwrap();
        let mask = "<registry/docker.io/password>";
        let expected = [
            format!("raw {mask}"),
            format!("toml \"{mask}\""),
            format!("yaml \"{mask}\""),
            format!("json \"{mask}\""),
            format!("shell '{mask}'"),
            format!("b64 {mask}"),
        ];
        assert_eq!(machine.files[0].text.lines().collect::<Vec<_>>(), expected);
        assert_eq!(machine.other["runcmd"], json!(["login <secret/k>"]));
        assert!(late_bound::masks(&spec).values().any(|text| text == mask));
    }
}
