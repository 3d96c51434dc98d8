//! Checks a profile before it is rendered.

use osm_api::profile::{OperatingSystemProfileSpec, TemplateEngine};
use osm_api::{OperatingSystemProfile, Reason};

use crate::input::{CUSTOM_PROFILE, Item};
use crate::problem::Problem;
use crate::yaml_tree::Kind;

/// Checks a profile. The `defaults` are the default profiles, with their names.
pub fn check(
    item: &Item<OperatingSystemProfile>,
    defaults: &[(String, OperatingSystemProfileSpec)],
) -> Vec<Problem> {
    let mut problems = of_verbatim_texts(item);
    problems.extend(of_name(item, defaults));
    for (path, message) in osm_render::validate::decimal_modes(&item.value.spec) {
        // Another rule reports a leading zero.
        let has_zero = item
            .origin
            .written(&path)
            .is_some_and(|text| text.starts_with('0'));
        if !has_zero {
            let place = item.origin.place(&path);
            problems.push(Problem::warning("decimal-mode", place, message));
        }
    }
    problems
}

/// Actions in texts that the upstream OSM does not take for templates.
fn of_verbatim_texts(item: &Item<OperatingSystemProfile>) -> Vec<Problem> {
    if item.value.spec.template_engine != TemplateEngine::GoTemplate {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for stage in ["bootstrapConfig", "provisioningConfig"] {
        for part in ["units", "modules"] {
            let path = format!("spec.{stage}.{part}");
            let node = item.origin.node().and_then(|node| {
                let mut keys = path.split('.');
                keys.try_fold(node, |node, key| node.get(key))
            });
            let Some(node) = node else { continue };
            node.scalars(None, &mut |_, node, is_key| {
                let Kind::Scalar(text, _) = &node.kind else { return };
                if is_key || !text.contains("{{") {
                    return;
                }
                let message = format!("{path} contains {{{{, but only the content of files is a Go template, so the text stays as it is");
                let problem = Problem::warning("verbatim", item.origin.place_of(node), message);
                problems.push(problem.hint(
                    "move the text to a file, such as /etc/systemd/system/NAME for a unit; or write the profile in Handlebars",
                ));
            });
        }
    }
    problems
}

/// osp-controller installs the default profiles under their names.
fn of_name(
    item: &Item<OperatingSystemProfile>,
    defaults: &[(String, OperatingSystemProfileSpec)],
) -> Option<Problem> {
    let name = item.value.metadata.name.as_deref()?;
    let (_, default) = defaults.iter().find(|(default, _)| default == name)?;
    let place = item.origin.place("metadata.name");
    if item.origin.written("kind") == Some(CUSTOM_PROFILE) {
        let message = format!("{name} is the name of a default profile");
        let problem = Problem::error(Reason::CustomProfileNameTaken.as_str(), place, message);
        return Some(problem.hint("create the custom profile under another name"));
    }
    if *default == item.value.spec {
        return None;
    }
    let problem = Problem::warning("default-name", place, osm_render::validate::default_name(name));
    Some(problem.hint("give the profile another name, and name it in the MachineDeployments"))
}
