//! Writes the document that a machine reads: fills late-bound values into a rendered configuration, and writes the result in the
//! language of the machine's provisioning utility.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

use osm_api::config::StageConfig;
use osm_api::content::{self, Content};
use osm_api::names::MACHINE_NAME_PLACEHOLDER;
use osm_api::profile::{CloudProvider, DropIn, OperatingSystem, ProfileUnit, ProvisioningUtility, Unit};
use serde_json::{Map, Value, json};

use crate::error::UserDataError;
use crate::late_bound::{self, Filling, LateValues, RESERVED_PREFIX, Room};
use crate::{Stage, clouds, template_walk};

mod cloud_init;
mod coreos_cloudinit;
mod edge;
mod ignition;
mod machine;
mod unit_text;

pub use edge::edge_script;
pub use machine::{MachineFile, MachineStage, machine_stage, masked_machine_stage};

/// The program that reads a document, each with a language of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The cloud-init that all other distributions have.
    CloudInit,
    /// Flatcar's program for `cloud-init`.
    CoreosCloudinit,
    Ignition,
}

impl Reader {
    /// What an operating system has for a provisioning utility.
    pub(crate) fn of(os: Option<OperatingSystem>, utility: ProvisioningUtility) -> Self {
        match (utility, os) {
            (ProvisioningUtility::Ignition, _) => Self::Ignition,
            (ProvisioningUtility::CloudInit, Some(OperatingSystem::Flatcar)) => Self::CoreosCloudinit,
            (ProvisioningUtility::CloudInit, _) => Self::CloudInit,
        }
    }
}

/// Why a profile can't have this cloud-init module, if so.
pub(crate) fn unsupported_module(reader: Reader, module: &str) -> Option<&'static str> {
    match (reader, module) {
        (Reader::CloudInit, _) => None,
        (_, "packages" | "package_update" | "package_upgrade" | "package_reboot_if_required") => {
            Some("Flatcar has no package manager: let a unit fetch what you need to /opt")
        }
        _ => Some("Flatcar applies no modules of cloud-init: use files, and units that run scripts"),
    }
}

/// The user that every Flatcar has.
const DEFAULT_USER: &str = "core";

/// Holds the machine's name; the provisioning stage reads it, because only the bootstrap document has names filled
/// in by machine-controller.
const MACHINE_NAME_FILE: &str = "/etc/machine-name";

/// What cloud-init calls `hostname`.
const HOST_NAME_FILE: &str = "/etc/hostname";

/// What cloud-init calls `ssh_pwauth: false`.
const SSHD_FILE: &str = "/etc/ssh/sshd_config.d/10-osm.conf";
const SSHD_TEXT: &str = "PasswordAuthentication no\nKbdInteractiveAuthentication no\n";

/// Paths in the bootstrap document that are not the profile's.
pub(crate) fn own_paths(reader: Reader) -> &'static [&'static str] {
    match reader {
        Reader::CloudInit => &[MACHINE_NAME_FILE],
        Reader::CoreosCloudinit | Reader::Ignition => &[MACHINE_NAME_FILE, HOST_NAME_FILE, SSHD_FILE],
    }
}

const UNIT_FOLDER: &str = "/etc/systemd/system";

/// Where coreos-cloudinit writes the units of systemd-networkd.
const NETWORK_FOLDER: &str = "/etc/systemd/network";

/// The document of a stage, a cloud-config or an Ignition config, with `values` for its late-bound values.
///
/// The bootstrap document also sets the host name and writes `/etc/machine-name` (on every cloud but `aws`, where the
/// node is named by the cloud), sets the users' SSH keys and turns password logins off.
///
/// # Errors
/// A late-bound value that is missing, that can't be written where its marker is, or that the configuration does not
/// declare; content that the provisioning utility can't take.
pub fn user_data(spec: &Content, stage: Stage, values: &LateValues) -> Result<String, UserDataError> {
    write(spec, stage, values, Packing::Packed)
}

/// As [`user_data`], but no file in it is compressed. It is for comparisons, and costs less.
///
/// # Errors
/// As [`user_data`].
pub fn plain_user_data(spec: &Content, stage: Stage, values: &LateValues) -> Result<String, UserDataError> {
    write(spec, stage, values, Packing::Plain)
}

/// Whether files in a document may be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Packed,
    Plain,
}

fn write(
    spec: &Content,
    stage: Stage,
    values: &LateValues,
    packing: Packing,
) -> Result<String, UserDataError> {
    let filled = Filled::new(spec, stage, Filling::Values(values), machine_name(spec, stage))?;
    match Reader::of(spec.os_name, spec.provisioning_utility) {
        Reader::CloudInit => cloud_init::write(stage, filled, packing),
        Reader::CoreosCloudinit => coreos_cloudinit::write(stage, &filled, packing),
        Reader::Ignition => ignition::write(filled),
    }
}

/// Whether machine-controller would replace something in a text: its placeholder, or the same as a URL has it.
pub(crate) fn has_machine_name(text: &str) -> bool {
    text.contains(MACHINE_NAME_PLACEHOLDER) || text.contains("%3CMACHINE_NAME%3E")
}

fn unfit(place: &str, problem: impl Into<String>) -> UserDataError {
    UserDataError::Unfit {
        place: place.to_owned(),
        problem: problem.into(),
    }
}

/// What a stage consists of, everything filled in.
struct Filled {
    /// The machine's name, or what machine-controller replaces by it; absent where the cloud names machines.
    name: Option<String>,
    ssh_keys: Vec<String>,
    files: Vec<FilledFile>,
    units: Vec<Unit>,
    modules: Map<String, Value>,
}

struct FilledFile {
    path: String,
    /// Octal digits as a decimal number: 644.
    permissions: i32,
    text: String,
    /// How a cloud-config holds it. It encodes a text itself for `b64`; for others the text is encoded already.
    encoding: Option<String>,
}

impl Filled {
    /// `name` is that of the machine, or what machine-controller replaces by it.
    fn new(
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
        let modules = template_walk::map_value(place, &modules, &mut |place, text| fill(&place, text))?;
        let modules = match modules {
            Value::Object(modules) => modules,
            _ => Map::new(),
        };
        let files = own_files(reader, stage, name.as_deref()).chain(files(config, &fill)?);
        let units = config.units.iter().map(|unit| fill_unit(unit, &fill));
        let units = units.collect::<Result<_, _>>()?;
        // A marker in a name or a key would be left in the document. Profiles have none there, but somebody may have edited a stored config.
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

/// machine-controller puts the name of each machine into the bootstrap document; with `edge` it never does, there the pool's name is taken.
fn machine_name(spec: &Content, stage: Stage) -> Option<String> {
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

/// Whether a name is that of an encoding that cloud-init knows. It ignores case and blanks, and takes a text with another encoding as it is.
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
fn distinct(keys: &[String]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let keys = keys.iter().map(|key| key.trim());
    keys.filter(|key| !key.is_empty() && seen.insert(*key)).collect()
}

/// Leaves the last of the items that have the same name.
pub(crate) fn keep_last<T>(items: &mut Vec<T>, name: impl Fn(&T) -> &str) {
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

/// `permissions`, octal digits as a decimal number, as the mode that they mean. A profile for Flatcar has no others.
fn mode(path: &str, permissions: i32) -> Result<u32, UserDataError> {
    u32::from_str_radix(&permissions.to_string(), 8)
        .map_err(|_| unfit(path, "permissions must be octal digits"))
}

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
pub(crate) fn unit_files(unit: &Unit) -> impl Iterator<Item = (String, &str)> {
    let own = unit.content.as_deref().map(|text| (unit_path(unit), text));
    let drop_ins = unit
        .drop_ins
        .iter()
        .map(|drop_in| (drop_in_path(unit, drop_in), drop_in.content.as_str()));
    own.into_iter().chain(drop_ins)
}

/// The texts of a unit as Flatcar's programs take them, which leave out what is empty: under `content`, and under `drop_ins` with their
/// names.
fn unit_texts(unit: &Unit, content: &str, drop_ins: &str) -> Map<String, Value> {
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
pub(crate) fn unit_paths(unit: &ProfileUnit) -> Vec<String> {
    let unit = Unit {
        name: unit.name.clone(),
        content: unit.content.clone(),
        drop_ins: unit.drop_ins.clone(),
        ..Unit::default()
    };
    unit_files(&unit).map(|(path, _)| path).collect()
}
