//! Judges shell and Python programs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::complaint::{Complaints, Finding, judge_once};
use crate::packages;
use crate::program::ask;

const PYTHON: &str = include_str!("python.py");

/// A shell that must be able to parse every script.
const SHELLS: [&[&str]; 2] = [&["dash"], &["busybox", "sh"]];

/// Judges POSIX shell scripts (name, text): `shellcheck -s sh` without any complaint, down to style, and dash
/// and busybox can parse them.
///
/// A `# shellcheck disable=` must give its reason behind another `#` on the same line. Files that a script
/// sources are not followed.
///
/// # Errors
/// What is wrong with them.
pub fn shell_scripts(scripts: &[(&str, &str)]) -> Result<(), Complaints> {
    judge_once("shell script", scripts, |texts| {
        packages::ensure(&["busybox", "dash", "shellcheck"])?;
        let directory = tempfile::tempdir()?;
        for (index, text) in texts.iter().enumerate() {
            fs::write(directory.path().join(index.to_string()), text)?;
        }
        let mut findings = shellcheck(directory.path(), texts.len())?;
        for ((index, text), found) in texts.iter().enumerate().zip(&mut findings) {
            found.extend(silenced_without_reason(text));
            for shell in SHELLS {
                found.extend(parse(shell, &directory.path().join(index.to_string()))?);
            }
        }
        Ok(findings)
    })
}

#[derive(Deserialize)]
struct Report {
    comments: Vec<Comment>,
}

#[derive(Deserialize)]
struct Comment {
    file: String,
    line: u32,
    column: u32,
    level: String,
    code: u32,
    message: String,
}

fn shellcheck(directory: &Path, scripts: usize) -> Result<Vec<Vec<Finding>>> {
    let output = Command::new("shellcheck")
        .args([
            "--norc",
            "--shell=sh",
            "--severity=style",
            "--format=json1",
            "--exclude=SC1091",
        ])
        .args((0..scripts).map(|index| index.to_string()))
        .current_dir(directory)
        .output()
        .context("shellcheck can't be run")?;
    // 1 is "there are comments".
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!(
            "shellcheck failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim_end()
        );
    }
    let report: Report = serde_json::from_slice(&output.stdout).context("answer of shellcheck")?;
    let mut findings = vec![Vec::new(); scripts];
    for comment in report.comments {
        let index: usize = comment.file.parse().context("file name of shellcheck")?;
        let place = format!("line {}, column {}", comment.line, comment.column);
        let found = findings.get_mut(index).context("file number of shellcheck")?;
        found.push((
            place,
            format!(
                "shellcheck SC{} ({}): {}",
                comment.code, comment.level, comment.message
            ),
        ));
    }
    Ok(findings)
}

fn silenced_without_reason(text: &str) -> impl Iterator<Item = Finding> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let (_, directive) = line.split_once('#')?;
        let silenced = directive.trim_start().strip_prefix("shellcheck")?;
        let reason = silenced
            .split_once('#')
            .is_some_and(|(_, reason)| !reason.trim().is_empty());
        (silenced.contains("disable=") && !reason).then(|| {
            (
                format!("line {}", index + 1),
                "shellcheck is silenced without a reason".to_owned(),
            )
        })
    })
}

fn parse(shell: &[&str], script: &Path) -> Result<Option<Finding>> {
    let (program, arguments) = shell.split_first().context("no shell")?;
    let output = Command::new(program)
        .args(arguments)
        .arg("-n")
        .arg(script)
        .output()
        .with_context(|| format!("{program} can't be run"))?;
    if output.status.success() && output.stderr.is_empty() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr).replace(&*script.to_string_lossy(), "script");
    Ok(Some((
        String::new(),
        format!("{} -n: {}", shell.join(" "), said.trim_end()),
    )))
}

/// Judges Python programs (name, text): they compile, and use neither syntax nor much of the library that
/// Python 3.6 lacks.
///
/// # Errors
/// What is wrong with them.
pub fn python_scripts(scripts: &[(&str, &str)]) -> Result<(), Complaints> {
    judge_once("Python script", scripts, |texts| {
        packages::ensure(&["python3"])?;
        ask(
            Command::new("/usr/bin/python3").args(["-IB", "-c", PYTHON]),
            &texts,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_newer_than_3_6_is_refused() {
        let scripts = [
            (
                "argument",
                "import subprocess\nsubprocess.run([], capture_output=True)\n",
            ),
            ("annotations", "from __future__ import annotations\n"),
            ("broken", "def f(:\n"),
            ("module", "import dataclasses\n"),
            ("walrus", "if (x := 1):\n    pass\n"),
        ];
        let complaints = python_scripts(&scripts).unwrap_err();
        let documents: Vec<&str> = complaints
            .iter()
            .map(|complaint| complaint.document.as_str())
            .collect();
        assert_eq!(
            documents,
            ["annotations", "argument", "broken", "module", "walrus"],
            "{complaints}"
        );
        assert!(
            complaints
                .to_string()
                .contains("argument: line 2: the argument capture_output needs Python 3.7")
        );
    }
}
