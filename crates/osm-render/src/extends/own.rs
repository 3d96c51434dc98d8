//! Which fields of a profile are about the profile that it extends.

use osm_api::OperatingSystemProfileSpec;
use osm_api::profile::ProfileConfig;

use super::Problem;
use crate::{Stage, template_walk};

/// Refuses a profile that extends none and yet replaces or removes something.
pub(super) fn check_stands_alone(spec: &OperatingSystemProfileSpec) -> Result<(), Problem> {
    let found = Stage::ALL
        .into_iter()
        .find_map(|stage| first(stage.field(), stage.config(spec)));
    match found {
        Some((path, field)) => Err(Problem::new(
            path,
            format!(
                "{field} has a meaning only in a profile that extends another one; remove it, or set spec.extends"
            ),
        )),
        None => Ok(()),
    }
}

/// The first such field of a stage: its path, and its name.
fn first(stage: &'static str, config: &ProfileConfig) -> Option<(String, &'static str)> {
    let lists = [
        ("replaceTemplates", config.replace_templates.is_empty()),
        ("removeTemplates", config.remove_templates.is_empty()),
        ("removeModules", config.remove_modules.is_empty()),
        ("removeSysctls", config.remove_sysctls.is_empty()),
    ];
    let mark = |replace: bool, remove: bool| match (replace, remove) {
        (true, _) => Some("replace"),
        (false, true) => Some("remove"),
        (false, false) => None,
    };
    let mut files = template_walk::files(stage, config);
    let mut units = config.units.iter().enumerate();
    files
        .find_map(|(place, file)| Some((place.to_string(), mark(file.replace, file.remove)?)))
        .or_else(|| {
            units.find_map(|(i, unit)| {
                let place = format!("{stage}.units[{i}] ({})", unit.name);
                Some((place, mark(unit.replace, unit.remove)?))
            })
        })
        .or_else(|| {
            let mut set = lists.into_iter().filter(|(_, is_empty)| !is_empty);
            set.next().map(|(field, _)| (format!("{stage}.{field}"), field))
        })
}
