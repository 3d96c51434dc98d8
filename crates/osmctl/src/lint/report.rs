//! Problems in the formats of those who read them.

use serde_json::{Value, json};

use crate::output;
use crate::problem::{Problem, Severity};

/// For people.
pub fn text(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// For programs.
pub fn json(problems: &[Problem]) -> String {
    let problems: Vec<Value> = problems.iter().map(Problem::json).collect();
    format!("{:#}\n", json!({"problems": problems}))
}

/// Text of a problem for formats that have no field for hints.
fn message(problem: &Problem) -> String {
    match &problem.hint {
        Some(hint) => format!("{}\nHint: {hint}", problem.message),
        None => problem.message.clone(),
    }
}

/// Commands that a workflow of GitHub turns into annotations.
pub fn github(problems: &[Problem]) -> String {
    problems.iter().map(annotation).collect()
}

fn annotation(problem: &Problem) -> String {
    let mut properties = vec![format!("file={}", property(&problem.place.file))];
    let numbers = [("line", problem.place.line), ("col", problem.place.column)];
    properties.extend(
        numbers
            .iter()
            .filter_map(|(key, value)| Some(format!("{key}={}", (*value)?))),
    );
    properties.push(format!("title={}", property(problem.rule)));
    let command = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    format!(
        "::{command} {}::{}\n",
        properties.join(","),
        data(&message(problem))
    )
}

fn data(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(output::shown).collect();
    lines.join("\n").replace('%', "%25").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
