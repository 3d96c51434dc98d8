//! A stage with its late-bound values filled in, before it is written in the language of its reader.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use osm_api::config::StageConfig;
use osm_api::content::{self, Content};
use osm_api::names::MACHINE_NAME_PLACEHOLDER;
use osm_api::profile::{CloudProvider, DropIn, Unit};
use serde_json::{Map, Value};

use crate::error::UserDataError;
use crate::late_bound::{self, Filling, RESERVED_PREFIX, Room};
use crate::reader::Reader;
use crate::stage::Stage;
use crate::units::{drop_in_path, unit_path};
use crate::{clouds, tree, unit_text};

/// Holds the machine's name; the provisioning stage reads it, because only the bootstrap document has names
/// filled in by machine-controller.
const MACHINE_NAME_FILE: &str = "/etc/machine-name";

/// What cloud-init calls `hostname`.
const HOST_NAME_FILE: &str = "/etc/hostname";

/// What cloud-init calls `ssh_pwauth: false`.
const SSHD_FILE: &str = "/etc/ssh/sshd_config.d/10-osm.conf";
const SSHD_TEXT: &str = "PasswordAuthentication no\nKbdInteractiveAuthentication no\n";

/// Paths in the bootstrap document that are not the profile's.
pub fn own_paths(reader: Reader) -> &'static [&'static str] {
    match reader {
        Reader::CloudInit => &[MACHINE_NAME_FILE],
        Reader::CoreosCloudinit | Reader::Ignition => &[MACHINE_NAME_FILE, HOST_NAME_FILE, SSHD_FILE],
    }
}

/// Whether files in a document may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Packed,
    Plain,
}

/// Whether machine-controller would replace something in a text: its placeholder, or the same as a URL has
/// it.
pub(crate) fn has_machine_name(text: &str) -> bool {
    text.contains(MACHINE_NAME_PLACEHOLDER) || text.contains("%3CMACHINE_NAME%3E")
}

pub(crate) fn unfit(place: &str, problem: impl Into<String>) -> UserDataError {
    UserDataError::Unfit {
        place: place.to_owned(),
        problem: problem.into(),
    }
}

/// What a stage consists of, everything filled in.
pub(crate) struct Filled {
    /// The machine's name, or what machine-controller replaces by it; absent where the cloud names machines.
    pub(crate) name: Option<String>,
    pub(crate) ssh_keys: Vec<String>,
    pub(crate) files: Vec<FilledFile>,
    pub(crate) units: Vec<Unit>,
    pub(crate) modules: Map<String, Value>,
}

pub(crate) struct FilledFile {
    pub(crate) path: String,
    /// Octal digits as a decimal number: 644.
    pub(crate) permissions: i32,
    pub(crate) text: String,
    /// How a cloud-config holds it. It encodes a text itself for `b64`; for others the text is encoded
    /// already.
    pub(crate) encoding: Option<String>,
}

impl Filled {
    /// `name` is that of the machine, or what machine-controller replaces by it.
    pub(crate) fn new(
        spec: &Content,
        stage: Stage,
        filling: Filling<'_>,
        name: Option<String>,
    ) -> Result<Self, UserDataError> {
        let config = stage.of_content(spec);
        let (room, filled) = (Room::default(), Cell::new(0));
        let fill = |place: &dyn fmt::Display, text: &str| {
            filled.set(filled.get() + text.matches(RESERVED_PREFIX).count());
            late_bound::fill(text, place, &spec.late_bound_values, filling, &room)
        };
        let reader = Reader::of(spec.os_name, spec.provisioning_utility);
        let modules = config.modules.clone().unwrap_or(Value::Null);
        let place = format_args!("{}.modules", stage.field());
        let modules = tree::map(place, &modules, &mut |place, text| fill(&place, text))?;
        let modules = match modules {
            Value::Object(modules) => modules,
            _ => Map::new(),
        };
        let files = own_files(reader, stage, name.as_deref()).chain(files(config, &fill)?);
        let units = config.units.iter().map(|unit| fill_unit(unit, &fill));
        let units = units.collect::<Result<_, _>>()?;
        // A marker in a name or a key would be left in the document. Profiles have none there, but someone
        // may have edited a stored config.
        let text = serde_json::to_string(config).unwrap_or_default();
        if text.matches(RESERVED_PREFIX).count() > filled.get() {
            let place = format!("{}, in a name, a key or an SSH key", stage.field());
            return Err(UserDataError::LateBoundValueUnknown { place });
        }
        Ok(Self {
            files: files.collect(),
            name,
            ssh_keys: config.user_ssh_keys.clone(),
            units,
            modules,
        })
    }
}

/// The files of a document that are not the profile's.
fn own_files(reader: Reader, stage: Stage, name: Option<&str>) -> impl Iterator<Item = FilledFile> {
    let host_name = name.filter(|_| reader == Reader::Ignition);
    let sshd = (stage == Stage::Bootstrap && reader != Reader::CloudInit).then_some(SSHD_TEXT);
    let files = [
        (HOST_NAME_FILE, 644, host_name),
        (MACHINE_NAME_FILE, 600, name),
        (SSHD_FILE, 600, sshd),
    ];
    let files = files.map(|(path, permissions, text)| {
        text.map(|text| FilledFile {
            path: path.to_owned(),
            permissions,
            text: text.to_owned(),
            encoding: None,
        })
    });
    files.into_iter().flatten()
}

/// machine-controller puts the name of each machine into the bootstrap document; with `edge` it never does,
/// there the pool's name is taken.
pub(crate) fn machine_name(spec: &Content, stage: Stage) -> Option<String> {
    let cloud = spec.cloud_provider.as_ref().map(|cloud| cloud.name);
    let name = match content::pool_name(spec) {
        _ if stage != Stage::Bootstrap || cloud.is_some_and(clouds::names_machines) => return None,
        Some(pool) if cloud == Some(CloudProvider::Edge) => pool,
        _ => MACHINE_NAME_PLACEHOLDER,
    };
    Some(name.to_owned())
}

fn files(
    config: &StageConfig,
    fill: &impl Fn(&dyn fmt::Display, &str) -> Result<String, UserDataError>,
) -> Result<Vec<FilledFile>, UserDataError> {
    config
        .files
        .iter()
        .map(|file| {
            let inline = file.content.inline.as_ref();
            Ok(FilledFile {
                path: file.path.clone(),
                permissions: if file.permissions == 0 {
                    644
                } else {
                    file.permissions
                },
                text: fill(&file.path, file.content.text())?,
                encoding: inline
                    .and_then(|inline| inline.encoding.clone())
                    .filter(|encoding| is_encoding(encoding)),
            })
        })
        .collect()
}

/// Whether a name is that of an encoding that cloud-init knows. It ignores case and blanks, and takes a text
/// with another encoding as it is.
fn is_encoding(name: &str) -> bool {
    const KNOWN: [&str; 9] = [
        "b64",
        "base64",
        "gz",
        "gzip",
        "gz+b64",
        "gz+base64",
        "gzip+b64",
        "gzip+base64",
        "text/plain",
    ];
    KNOWN.iter().any(|known| name.trim().eq_ignore_ascii_case(known))
}

/// Trimmed, each once, in order: Ignition refuses repetitions.
pub(crate) fn distinct(keys: &[String]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let keys = keys.iter().map(|key| key.trim());
    keys.filter(|key| !key.is_empty() && seen.insert(*key)).collect()
}

/// Leaves the last of the items that have the same name.
pub fn keep_last<T>(items: &mut Vec<T>, name: impl Fn(&T) -> &str) {
    let mut later: BTreeSet<&str> = BTreeSet::new();
    let mut last: Vec<bool> = items.iter().rev().map(|item| later.insert(name(item))).collect();
    items.retain(|_| last.pop().unwrap_or(true));
}

fn fill_unit(
    unit: &Unit,
    fill: &impl Fn(&dyn fmt::Display, &str) -> Result<String, UserDataError>,
) -> Result<Unit, UserDataError> {
    let content = unit
        .content
        .as_ref()
        .map(|text| fill(&unit_path(unit), text))
        .transpose()?;
    let installed = |text: &String| unit_text::has_section(text, "Install");
    if unit.enable == Some(true) && content.as_ref().is_some_and(|text| !installed(text)) {
        return Err(unfit(
            &unit_path(unit),
            "the unit is enabled, but has no [Install] section, so nothing would start it; add that section",
        ));
    }
    let drop_ins = unit.drop_ins.iter().map(|drop_in| {
        let content = fill(&drop_in_path(unit, drop_in), &drop_in.content)?;
        Ok(DropIn {
            name: drop_in.name.clone(),
            content,
        })
    });
    Ok(Unit {
        content,
        drop_ins: drop_ins.collect::<Result<_, _>>()?,
        ..unit.clone()
    })
}

/// `permissions`, octal digits as a decimal number, as the mode that they mean. A profile for Flatcar has no
/// others.
pub(crate) fn mode(path: &str, permissions: i32) -> Result<u32, UserDataError> {
    u32::from_str_radix(&permissions.to_string(), 8)
        .map_err(|_| unfit(path, "permissions must be octal digits"))
}
