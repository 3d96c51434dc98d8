//! Values that YAML 1.1, which kubectl reads, and YAML 1.2, which most editors read, understand differently.

use crate::origin::Origin;
use crate::problem::Problem;
use crate::yaml_tree::{self, Kind, Node, Style};

/// Words that are a boolean in YAML 1.1 and a text in YAML 1.2, in lower case.
const BOOLEANS: [&str; 6] = ["yes", "no", "on", "off", "y", "n"];

/// Checks the part of a manifest that a path leads to; the empty path is the whole manifest.
pub fn check(origin: &Origin, path: &str) -> Vec<Problem> {
    let root = origin.node().and_then(|node| match path {
        "" => Some(node),
        _ => node.get(path),
    });
    let mut problems = Vec::new();
    if let Some(root) = root {
        root.scalars(None, &mut |key, node, is_key| {
            problems.extend(scalar(origin, key, node, is_key))
        });
    }
    problems
}

/// Checks the document in the text that a path leads to, if the manifest has it.
pub fn check_text(origin: &Origin, path: &str) -> Vec<Problem> {
    let nodes = origin.written(path).and_then(|text| yaml_tree::read(text).ok());
    let node = nodes.and_then(|nodes| nodes.into_iter().next());
    let mut problems = check(&Origin::new("".into(), node), "");
    for problem in &mut problems {
        let line = problem.place.line.unwrap_or(1);
        problem.place = origin.place_in_text(path, line, problem.place.column);
    }
    problems
}

fn scalar(origin: &Origin, key: Option<&str>, node: &Node, is_key: bool) -> Option<Problem> {
    let Kind::Scalar(text, Style::Plain) = &node.kind else {
        return None;
    };
    let place = origin.place_of(node);
    let what = if is_key { "this key" } else { "this value" };
    if BOOLEANS.contains(&text.to_ascii_lowercase().as_str()) {
        let message = format!("{what} is a boolean in YAML 1.1, and a text in YAML 1.2");
        let problem = Problem::warning("yaml-boolean", place, message);
        return Some(problem.hint("write true or false for a boolean; put a text into quotes"));
    }
    let digits = text.strip_prefix("0o").or_else(|| text.strip_prefix('0'))?;
    let is_octal = !digits.is_empty() && digits.chars().all(|digit| ('0'..='7').contains(&digit));
    if !is_octal || is_key {
        return None;
    }
    if key == Some("permissions") {
        let message = "permissions with a leading zero are read as another number, and so as another mode";
        let problem = Problem::error("octal-number", place, message);
        return Some(problem.hint(format!(
            "write the digits alone: {}",
            digits.trim_start_matches('0')
        )));
    }
    let message = "a number with a leading zero is octal in YAML 1.1, and decimal in YAML 1.2";
    Some(Problem::warning("octal-number", place, message).hint("put it into quotes, or remove the zero"))
}
