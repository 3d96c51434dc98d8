//! Problems in the formats of those who read them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::problem::{Problem, Severity};

const SARIF_SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

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

/// SARIF 2.1.0, which code hosts and editors read.
pub fn sarif(problems: &[Problem]) -> String {
    let rules: BTreeSet<&str> = problems.iter().map(|problem| problem.rule).collect();
    let rules: Vec<Value> = rules.into_iter().map(|rule| json!({"id": rule})).collect();
    let results: Vec<Value> = problems.iter().map(result).collect();
    let log = json!({
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "osmctl",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    format!("{log:#}\n")
}

fn result(problem: &Problem) -> Value {
    let mut location = json!({"artifactLocation": {"uri": uri(&problem.place.file)}});
    if let (Some(line), Some(location)) = (problem.place.line, location.as_object_mut()) {
        let region = match problem.place.column {
            Some(column) => json!({"startLine": line, "startColumn": column}),
            None => json!({"startLine": line}),
        };
        location.insert("region".to_owned(), region);
    }
    json!({
        "ruleId": problem.rule,
        "level": problem.severity.as_str(),
        "message": {"text": message(problem)},
        "locations": [{"physicalLocation": location}],
    })
}

/// A path as a relative URI reference.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            uri.push_str(&format!("%{byte:02X}"));
        }
    }
    uri
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
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Place;

    #[test]
    fn special_characters_do_not_end_fields() {
        let place = Place {
            file: "a b,c:d.yaml".to_owned(),
            line: Some(3),
            column: None,
        };
        let problem = Problem::error("yaml", place, "50 %\nnext").hint("do");
        assert_eq!(
            github(std::slice::from_ref(&problem)),
            "::error file=a b%2Cc%3Ad.yaml,line=3,title=yaml::50 %25%0Anext%0AHint: do\n"
        );
        let log: Value = serde_json::from_str(&sarif(&[problem])).unwrap();
        let result = &log["runs"][0]["results"][0];
        let location = &result["locations"][0]["physicalLocation"];
        assert_eq!(location["artifactLocation"]["uri"], "a%20b%2Cc%3Ad.yaml");
        assert_eq!(location["region"], json!({"startLine": 3}));
    }
}
