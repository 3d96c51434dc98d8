//! Cases: reading those that are recorded, and those that the Go program writes.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Templates, data, and what Go made of them.
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
    /// Go's output.
    #[serde(rename = "out", default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Go's error text.
    #[serde(rename = "err", default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Case {
    /// Names and texts of the templates.
    #[must_use]
    pub fn named(&self) -> Vec<(&str, &str)> {
        if self.templates.is_empty() {
            return vec![("t", &self.template)];
        }
        let named = self.templates.iter();
        named.map(|(name, text)| (name.as_str(), text.as_str())).collect()
    }
}

impl fmt::Display for Case {
    /// The case as a line of input for the Go program.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let input = Self {
            output: None,
            error: None,
            ..self.clone()
        };
        f.write_str(&serde_json::to_string(&input).map_err(|_| fmt::Error)?)
    }
}

/// The directory of recorded cases.
#[must_use]
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")
}

/// The directory of hand-written inputs.
#[must_use]
pub fn inputs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("inputs")
}

/// The recorded cases: each topic with its cases, in order.
///
/// # Errors
/// A file that can't be read, or has a line that is no case.
pub fn recorded() -> Result<Vec<(String, Vec<Case>)>> {
    let entries = fs::read_dir(directory()).context("the directory of recorded cases")?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    paths.sort();
    ensure!(!paths.is_empty(), "there are no recorded cases");
    let read = |path: PathBuf| {
        let topic = path
            .file_stem()
            .context("a file name")?
            .to_string_lossy()
            .into_owned();
        let text = fs::read_to_string(&path)?;
        let cases = read_lines(&text).with_context(|| path.display().to_string())?;
        Ok((topic, cases))
    };
    paths.into_iter().map(read).collect()
}

/// Reads the lines of a file. A line with data alone gives the data of the cases that follow.
fn read_lines(text: &str) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    let mut data = Value::Null;
    for (number, line) in (1..).zip(text.lines()) {
        let mut case: Case = serde_json::from_str(line).with_context(|| format!("line {number}"))?;
        if case.output.is_none() && case.error.is_none() {
            data = case.data;
            continue;
        }
        case.data = data.clone();
        cases.push(case);
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_in_a_line_of_its_own_is_that_of_the_cases_that_follow() {
        let cases = read_lines(
            "{\"t\":\"a\",\"out\":\"a\"}\n{\"data\":1}\n{\"out\":\"\"}\n{\"t\":\"{{\",\"err\":\"x\"}\n",
        )
        .unwrap();
        let data: Vec<_> = cases.iter().map(|case| case.data.to_string()).collect();
        assert_eq!(data, ["null", "1", "1"]);
        assert_eq!(cases[1].named(), [("t", "")]);
        assert_eq!(cases[2].to_string(), r#"{"t":"{{","data":1}"#);
    }
}
