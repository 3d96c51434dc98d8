//! What `check` prints, for people and programs.

use osm_render::yaml;
use serde_json::{Value, json};

use super::check::Checked;
use super::compare;
use crate::cluster::{Object, Target};
use crate::output;

/// Everything that a migration finds and does.
pub fn report(
    checked: &Checked,
    target: &Target,
    namespace: &str,
    with_lines: bool,
    with_color: bool,
) -> String {
    let context = match &target.context {
        Some(context) => format!("context {context}, "),
        None => String::new(),
    };
    let mut text = format!("Cluster: {}, {context}namespace {namespace}\n", target.server);
    let found = &checked.found;
    if found.controller.is_some() {
        text.push_str("\nWhat the Go implementation has installed:\n");
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
        text.push_str("\nWhat becomes of pools and profiles; --diff prints the lines that differ:\n");
        text.push_str(&compare::text::text(&checked.report, with_lines, with_color));
        if !checked.values.is_null() {
            text.push_str("\nValues of the chart:\n");
            text.push_str(&values(&checked.values));
        }
    }
    text.push_str(&list("\nNotes:\n", &checked.notes));
    text.push_str(&list(
        "\nThe cluster cannot be migrated yet:\n",
        &checked.problems,
    ));
    if checked.problems.is_empty() {
        text.push_str("\nThe cluster can be migrated. Next step: osmctl migrate script >osm-migrate.sh\n");
    }
    text
}

/// Lines below a title, if there are any.
pub fn list(title: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let lines = lines
        .iter()
        .map(|line| format!("  - {}\n", output::visible(line)));
    format!("{title}{}", lines.collect::<String>())
}

/// Values of the chart, as a file.
pub fn values(values: &Value) -> String {
    // What was read from JSON has a form in YAML.
    yaml::write(values).unwrap_or_else(|_| output::json(values))
}

/// For programs.
pub fn json(checked: &Checked, target: &Target, namespace: &str, with_lines: bool) -> String {
    let found = &checked.found;
    let object =
        |one: &Object| json!({"kind": one.kind.kind, "namespace": one.namespace(), "name": one.name()});
    let all = found
        .webhooks
        .iter()
        .chain(&found.controller)
        .chain(&found.webhook);
    output::json(&json!({
        "server": target.server,
        "context": target.context,
        "namespace": namespace,
        "canBeMigrated": checked.problems.is_empty(),
        "problems": checked.problems,
        "notes": checked.notes,
        "found": all.map(object).collect::<Vec<Value>>(),
        "values": checked.values,
        "comparison": compare::text::value(&checked.report, with_lines, &checked.snapshot),
    }))
}
