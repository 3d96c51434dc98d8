//! Commands on Flatcar, whose readers run none: scripts, and units that run them.

use osm_api::config::StageConfig;
use osm_api::profile::{Commands, ProfileConfig, ProfileUnit, Unit};
use osm_user_data::late_bound::in_single_quotes;
use serde_json::Value;

use super::files::{file, lines};

/// Name of the unit that applies the kernel parameters and modules of the profile.
const PROFILE_KERNEL: &str = "osm-profile-kernel.service";

/// Adds a unit that applies kernel parameters and modules before the other units start.
pub(super) fn apply_now(config: &mut ProfileConfig, command: &str) {
    let order = order("Before", config);
    let text = kernel_unit("profile", &order, command);
    config.units.insert(0, unit(PROFILE_KERNEL, text));
}

/// Adds a unit that applies kernel parameters and modules of the settings before the other units start, but
/// after the profile's.
pub(super) fn apply_settings_now(stage: &mut StageConfig, command: &str) {
    let firsts = [PROFILE_KERNEL, "osm-commands-before.service"];
    let enabled = stage.units.iter().filter(|unit| unit.enable == Some(true));
    let (before, after): (Vec<&str>, Vec<&str>) = enabled
        .map(|unit| unit.name.as_str())
        .partition(|name| !firsts.contains(name));
    let order = [line_of("Before", &before), line_of("After", &after)].concat();
    let unit = Unit {
        name: "osm-settings-kernel.service".to_owned(),
        enable: Some(true),
        content: Some(kernel_unit("settings", &order, command)),
        ..Unit::default()
    };
    let at = stage
        .units
        .iter()
        .take_while(|unit| firsts.contains(&unit.name.as_str()))
        .count();
    stage.units.insert(at, unit);
}

fn kernel_unit(origin: &str, order: &str, command: &str) -> String {
    format!(
        "[Unit]\nDescription=Apply the kernel parameters and modules of the {origin}\n{order}\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c '{command}'\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

/// Adds units that run the commands once: before the other units start, and after they have started.
pub(super) fn run(config: &mut ProfileConfig, Commands { before, after }: &Commands) {
    if !before.is_empty() {
        let unit = of_script(config, "osm-commands-before", "before", before);
        config.units.insert(0, unit);
    }
    if !after.is_empty() {
        let unit = of_script(config, "osm-commands-after", "after", after);
        config.units.push(unit);
    }
}

/// A unit that runs a script of commands until it has succeeded once. Adds the script.
fn of_script(config: &mut ProfileConfig, name: &str, when: &str, commands: &[Value]) -> ProfileUnit {
    let order = order(if when == "before" { "Before" } else { "After" }, config);
    let path = format!("/opt/bin/{name}");
    let script = format!("#!/bin/sh\n{}", lines(commands.iter().map(line)));
    config.files.push(file(&path, 755, script));
    let mark = format!("/var/lib/osm/{name}");
    let text = format!(
        "[Unit]\nDescription=Run the commands of the profile that come {when} all others\n\
         Wants=network-online.target\nAfter=network-online.target\n{order}\
         ConditionPathExists=!{mark}\nStartLimitIntervalSec=0\n\n\
         [Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart={path}\n\
         ExecStartPost=/bin/sh -c 'mkdir -p /var/lib/osm && touch {mark}'\nRestart=on-failure\nRestartSec=10\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    );
    unit(&format!("{name}.service"), text)
}

/// A line of a unit that orders it against all enabled ones.
fn order(direction: &str, config: &ProfileConfig) -> String {
    let enabled = config.units.iter().filter(|unit| unit.enable == Some(true));
    let names: Vec<&str> = enabled.map(|unit| unit.name.as_str()).collect();
    line_of(direction, &names)
}

fn line_of(direction: &str, units: &[&str]) -> String {
    if units.is_empty() {
        String::new()
    } else {
        format!("{direction}={}\n", units.join(" "))
    }
}

fn unit(name: &str, text: String) -> ProfileUnit {
    ProfileUnit {
        name: name.to_owned(),
        enable: Some(true),
        content: Some(text),
        ..ProfileUnit::default()
    }
}

/// A command as a line of a script.
fn line(command: &Value) -> String {
    let quote = |word: &Value| in_single_quotes(word.as_str().unwrap_or_default());
    match command {
        Value::Array(words) => words.iter().map(quote).collect::<Vec<_>>().join(" "),
        text => text.as_str().unwrap_or_default().to_owned(),
    }
}
