//! Puts a profile and its bases together.

use osm_api::OperatingSystemProfileSpec;
use osm_api::profile::{SupportedCloudProvider, TemplateEngine};

use super::{Base, Problem, own, stage};
use crate::error::ProfileError;
use crate::{Stage, template_walk};

/// `spec` with everything of its `bases`, the nearest of which is the first. Without bases, it is `spec`.
///
/// # Errors
/// What two of the profiles set differently, or what a profile replaces or removes although its base does not have it.
pub(crate) fn compose(
    spec: &OperatingSystemProfileSpec,
    bases: &[Base],
) -> Result<OperatingSystemProfileSpec, ProfileError> {
    let mut upwards = bases.iter().rev();
    let Some(root) = upwards.next() else {
        own::check_stands_alone(spec).map_err(in_own)?;
        return Ok(spec.clone());
    };
    own::check_stands_alone(&root.spec).map_err(|problem| in_base(root.name(), problem))?;
    let (mut composed, mut on) = (root.spec.clone(), root.name());
    for base in upwards {
        composed = extend(composed, on, &base.spec).map_err(|problem| in_base(base.name(), problem))?;
        on = base.name();
    }
    extend(composed, on, spec).map_err(in_own)
}

fn in_own(Problem { path, problem }: Problem) -> ProfileError {
    ProfileError::Extends {
        base: None,
        path,
        problem,
    }
}

fn in_base(base: &str, Problem { path, problem }: Problem) -> ProfileError {
    ProfileError::Extends {
        base: Some(base.to_owned()),
        path,
        problem,
    }
}

/// `extension` on `base`, whose name is `name`.
fn extend(
    base: OperatingSystemProfileSpec,
    name: &str,
    extension: &OperatingSystemProfileSpec,
) -> Result<OperatingSystemProfileSpec, Problem> {
    if extension.os_name != base.os_name {
        let problem = format!("must be {}, as in the parent profile {name}", base.os_name);
        return Err(Problem::new("osName", problem));
    }
    if extension.provisioning_utility != base.provisioning_utility {
        let problem = format!(
            "must be {}, as in the parent profile {name}",
            base.provisioning_utility
        );
        return Err(Problem::new("provisioningUtility", problem));
    }
    check_clouds(&base, name, &extension.supported_cloud_providers)?;
    let template_engine = engine(&base, name, extension)?;
    let merge = |stage: Stage, base| stage::merge(base, name, stage, stage.config(extension));
    Ok(OperatingSystemProfileSpec {
        bootstrap_config: merge(Stage::Bootstrap, base.bootstrap_config)?,
        provisioning_config: merge(Stage::Provisioning, base.provisioning_config)?,
        template_engine,
        extends: None,
        ..extension.clone()
    })
}

fn check_clouds(
    base: &OperatingSystemProfileSpec,
    name: &str,
    clouds: &[SupportedCloudProvider],
) -> Result<(), Problem> {
    let supported = |cloud: &&SupportedCloudProvider| {
        let mut of_base = base.supported_cloud_providers.iter();
        of_base.any(|known| known.name == cloud.name)
    };
    match clouds.iter().find(|cloud| !supported(cloud)) {
        None => Ok(()),
        Some(cloud) => {
            let known: Vec<&str> = base
                .supported_cloud_providers
                .iter()
                .map(|known| known.name.as_str())
                .collect();
            Err(Problem::new(
                "supportedCloudProviders",
                format!(
                    "{} is not supported by {name}, which supports {}; remove it",
                    cloud.name,
                    known.join(", ")
                ),
            ))
        }
    }
}

/// The language of both. Two languages can't be mixed, but a text without tags reads the same in all of them.
fn engine(
    base: &OperatingSystemProfileSpec,
    name: &str,
    extension: &OperatingSystemProfileSpec,
) -> Result<TemplateEngine, Problem> {
    let (own, its) = (extension.template_engine, base.template_engine);
    if own == its || !has_tags(base) {
        return Ok(own);
    }
    if !has_tags(extension) {
        return Ok(its);
    }
    Err(Problem::new(
        "templateEngine",
        format!(
            "is {own:?}, but the templates of {name} are written in {its:?}, and both have texts with {{{{; set it to {its:?} and \
             write the templates in that language"
        ),
    ))
}

/// Whether a text contains what some language would take for a tag.
fn has_tags(spec: &OperatingSystemProfileSpec) -> bool {
    Stage::ALL.into_iter().any(|stage| {
        let config = stage.config(spec);
        let texts = template_walk::texts(stage.field(), config);
        let named = template_walk::templates(stage.field(), config);
        let mut all = texts.iter().map(|source| source.text);
        all.any(is_tagged)
            || named.iter().any(|(_, _, text)| is_tagged(text))
            || config.replace_templates.values().any(|text| is_tagged(text))
            || config.commands.iter().any(|commands| {
                let mut commands = commands.before.iter().chain(&commands.after);
                // Braces of JSON itself never are two in a row: an object's key comes after the first.
                commands.any(|command| is_tagged(&command.to_string()))
            })
    })
}

fn is_tagged(text: &str) -> bool {
    text.contains("{{")
}
