//! Judges what services serve on `/metrics`.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::complaint::{Complaints, Finding, judge_once};
use crate::packages;

/// Judges metrics in Prometheus' text format (name, text): `promtool check metrics` without any complaint.
///
/// # Errors
/// What is wrong with them.
pub fn metrics(texts: &[(&str, &str)]) -> Result<(), Complaints> {
    judge_once("metrics", texts, |texts| {
        packages::ensure(&["prometheus"])?;
        texts.iter().map(|text| check(text)).collect()
    })
}

fn check(text: &str) -> Result<Vec<Finding>> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("promtool can't be run")?;
    // It reads everything before it answers. It stops at what it can't parse.
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(text.as_bytes()),
        None => Ok(()),
    };
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // Each line is a metric and what is wrong with it.
    let findings: Vec<Finding> = said
        .lines()
        .map(|line| line.split_once(' ').unwrap_or(("", line)))
        .map(|(metric, problem)| (metric.to_owned(), problem.to_owned()))
        .collect();
    ensure!(
        output.status.success() || !findings.is_empty(),
        "promtool failed ({})",
        output.status
    );
    if findings.is_empty() {
        written.context("promtool did not read its input")?;
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_breaks_the_conventions_and_a_text_that_is_none_are_refused() {
        let good = "# HELP things_total Things.\n# TYPE things_total counter\nthings_total 1\n";
        metrics(&[("good", good)]).unwrap();
        let no_total = good.replace("_total", "");
        let error = metrics(&[("good", good), ("bad", &no_total)])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("bad: things: counter metrics should have"),
            "{error}"
        );
        let error = metrics(&[("broken", "things 1 2 3 4\n")])
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("broken: "), "{error}");
    }
}
