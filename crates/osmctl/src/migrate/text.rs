//! Writes the output of `check`.

use osm_user_data::yaml;
use serde_json::Value;

use super::check::Checked;
use super::compare;
use crate::cluster::Target;
use crate::output;

/// Everything that a migration finds and does.
pub fn report(checked: &Checked, target: &Target, namespace: &str, with_lines: bool) -> String {
    let context = match &target.context {
        Some(context) => format!("context {context}, "),
        None => String::new(),
    };
    let mut text = format!("Cluster: {}, {context}namespace {namespace}\n", target.server);
    let found = &checked.found;
    if found.controller.is_some() {
        text.push_str("\nWhat the upstream OSM has installed:\n");
        let installed = found
            .webhooks
            .iter()
            .chain(&found.controller)
            .chain(&found.webhook);
        let lines: Vec<[String; 3]> = installed
            .map(|object| {
                let place = object.namespace().unwrap_or("-");
                [
                    format!("  {}", object.kind.kind),
                    place.to_owned(),
                    object.name().to_owned(),
                ]
            })
            .collect();
        text.push_str(&output::table(&lines));
        text.push_str("\nWhat becomes of pools; --diff prints the lines that differ:\n");
        text.push_str(&compare::text::text(&checked.report, with_lines));
        if !checked.values.is_null() {
            text.push_str("\nValues of the chart:\n");
            text.push_str(&values(&checked.values));
        }
        if !checked.mapped.commands.is_empty() {
            let commands = checked.mapped.commands.join("\n");
            let title = "Commands for the cluster with the MachineDeployments, which create a Secret for each registry";
            text.push_str(&format!("\n{title}:\n{commands}\n"));
        }
    }
    text.push_str(&list("\nNotes:\n", &checked.notes));
    text.push_str(&list("\nThe cluster cannot be migrated:\n", &checked.problems));
    if checked.problems.is_empty() {
        let is_one = checked.values.get("topology").is_none();
        let next = if is_one {
            "osmctl migrate script >osm-migrate.sh"
        } else {
            "docs/fleet.md, for KKP docs/kkp.md"
        };
        text.push_str(&format!("\nThe cluster can be migrated. Next step: {next}\n"));
    }
    text
}

/// Lines below a title, if there are any.
pub fn list(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines = lines.iter().map(|line| format!("  - {line}\n"));
    format!("{title}{}", lines.collect::<String>())
}

/// Values of the chart, as a file.
fn values(values: &Value) -> String {
    // What was read from JSON has a form in YAML.
    yaml::write(values).unwrap_or_else(|_| values.to_string())
}
