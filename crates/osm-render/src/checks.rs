//! Checks everything about a profile that can be checked without rendering it.

use std::collections::BTreeSet;

use osm_api::profile::{
    CloudProvider, ContainerRuntime, ContainerRuntimeName, OperatingSystem, OperatingSystemProfileSpec,
    ProfileConfig, ProfileFile, ProfileUnit, ProvisioningUtility, TemplateEngine,
};
use osm_user_data::filled::own_paths;
use osm_user_data::reader::{Reader, unsupported_module};
use osm_user_data::stage::Stage;
use osm_user_data::units::unit_paths;
use serde_json::Value;

use crate::error::{ProfileError, ensure, invalid};
use crate::go_templates::clean_path;
use crate::{additions, template_walk};

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

/// Checks a profile on its bases. What it only removes from them is left to [`crate::extends`].
///
/// # Errors
/// The first mistake, with its path inside the spec.
pub(crate) fn check(spec: &OperatingSystemProfileSpec) -> Result<(), ProfileError> {
    let rules = Rules {
        reader: Reader::of(Some(spec.os_name), spec.provisioning_utility),
        is_go: spec.template_engine == TemplateEngine::GoTemplate,
    };
    check_version(&spec.version)?;
    let mut clouds = spec.supported_cloud_providers.iter();
    let is_good = clouds.any(|cloud| rules.reader == Reader::CloudInit || cloud.name != CloudProvider::Edge);
    let problem = "must name at least one cloud provider, and for Flatcar one besides edge";
    ensure(is_good, "supportedCloudProviders", problem)?;
    let os = spec.os_name;
    let is_good =
        spec.provisioning_utility != ProvisioningUtility::Ignition || os == OperatingSystem::Flatcar;
    let problem = format!("is ignition, which {os} does not support; use cloud-init");
    ensure(is_good, "provisioningUtility", problem)?;
    Stage::ALL
        .into_iter()
        .try_for_each(|stage| check_stage(stage, stage.config(spec), rules))
}

/// What decides about the rules of a profile.
#[derive(Clone, Copy)]
struct Rules {
    /// Reads the documents on the machine.
    reader: Reader,
    /// Whether the profile may do what the upstream OSM accepts; see [`crate::go_templates::passed_on`].
    is_go: bool,
}

/// Longest version in bytes. The search for a semantic version starts at each `v`, so its time grows with the
/// square of the length.
const MAX_VERSION: usize = 256;

/// The pattern in the definition of profiles, which is that of the upstream OSM, has no start.
fn check_version(version: &str) -> Result<(), ProfileError> {
    let is_semantic = |(at, v): (usize, &str)| {
        let number = version.get(at + v.len()..).unwrap_or_default();
        semver::Version::parse(number).is_ok()
    };
    let is_good = version.len() <= MAX_VERSION && version.match_indices('v').any(is_semantic);
    let problem = format!(
        "must end in a semantic version with a leading v, such as v1.0.0, and have at most {MAX_VERSION} bytes"
    );
    ensure(is_good, "version", problem)
}

fn check_stage(stage: Stage, config: &ProfileConfig, rules: Rules) -> Result<(), ProfileError> {
    let Rules { reader, is_go } = rules;
    let name = stage.field();
    let runtimes = &config.supported_container_runtimes;
    let is_containerd = |runtime: &&ContainerRuntime| runtime.name == ContainerRuntimeName::Containerd;
    let is_good = runtimes.iter().filter(is_containerd).count() <= 1;
    let problem = "lists containerd more than once";
    ensure(is_good, format!("{name}.supportedContainerRuntimes"), problem)?;
    let mut paths: BTreeSet<String> = BTreeSet::new();
    if stage == Stage::Bootstrap && !is_go {
        paths.extend(own_paths(reader).iter().map(|path| (*path).to_owned()));
    }
    let mut units = BTreeSet::new();
    if !is_go {
        let (of_additions, own_units) = additions::own_paths_and_units(config, reader);
        paths.extend(of_additions);
        units.extend(own_units);
    }
    for (place, file) in template_walk::files(name, config).filter(|(_, file)| !file.remove) {
        let path = check_file(&place, file, rules)?;
        check_file_for(rules, &place, file, &path)?;
        let problem = "this path is written more than once";
        ensure(paths.insert(path) || is_go, place, problem)?;
    }
    for (i, unit) in config.units.iter().enumerate().filter(|(_, unit)| !unit.remove) {
        let place = format!("{name}.units[{i}] ({})", unit.name);
        check_unit(&place, unit, rules)?;
        let is_new = units.insert(unit.name.clone());
        ensure(is_new || is_go, &place, "this unit is listed more than once")?;
        for path in unit_paths(unit) {
            let is_new = paths.insert(path);
            ensure(is_new || is_go, &place, "its file is written more than once")?;
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
        check_template_name(place, template, rules)?;
    }
    if let Some(modules) = &config.modules {
        check_modules(&format!("{name}.modules"), modules, rules)?;
    }
    additions::check(stage, config, reader)
}

fn check_template_name(place: String, name: &str, rules: Rules) -> Result<(), ProfileError> {
    if rules.is_go {
        // The upstream OSM writes the name into an action, between quotes.
        let is_good = !name.contains(|c: char| c.is_control() || matches!(c, '"' | '\\'));
        let problem = "a template's name can't have quotes, backslashes and control characters";
        return ensure(is_good, place, problem);
    }
    // Without dots, so that no name is also a path inside the spec.
    let good = |c: char| c.is_ascii_alphanumeric() || "-_/".contains(c);
    let problem = "a template's name may have letters, digits, -, _ and / only";
    ensure(!name.is_empty() && name.chars().all(good), place, problem)
}

/// The folders above a path.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at))
}

/// Refuses what would fail only on the machine, which then has no network to log in by.
fn check_file_for(rules: Rules, place: &str, file: &ProfileFile, path: &str) -> Result<(), ProfileError> {
    let below = |folders: &[&str]| folders.iter().any(|folder| path.starts_with(folder));
    let (program, unwritable, why) = match rules.reader {
        Reader::CloudInit => return Ok(()),
        Reader::CoreosCloudinit => (
            "coreos-cloudinit",
            below(&["/dev/", "/proc/", "/sys/"]),
            "coreos-cloudinit creates new files, which this file system does not allow; write the file from a unit",
        ),
        // Profiles of the upstream OSM do so in vain.
        Reader::Ignition => (
            "Ignition",
            below(&["/dev/", "/proc/", "/run/", "/sys/"]) && !rules.is_go,
            "Ignition writes files before this file system is mounted; write the file from a unit",
        ),
    };
    let problem = format!("permissions must be 777 or less, {program} sets no others");
    ensure(file.permissions <= 777, place, problem)?;
    let of_flatcar = "/usr is read-only on Flatcar; write below /etc or /opt";
    ensure(!below(&["/usr/"]), place, of_flatcar)?;
    ensure(!unwritable, place, why)
}

/// Checks a file. The result is its path on the machine.
fn check_file(place: &str, file: &ProfileFile, rules: Rules) -> Result<String, ProfileError> {
    let clean = clean_path(&file.path);
    let path = if rules.is_go {
        // Ignition refuses a relative path, and cloud-init takes it as one below /.
        clean.filter(|_| rules.reader != Reader::Ignition || file.path.starts_with('/'))
    } else {
        clean.filter(|clean| *clean == file.path)
    };
    let path = path.ok_or_else(|| invalid(place, "path must be absolute, without //, . and .."))?;
    let has_tags = path.contains("{{");
    let problem = "path can't contain template tags";
    ensure(rules.is_go || !has_tags, place, problem)?;
    let mut digits = file.permissions.to_string().into_bytes().into_iter();
    let is_good = file.permissions <= 7777 && digits.all(|digit| (b'0'..=b'7').contains(&digit));
    let problem = "permissions must be octal digits, such as 644 or 755";
    ensure(is_good, place, problem)?;
    let inline = file.content.inline.as_ref();
    let inline = inline.ok_or_else(|| invalid(place, "content.inline is missing"))?;
    let is_good = rules.is_go || matches!(inline.encoding.as_deref(), None | Some("" | "b64"));
    let problem = "content.inline.encoding must be b64 or absent; the data is plain text either way";
    ensure(is_good, place, problem)?;
    Ok(path)
}

fn check_unit(place: &str, unit: &ProfileUnit, rules: Rules) -> Result<(), ProfileError> {
    let word = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c))
    };
    let kind = unit.name.rsplit_once('.').map(|(_, kind)| kind);
    let has_kind = match kind {
        Some(
            "service" | "socket" | "target" | "timer" | "path" | "mount" | "automount" | "swap" | "slice",
        ) => true,
        Some("device" | "snapshot" | "scope") => rules.is_go,
        // coreos-cloudinit takes units of systemd-networkd as well.
        Some("network" | "netdev" | "link") => rules.is_go && rules.reader == Reader::CoreosCloudinit,
        _ => false,
    };
    let problem = "name must be that of a unit with its suffix, such as setup.service";
    ensure(word(&unit.name) && has_kind, place, problem)?;
    for drop_in in &unit.drop_ins {
        // systemd skips others, and so do the programs that write them, apart from Ignition.
        let may_be_skipped = rules.is_go && rules.reader != Reader::Ignition;
        let is_good = word(&drop_in.name) && (drop_in.name.ends_with(".conf") || may_be_skipped);
        ensure(is_good, place, "the name of a drop-in must end in .conf")?;
    }
    if rules.is_go {
        return Ok(());
    }
    let is_empty = unit.content.is_none() && unit.drop_ins.is_empty();
    let (enable, mask) = (unit.enable == Some(true), unit.mask == Some(true));
    let problem = "a masked unit can't have content or be enabled";
    ensure(!mask || !enable && unit.content.is_none(), place, problem)?;
    let problem = "has no effect; set content or dropIns, or enable or mask it";
    ensure(mask || enable || !is_empty, place, problem)
}

fn check_modules(place: &str, modules: &Value, rules: Rules) -> Result<(), ProfileError> {
    let Value::Object(modules) = modules else {
        return Err(invalid(place, "must be an object of cloud-init modules"));
    };
    for (key, value) in modules {
        let place = format!("{place}.{key}");
        match unsupported_module(rules.reader, key) {
            Some(_) if rules.is_go => continue,
            Some(problem) => return Err(invalid(place, problem)),
            None if rules.is_go && value.is_null() => continue,
            None => {}
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
            let problem = "must be a list of commands: each a string, or a list of strings";
            ensure(value.as_array().is_some_and(commands), place, problem)?;
        }
    }
    Ok(())
}
