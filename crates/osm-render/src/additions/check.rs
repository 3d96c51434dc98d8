//! Checks the fields of a stage that stand for files, modules and units.

use osm_api::profile::{Commands, ProfileConfig};
use osm_api::system_names;
use osm_user_data::reader::{Reader, unsupported_module};
use osm_user_data::stage::Stage;
use serde_json::Value;

use crate::error::{ProfileError, ensure, invalid};

/// # Errors
/// The first mistake, with its path inside the spec.
pub(crate) fn check(stage: Stage, config: &ProfileConfig, reader: Reader) -> Result<(), ProfileError> {
    let name = stage.field();
    let set = [
        ("commands", config.commands.is_some()),
        ("packages", !config.packages.is_empty()),
        ("sysctls", !config.sysctls.is_empty()),
        ("kernelModules", !config.kernel_modules.is_empty()),
    ];
    if stage == Stage::Bootstrap
        && let Some((field, _)) = set.iter().find(|(_, is_set)| *is_set)
    {
        return Err(invalid(
            format!("{name}.{field}"),
            format!("can't be set here; set it in {}", Stage::Provisioning.field()),
        ));
    }
    if let Some(commands) = &config.commands {
        check_commands(name, commands, reader)?;
    }
    if !config.packages.is_empty()
        && let Some(problem) = unsupported_module(reader, "packages")
    {
        return Err(invalid(format!("{name}.packages"), problem));
    }
    for (field, names, others) in [
        ("packages", &config.packages, system_names::IN_PACKAGES),
        (
            "kernelModules",
            &config.kernel_modules,
            system_names::IN_KERNEL_MODULES,
        ),
    ] {
        for (i, item) in names.iter().enumerate() {
            check_name(&format!("{name}.{field}[{i}]"), item, others)?;
        }
    }
    for (key, value) in &config.sysctls {
        let place = format!("{name}.sysctls.{key}");
        check_name(&place, key, system_names::IN_SYSCTLS)?;
        system_names::check_sysctl_value(&value.to_string()).map_err(|problem| invalid(place, problem))?;
    }
    Ok(())
}

fn check_commands(stage: &str, commands: &Commands, reader: Reader) -> Result<(), ProfileError> {
    for (field, list) in [("before", &commands.before), ("after", &commands.after)] {
        for (i, command) in list.iter().enumerate() {
            let place = format!("{stage}.commands.{field}[{i}]");
            let is_command = match command {
                Value::String(text) => !text.trim().is_empty(),
                Value::Array(words) => !words.is_empty() && words.iter().all(Value::is_string),
                _ => false,
            };
            let problem = "must be a command: a string, or a list of strings";
            ensure(is_command, &place, problem)?;
            // There the words are quoted in a script, and what a template renders could end the quotes.
            let is_good =
                reader == Reader::CloudInit || !command.is_array() || !command.to_string().contains("{{");
            let problem =
                "a list of words can't contain template tags on Flatcar; write the command as one string";
            ensure(is_good, place, problem)?;
        }
    }
    Ok(())
}

/// As [`system_names::check_name`].
fn check_name(place: &str, name: &str, others: &str) -> Result<(), ProfileError> {
    system_names::check_name(name, others).map_err(|problem| invalid(place, problem))
}
