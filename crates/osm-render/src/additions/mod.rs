//! Commands, kernel parameters and kernel modules of a profile, as what each reader of documents has for them: files, modules and
//! units. A resolved profile has only those. Packages are left, because the settings decide whether they are installed.
//!
//! | | cloud-init | coreos-cloudinit | Ignition |
//! |---|---|---|---|
//! | commands | `bootcmd`, `runcmd` | a script and a unit | a script and a unit |
//! | kernel parameters and modules | a file, and a command now | a file, and a unit now | a file, which the next boot reads |
//!
//! Where a profile has packages as well, cloud-init loads kernel modules again after they are installed.

mod check;
mod flatcar;

use osm_api::OperatingSystemProfileSpec;
use osm_api::profile::{Commands, FileContent, InlineContent, ProfileConfig, ProfileFile};
use serde_json::{Map, Value, json};

use crate::user_data::Reader;

pub(crate) use check::check;

/// Names of both files sort after those of images and of the default profiles. `osm-setup` of the library reads the first one.
const SYSCTL_FILE: &str = "/etc/sysctl.d/99-zz-osm-profile.conf";
const MODULES_FILE: &str = "/etc/modules-load.d/osm-profile.conf";

/// `spec` without these fields, and with what they stand for.
pub(crate) fn lower(mut spec: OperatingSystemProfileSpec) -> OperatingSystemProfileSpec {
    let reader = Reader::of(Some(spec.os_name), spec.provisioning_utility);
    let config = &mut spec.provisioning_config;
    let commands = config.commands.take().unwrap_or_default();
    let has_packages = !config.packages.is_empty() && !config.kernel_modules.is_empty();
    // A module that comes with a package can be loaded only after its installation.
    let load_again = has_packages.then(|| format!("{}; :", modprobe(&config.kernel_modules)));
    let apply_kernel = take_kernel(config);
    match reader {
        Reader::CloudInit => {
            let now = apply_kernel.into_iter().map(Value::String).collect();
            let again = load_again.into_iter().map(Value::String).collect();
            around(config, commands, now, again);
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
    spec
}

/// Turns kernel parameters and modules into files, and returns the command that applies them to the running kernel.
fn take_kernel(config: &mut ProfileConfig) -> Option<String> {
    let modules = std::mem::take(&mut config.kernel_modules);
    let sysctls = std::mem::take(&mut config.sysctls);
    let mut commands = Vec::new();
    if !modules.is_empty() {
        config.files.push(file(MODULES_FILE, 644, lines(modules.iter())));
        commands.push(modprobe(&modules));
    }
    if !sysctls.is_empty() {
        let settings = sysctls.iter().map(|(key, value)| format!("{key} = {value}"));
        config.files.push(file(SYSCTL_FILE, 644, lines(settings)));
        // A parameter that this kernel does not have is no reason to fail.
        commands.push(format!("sysctl -q -e -p {SYSCTL_FILE}"));
    }
    // What fails is in the journal. A node without it is better than none.
    (!commands.is_empty()).then(|| format!("{}; :", commands.join("; ")))
}

fn modprobe(modules: &[String]) -> String {
    format!("modprobe -a {}", modules.join(" "))
}

/// Puts commands around those of the modules: `before`, and then `now`, before all others; `again` after packages are installed.
fn around(
    config: &mut ProfileConfig,
    Commands { before, after }: Commands,
    now: Vec<Value>,
    again: Vec<Value>,
) {
    let first = [before, now].concat();
    if first.is_empty() && again.is_empty() && after.is_empty() {
        return;
    }
    let modules = config.modules.get_or_insert_with(|| json!({}));
    if let Value::Object(modules) = modules {
        set(modules, "bootcmd", |own| [first, own].concat());
        set(modules, "runcmd", |own| [again, own, after].concat());
    }
}

/// Changes a list of commands.
fn set(modules: &mut Map<String, Value>, module: &str, change: impl FnOnce(Vec<Value>) -> Vec<Value>) {
    let own = match modules.remove(module) {
        Some(Value::Array(own)) => own,
        _ => Vec::new(),
    };
    let changed = change(own);
    if !changed.is_empty() {
        modules.insert(module.to_owned(), Value::Array(changed));
    }
}

fn lines(lines: impl Iterator<Item = impl std::fmt::Display>) -> String {
    lines.map(|line| format!("{line}\n")).collect()
}

fn file(path: &str, permissions: i32, data: String) -> ProfileFile {
    let inline = Some(InlineContent { encoding: None, data });
    ProfileFile {
        path: path.to_owned(),
        permissions,
        content: FileContent { inline },
        replace: false,
        remove: false,
    }
}
