//! What `check` and `apply` print before a migration.

use osm_render::yaml;
use serde_json::{Value, json};

use super::check::Checked;
use super::comparison;
use super::journal::Journal;
use super::plan::{State, Step};
use crate::cluster::Editor;
use crate::output;

/// Which cluster a command acts on.
pub fn target(editor: &Editor<'_>, namespace: &str) -> String {
    let context = match &editor.context {
        Some(context) => format!("context {context}, "),
        None => String::new(),
    };
    format!("Cluster: {}, {context}namespace {namespace}\n", editor.server)
}

/// Everything that a migration finds and does.
pub fn report(checked: &Checked, steps: &[Step], with_lines: bool, with_color: bool) -> String {
    let mut text = String::new();
    let found = &checked.found;
    if found.controller.is_some() {
        text.push_str("\nWhat the Go implementation has installed:\n");
        let installed = found.webhooks.iter().chain(&found.leftovers);
        let installed = installed.chain(&found.tokens).chain(&found.user_data);
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
        text.push_str(&comparison::text(&checked.report, with_lines, with_color));
        if !checked.values.is_null() {
            text.push_str("\nValues of the chart:\n");
            text.push_str(&values(&checked.values));
        }
        text.push_str(&plan(steps));
    }
    text.push_str(&list("\nNotes:\n", &checked.notes));
    text.push_str(&list(
        "\nThe cluster cannot be migrated yet:\n",
        &checked.problems,
    ));
    text
}

/// The steps, numbered.
pub fn plan(steps: &[Step]) -> String {
    let done = |step: &Step| match step.state {
        State::Done => " (done)",
        State::Restored => " (undone)",
        State::Planned | State::Started | State::Restoring => "",
    };
    let line = |(step, number): (&Step, usize)| format!("  {number}. {}{}\n", step.sentence(), done(step));
    let lines = steps.iter().zip(1..).map(line);
    format!("\nPlan:\n{}", lines.collect::<String>())
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
pub fn json(
    checked: &Checked,
    steps: &[Step],
    with_lines: bool,
    server: &str,
    context: Option<&str>,
    namespace: &str,
) -> String {
    let found = &checked.found;
    let object = |one: &crate::cluster::Object| json!({"kind": one.kind.kind, "namespace": one.namespace(), "name": one.name()});
    let all = [&found.webhooks, &found.leftovers, &found.tokens, &found.user_data];
    output::json(&json!({
        "server": server,
        "context": context,
        "namespace": namespace,
        "canBeMigrated": checked.problems.is_empty(),
        "problems": checked.problems,
        "notes": checked.notes,
        "found": all.into_iter().flatten().map(object).collect::<Vec<Value>>(),
        "values": checked.values,
        "steps": steps.iter().map(Step::json).collect::<Vec<Value>>(),
        "import": comparison::value(&checked.report, with_lines, &checked.snapshot),
    }))
}

/// A migration that has begun, for programs.
pub fn begun(journal: &Journal, editor: &Editor<'_>, namespace: &str) -> String {
    output::json(&json!({
        "server": editor.server,
        "context": editor.context,
        "namespace": namespace,
        "phase": journal.phase,
        "values": journal.values,
        "steps": journal.steps.iter().map(Step::json).collect::<Vec<Value>>(),
    }))
}
