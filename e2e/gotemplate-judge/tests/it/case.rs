//! The files of recorded cases.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Templates, data, and what comes of them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The text of the only template, which is called `t`.
    #[serde(rename = "t", default, skip_serializing_if = "String::is_empty")]
    pub template: String,
    /// Names and texts, where there are several. The first is executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<(String, String)>,
    /// Typed data, see [`crate::data`].
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
    /// Go's result.
    #[serde(flatten)]
    pub go: Outcome,
    /// Our result, where it differs on purpose: docs/go-templates.md lists the kinds of differences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours: Option<Outcome>,
}

/// What rendering gives: one of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Outcome {
    #[serde(rename = "out", default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The text of the error.
    #[serde(rename = "err", default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Case {
    /// Names and texts of the templates.
    pub fn named(&self) -> Vec<(&str, &str)> {
        if self.templates.is_empty() {
            return vec![("t", &self.template)];
        }
        let named = self.templates.iter();
        named.map(|(name, text)| (name.as_str(), text.as_str())).collect()
    }

    /// A line that only has the data of the lines after it.
    fn is_data(&self) -> bool {
        self.go == Outcome::default() && self.template.is_empty() && self.templates.is_empty()
    }
}

/// Each file with its cases, in order.
pub fn recorded() -> Vec<(PathBuf, Vec<Case>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let read = |path: PathBuf| {
        let cases = read(&fs::read_to_string(&path).unwrap());
        (path, cases)
    };
    paths.into_iter().map(read).collect()
}

fn read(text: &str) -> Vec<Case> {
    let (mut cases, mut data) = (Vec::new(), Value::Null);
    for line in text.lines() {
        let mut case: Case = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        if case.is_data() {
            data = case.data;
            continue;
        }
        case.data = data.clone();
        cases.push(case);
    }
    cases
}

/// The text of a file with these cases.
pub fn written(cases: &[Case]) -> String {
    let (mut text, mut data) = (String::new(), &Value::Null);
    for case in cases {
        if case.data != *data {
            data = &case.data;
            text += &format!("{}\n", json!({"data": data}));
        }
        let alone = Case {
            data: Value::Null,
            ..case.clone()
        };
        text += &format!("{}\n", serde_json::to_string(&alone).unwrap());
    }
    text
}
