//! Commands, kernel parameters and kernel modules of a profile, as what each reader of documents has for
//! them: files, modules and units. A resolved profile has only those. Packages are left, because the settings
//! decide whether they are installed.
//!
//! | | cloud-init | coreos-cloudinit | Ignition |
//! |---|---|---|---|
//! | commands | `bootcmd`, `runcmd` | a script and a unit | a script and a unit |
//! | kernel parameters and modules | a file, and a command now | a file, and a unit now | a file, which the next boot reads |
//!
//! Where a profile has packages as well, cloud-init loads kernel modules again after they are installed.

mod check;
mod files;
mod flatcar;

use std::collections::BTreeMap;

use osm_api::OperatingSystemProfileSpec;
use osm_api::config::StageConfig;
use osm_api::profile::{Commands, File, ProfileConfig, SysctlValue};
use osm_api::settings::System;
use osm_user_data::reader::Reader;
use osm_user_data::stage::Stage;
use osm_user_data::units::unit_paths;
use serde_json::{Map, Value, json};

use self::files::{file, lines};

pub(crate) use check::check;

/// `spec` without these fields, and with what they stand for.
pub(crate) fn lower(mut spec: OperatingSystemProfileSpec) -> OperatingSystemProfileSpec {
    let reader = Reader::of(Some(spec.os_name), spec.provisioning_utility);
    lower_stage(&mut spec.provisioning_config, reader);
    spec
}

fn lower_stage(config: &mut ProfileConfig, reader: Reader) {
    let commands = config.commands.take().unwrap_or_default();
    let has_packages = !config.packages.is_empty() && !config.kernel_modules.is_empty();
    // A module that comes with a package can be loaded only after its installation.
    let load_again = has_packages.then(|| format!("{}; :", modprobe(&config.kernel_modules)));
    let apply_kernel = take_kernel(config);
    match reader {
        Reader::CloudInit => {
            let now = apply_kernel.map(Value::String);
            around(config, commands, now, load_again.map(Value::String));
        }
        Reader::CoreosCloudinit => {
            if let Some(command) = apply_kernel {
                flatcar::apply_now(config, &command);
            }
            flatcar::run(config, &commands);
        }
        // Its files are there when the machine boots again, and the system reads them then.
        Reader::Ignition => flatcar::run(config, &commands),
    }
}

/// Paths of the files and units that [`lower`] adds to a stage, and names of these units.
pub(crate) fn own_paths_and_units(config: &ProfileConfig, reader: Reader) -> (Vec<String>, Vec<String>) {
    let mut lowered = ProfileConfig {
        commands: config.commands.clone(),
        kernel_modules: config.kernel_modules.clone(),
        sysctls: config.sysctls.clone(),
        ..ProfileConfig::default()
    };
    lower_stage(&mut lowered, reader);
    let files = lowered.files.into_iter().map(|file| file.path);
    let paths = files.chain(lowered.units.iter().flat_map(unit_paths));
    let paths = paths.collect();
    (paths, lowered.units.into_iter().map(|unit| unit.name).collect())
}

/// Turns kernel parameters and modules into files, and returns the command that applies them to the running
/// kernel.
fn take_kernel(config: &mut ProfileConfig) -> Option<String> {
    let modules = std::mem::take(&mut config.kernel_modules);
    let sysctls = std::mem::take(&mut config.sysctls);
    let Kernel { files, command } = Kernel::of("profile", &modules, &sysctls);
    config
        .files
        .extend(files.into_iter().map(|(path, text)| file(&path, 644, text)));
    command
}

/// Kernel parameters and modules of the settings, for a stage that is rendered already. Those of the profile
/// are applied before.
pub(crate) fn add_settings(reader: Reader, document: Stage, stage: &mut StageConfig, system: &System) {
    let Kernel { files, command } = Kernel::of("settings", &system.kernel_modules, &system.sysctls);
    for (path, data) in files {
        stage.files.retain(|file| file.path != path);
        stage.files.push(File::of_text(path, 644, data));
    }
    let Some(command) = command else { return };
    if reader == Reader::CoreosCloudinit {
        flatcar::apply_settings_now(stage, &command);
    }
    if reader != Reader::CloudInit {
        return;
    }
    let Some(modules) = modules(stage) else { return };
    // cloud-init runs `bootcmd` before it writes files; `osm-bootstrap`, which applies the other document,
    // writes them first.
    if document == Stage::Bootstrap {
        set(modules, "runcmd", |own| [vec![json!(command)], own].concat());
    } else {
        // All commands are one script, which is judged by its last command: a profile's own may have to
        // succeed.
        let command = format!("status=$?; {command}; (exit $status)");
        set(modules, "bootcmd", |own| [own, vec![json!(command)]].concat());
    }
}

/// Kernel parameters and modules of one origin.
struct Kernel {
    /// Paths and texts. The names sort after those of images and of the default profiles, and those of the
    /// settings after those of the profile. `osm-setup` of the library reads those with parameters.
    files: Vec<(String, String)>,
    /// Applies them to the running kernel.
    command: Option<String>,
}

impl Kernel {
    fn of(origin: &str, modules: &[String], sysctls: &BTreeMap<String, SysctlValue>) -> Self {
        let (mut files, mut commands) = (Vec::new(), Vec::new());
        if !modules.is_empty() {
            files.push((
                format!("/etc/modules-load.d/osm-{origin}.conf"),
                lines(modules.iter()),
            ));
            commands.push(modprobe(modules));
        }
        if !sysctls.is_empty() {
            let path = format!("/etc/sysctl.d/99-zz-osm-{origin}.conf");
            // A parameter that this kernel lacks must not make the command fail.
            commands.push(format!("sysctl -q -e -p {path}"));
            let settings = sysctls.iter().map(|(key, value)| format!("{key} = {value}"));
            files.push((path, lines(settings)));
        }
        // What fails is in the journal. A node without it is better than none.
        let command = (!commands.is_empty()).then(|| format!("{}; :", commands.join("; ")));
        Self { files, command }
    }
}

fn modprobe(modules: &[String]) -> String {
    format!("modprobe -a {}", modules.join(" "))
}

/// Puts commands around those of the modules: `before`, and then `now`, before all others; `again` after
/// packages are installed.
fn around(
    config: &mut ProfileConfig,
    Commands { before, after }: Commands,
    now: Option<Value>,
    again: Option<Value>,
) {
    let (first, last) = (before.into_iter().chain(now), again.into_iter());
    let (first, last): (Vec<Value>, Vec<Value>) = (first.collect(), last.collect());
    if first.is_empty() && last.is_empty() && after.is_empty() {
        return;
    }
    if let Value::Object(modules) = config.modules.get_or_insert_with(|| json!({})) {
        set(modules, "bootcmd", |own| [first, own].concat());
        set(modules, "runcmd", |own| [last, own, after].concat());
    }
}

/// The modules of a document.
pub(crate) fn modules(stage: &mut StageConfig) -> Option<&mut Map<String, Value>> {
    stage.modules.get_or_insert_with(|| json!({})).as_object_mut()
}

/// Changes a list of commands.
pub(crate) fn set(
    modules: &mut Map<String, Value>,
    module: &str,
    change: impl FnOnce(Vec<Value>) -> Vec<Value>,
) {
    let own = match modules.remove(module) {
        Some(Value::Array(own)) => own,
        _ => Vec::new(),
    };
    let changed = change(own);
    if !changed.is_empty() {
        modules.insert(module.to_owned(), Value::Array(changed));
    }
}
