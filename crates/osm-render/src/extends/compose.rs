//! Puts a profile and its bases together.

use osm_api::OperatingSystemProfileSpec;
use osm_user_data::stage::Stage;

use super::base::Base;
use super::stage;
use crate::error::{ProfileError, extends};
use crate::template_walk;

/// `spec` with everything of its `bases`, the nearest of which is the first. Without bases, it is `spec`.
///
/// # Errors
/// What two of the profiles set differently, or what a profile replaces or removes although its base does not
/// have it.
pub(crate) fn compose(
    spec: &OperatingSystemProfileSpec,
    bases: &[Base],
) -> Result<OperatingSystemProfileSpec, ProfileError> {
    // From the root up to the profile itself.
    let mut upwards = bases
        .iter()
        .rev()
        .map(|base| (Some(base), &base.spec))
        .chain([(None, spec)]);
    let Some((root, root_spec)) = upwards.next() else {
        return Ok(spec.clone());
    };
    check_stands_alone(root_spec).map_err(|error| of(root, error))?;
    let (mut composed, mut on) = (root_spec.clone(), root.map_or("", Base::name));
    for (base, spec) in upwards {
        composed = extend(composed, on, spec).map_err(|error| of(base, error))?;
        on = base.map_or("", Base::name);
    }
    Ok(composed)
}

/// An error of the `base` that has it; `None`: of the profile itself.
fn of(base: Option<&Base>, error: ProfileError) -> ProfileError {
    match (base, error) {
        (Some(known), ProfileError::Extends { path, problem, .. }) => ProfileError::Extends {
            base: Some(known.name().to_owned()),
            path,
            problem,
        },
        (_, error) => error,
    }
}

/// `extension` on `base`, whose name is `name`.
fn extend(
    base: OperatingSystemProfileSpec,
    name: &str,
    extension: &OperatingSystemProfileSpec,
) -> Result<OperatingSystemProfileSpec, ProfileError> {
    let fields = |spec: &OperatingSystemProfileSpec| {
        [
            ("osName", spec.os_name.to_string()),
            ("provisioningUtility", spec.provisioning_utility.to_string()),
            ("templateEngine", format!("{:?}", spec.template_engine)),
        ]
    };
    for ((field, own), (_, wanted)) in fields(extension).into_iter().zip(fields(&base)) {
        if own != wanted {
            let problem = format!("must be {wanted}, as in the parent profile {name}");
            return Err(extends(field, problem));
        }
    }
    check_clouds(&base, name, extension)?;
    let merge = |stage: Stage, base| stage::merge(base, name, stage, stage.config(extension));
    Ok(OperatingSystemProfileSpec {
        bootstrap_config: merge(Stage::Bootstrap, base.bootstrap_config)?,
        provisioning_config: merge(Stage::Provisioning, base.provisioning_config)?,
        extends: None,
        ..extension.clone()
    })
}

/// The first cloud that `extension` supports and `base` does not.
fn check_clouds(
    base: &OperatingSystemProfileSpec,
    name: &str,
    extension: &OperatingSystemProfileSpec,
) -> Result<(), ProfileError> {
    let known: Vec<&str> = base
        .supported_cloud_providers
        .iter()
        .map(|cloud| cloud.name.as_str())
        .collect();
    let mut clouds = extension.supported_cloud_providers.iter();
    let Some(cloud) = clouds.find(|cloud| !known.contains(&cloud.name.as_str())) else {
        return Ok(());
    };
    let problem = format!(
        "{} is not supported by {name}, which supports {}; remove it",
        cloud.name,
        known.join(", ")
    );
    Err(extends("supportedCloudProviders", problem))
}

/// Refuses a profile that extends none and yet replaces or removes something.
fn check_stands_alone(spec: &OperatingSystemProfileSpec) -> Result<(), ProfileError> {
    for stage in Stage::ALL {
        let (field, config) = (stage.field(), stage.config(spec));
        let files = template_walk::files(field, config);
        let files = files.filter(|(_, file)| file.replace || file.remove);
        let units = config.units.iter().enumerate();
        let units = units.filter(|(_, unit)| unit.replace || unit.remove);
        let lists = [
            ("replaceTemplates", config.replace_templates.is_empty()),
            ("removeTemplates", config.remove_templates.is_empty()),
            ("removeModules", config.remove_modules.is_empty()),
            ("removeSysctls", config.remove_sysctls.is_empty()),
        ];
        let lists = lists.into_iter().filter(|(_, is_empty)| !is_empty);
        let mut found = files
            .map(|(place, _)| place)
            .chain(units.map(|(i, unit)| format!("{field}.units[{i}] ({})", unit.name)))
            .chain(lists.map(|(list, _)| format!("{field}.{list}")));
        if let Some(path) = found.next() {
            let problem = "replaces or removes something, which has a meaning only in a profile that extends another one; remove \
                           it, or set spec.extends";
            return Err(extends(path, problem));
        }
    }
    Ok(())
}
