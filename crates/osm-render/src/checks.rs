//! Everything about a profile that can be checked without rendering it.

use std::collections::BTreeSet;

use osm_api::profile::{
    ContainerRuntimeName, OperatingSystem, OperatingSystemProfileSpec, ProfileConfig, ProfileFile,
    ProfileUnit, ProvisioningUtility, TemplateEngine,
};
use serde_json::Value;

use crate::error::ProfileError;
use crate::user_data::{self, Reader};
use crate::{Stage, additions, template_walk};

/// Keys of a cloud-config that other fields set, and which.
const RESERVED_MODULES: [(&str, &str); 4] = [
    ("write_files", "list the files under files"),
    ("hostname", "it is the machine's name"),
    (
        "ssh_authorized_keys",
        "they come from the MachineDeployment's sshPublicKeys",
    ),
    ("ssh_pwauth", "it is always off"),
];

/// Checks a profile, which may still replace and remove parts of another one.
///
/// # Errors
/// The first mistake, with its path inside the spec.
pub(crate) fn check(spec: &OperatingSystemProfileSpec) -> Result<(), ProfileError> {
    let version = spec.version.strip_prefix('v').map(semver::Version::parse);
    if !matches!(version, Some(Ok(_))) {
        return Err(invalid(
            "version",
            "must be v and a semantic version, such as v1.0.0",
        ));
    }
    if spec.supported_cloud_providers.is_empty() {
        return Err(invalid(
            "supportedCloudProviders",
            "must name at least one cloud provider",
        ));
    }
    if spec.provisioning_utility == ProvisioningUtility::Ignition && spec.os_name != OperatingSystem::Flatcar
    {
        return Err(invalid(
            "provisioningUtility",
            format!(
                "is ignition, which {} does not support; use cloud-init",
                spec.os_name
            ),
        ));
    }
    let reader = Reader::of(Some(spec.os_name), spec.provisioning_utility);
    Stage::ALL
        .into_iter()
        .try_for_each(|stage| check_stage(stage, stage.config(spec), reader, spec.template_engine))
}

fn invalid(path: impl Into<String>, problem: impl Into<String>) -> ProfileError {
    ProfileError::Invalid {
        path: path.into(),
        problem: problem.into(),
    }
}

/// Whether Ignition would write a file to a place that is hidden once the machine runs. Profiles of the Go implementation do so in vain,
/// and the file is left out with a warning. In others it is an error.
pub(crate) fn is_hidden(reader: Reader, path: &str) -> bool {
    let folders = ["/dev/", "/proc/", "/run/", "/sys/"];
    reader == Reader::Ignition && folders.iter().any(|folder| path.starts_with(folder))
}

fn check_stage(
    stage: Stage,
    config: &ProfileConfig,
    reader: Reader,
    engine: TemplateEngine,
) -> Result<(), ProfileError> {
    let name = stage.field();
    let runtimes = &config.supported_container_runtimes;
    if runtimes
        .iter()
        .filter(|runtime| runtime.name == ContainerRuntimeName::Containerd)
        .count()
        > 1
    {
        return Err(invalid(
            format!("{name}.supportedContainerRuntimes"),
            "lists containerd more than once",
        ));
    }
    let mut paths: BTreeSet<String> = BTreeSet::new();
    if stage == Stage::Bootstrap {
        paths.extend(user_data::own_paths(reader).iter().map(|path| (*path).to_owned()));
    }
    let mut removed: BTreeSet<&String> = BTreeSet::new();
    for (place, file) in template_walk::files(name, config) {
        let place = place.to_string();
        check_file(&place, file)?;
        check_file_for(reader, engine, &place, file)?;
        let is_new = match file.remove {
            true => removed.insert(&file.path) && !paths.contains(&file.path),
            false => paths.insert(file.path.clone()) && !removed.contains(&file.path),
        };
        if !is_new {
            return Err(invalid(place, "this path is written more than once"));
        }
    }
    let mut units = BTreeSet::new();
    for (i, unit) in config.units.iter().enumerate() {
        let place = format!("{name}.units[{i}] ({})", unit.name);
        check_unit(&place, unit)?;
        if !units.insert(&unit.name) {
            return Err(invalid(place, "this unit is listed more than once"));
        }
        for path in user_data::unit_paths(unit) {
            if !paths.insert(path) {
                return Err(invalid(place, "its file is written more than once"));
            }
        }
    }
    if let Some(path) = paths
        .iter()
        .find(|path| parents(path).any(|parent| paths.contains(parent)))
    {
        return Err(invalid(
            name,
            format!("{path} is below a path that is itself a file"),
        ));
    }
    for (place, template, _) in template_walk::templates(name, config) {
        // Without dots, so that no name is also a path inside the spec.
        let good = |c: char| c.is_ascii_alphanumeric() || "-_/".contains(c);
        if template.is_empty() || !template.chars().all(good) {
            return Err(invalid(
                place,
                "a template's name may have letters, digits, -, _ and / only",
            ));
        }
    }
    if let Some(modules) = &config.modules {
        check_modules(&format!("{name}.modules"), modules, reader)?;
    }
    additions::check(stage, config, reader)
}

/// The folders above a path.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at))
}

/// Refuses what would fail only on the machine, which then has no network to log in by.
fn check_file_for(
    reader: Reader,
    engine: TemplateEngine,
    place: &str,
    file: &ProfileFile,
) -> Result<(), ProfileError> {
    let below = |folders: &[&str]| folders.iter().any(|folder| file.path.starts_with(folder));
    let (program, unwritable, why) = match reader {
        Reader::CloudInit => return Ok(()),
        Reader::CoreosCloudinit => (
            "coreos-cloudinit",
            below(&["/dev/", "/proc/", "/sys/"]),
            "coreos-cloudinit creates new files, which this file system does not allow; write the file from a unit",
        ),
        Reader::Ignition => (
            "Ignition",
            is_hidden(reader, &file.path) && engine != TemplateEngine::GoTemplate,
            "Ignition writes files before this file system is mounted; write the file from a unit",
        ),
    };
    if file.permissions > 777 {
        return Err(invalid(
            place,
            format!("permissions must be 777 or less, {program} sets no others"),
        ));
    }
    if below(&["/usr/"]) {
        return Err(invalid(
            place,
            "/usr is read-only on Flatcar; write below /etc or /opt",
        ));
    }
    if unwritable {
        return Err(invalid(place, why));
    }
    Ok(())
}

fn check_file(place: &str, file: &ProfileFile) -> Result<(), ProfileError> {
    let path = &file.path;
    let clean = path.starts_with('/')
        && path.len() > 1
        && !path.ends_with('/')
        && !path.chars().any(char::is_control)
        && path
            .split('/')
            .skip(1)
            .all(|part| !matches!(part, "" | "." | ".."));
    if !clean {
        return Err(invalid(place, "path must be absolute, without //, . and .."));
    }
    if path.contains("{{") {
        return Err(invalid(place, "path can't contain template tags"));
    }
    let digits = file.permissions.to_string();
    if file.permissions > 7777 || !digits.chars().all(|digit| ('0'..='7').contains(&digit)) {
        return Err(invalid(
            place,
            "permissions must be octal digits, such as 644 or 755",
        ));
    }
    let inline = match (&file.content.inline, file.remove) {
        (None, true) => return Ok(()),
        (Some(_), true) => {
            return Err(invalid(
                place,
                "a removed file has no content; remove the content, or set replace: true instead",
            ));
        }
        (None, false) => return Err(invalid(place, "content.inline is missing")),
        (Some(inline), false) => inline,
    };
    match inline.encoding.as_deref() {
        None | Some("" | "b64") => Ok(()),
        Some(_) => Err(invalid(
            place,
            "content.inline.encoding must be b64 or absent; the data is plain text either way",
        )),
    }
}

fn check_unit(place: &str, unit: &ProfileUnit) -> Result<(), ProfileError> {
    let word = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c))
    };
    let suffixes = [
        ".service",
        ".socket",
        ".target",
        ".timer",
        ".path",
        ".mount",
        ".automount",
        ".swap",
        ".slice",
    ];
    if !word(&unit.name) || !suffixes.iter().any(|suffix| unit.name.ends_with(suffix)) {
        return Err(invalid(
            place,
            "name must be that of a unit with its suffix, such as setup.service",
        ));
    }
    for drop_in in &unit.drop_ins {
        if !word(&drop_in.name) || !drop_in.name.ends_with(".conf") {
            return Err(invalid(place, "the name of a drop-in must end in .conf"));
        }
    }
    let is_empty = unit.content.is_none() && unit.drop_ins.is_empty();
    if unit.remove {
        return match is_empty && unit.enable.is_none() && unit.mask.is_none() {
            true => Ok(()),
            false => Err(invalid(
                place,
                "a removed unit has only its name; remove the rest, or set replace: true instead",
            )),
        };
    }
    let (enable, mask) = (unit.enable == Some(true), unit.mask == Some(true));
    if mask && (enable || unit.content.is_some()) {
        return Err(invalid(
            place,
            "a masked unit can have no content and can't be enabled",
        ));
    }
    if !mask && !enable && is_empty {
        return Err(invalid(
            place,
            "has no effect; set content or dropIns, or enable or mask it",
        ));
    }
    Ok(())
}

fn check_modules(place: &str, modules: &Value, reader: Reader) -> Result<(), ProfileError> {
    let Value::Object(modules) = modules else {
        return Err(invalid(place, "must be an object of cloud-init modules"));
    };
    for (key, value) in modules {
        let place = format!("{place}.{key}");
        if let Some(problem) = user_data::unsupported_module(reader, key) {
            return Err(invalid(place, problem));
        }
        if let Some((_, instead)) = RESERVED_MODULES.iter().find(|(reserved, _)| reserved == key) {
            return Err(invalid(place, format!("can't be set here: {instead}")));
        }
        if matches!(key.as_str(), "bootcmd" | "runcmd") {
            let words = |item: &Value| {
                item.as_array()
                    .is_some_and(|words| words.iter().all(Value::is_string))
            };
            let commands = |items: &Vec<Value>| items.iter().all(|item| item.is_string() || words(item));
            if !value.as_array().is_some_and(commands) {
                return Err(invalid(
                    place,
                    "must be a list of commands: each a string, or a list of strings",
                ));
            }
        }
    }
    Ok(())
}
