//! What a reviewer would say about a script.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use osm_render::RESERVED_PREFIX;
use serde_json::Value;

use crate::parallel;
use crate::problem::{Place, Problem};

/// Shells whose option `-e` ends a script at the first error.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ash", "ksh"];

/// Most texts of one script that shellcheck gets: it takes a tenth of a second for each.
const MAX_CHECKED: usize = 4;

/// How long shellcheck may take for one text.
const MAX_TIME: Duration = Duration::from_secs(20);

/// Checks the rendered texts of a script with `mode`, octal digits as a decimal number.
pub fn check(
    path: &str,
    texts: &BTreeSet<String>,
    mode: i32,
    handles_errors: bool,
    place: &Place,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    if !handles_errors && texts.iter().any(|text| goes_on_after_errors(text)) {
        let message = format!("{path}: the shell script has no `set -e`, so that it goes on after an error");
        let problem = Problem::warning("script-without-set-e", place.clone(), message);
        problems.push(problem.hint("add `set -eu` below the first line, or handle each error"));
    }
    if mode / 100 % 2 == 0 {
        let message = format!("{path}: the file starts with #!, but is not executable");
        let problem = Problem::warning("script-not-executable", place.clone(), message);
        problems.push(problem.hint("set permissions to 755, or 700"));
    }
    problems
}

/// The shell that runs a script, with its options.
fn shell(text: &str) -> Option<(&str, &str)> {
    let line = text.strip_prefix("#!")?.lines().next()?.trim();
    let (program, options) = line.split_once(' ').unwrap_or((line, ""));
    let name = |program: &'_ str| {
        SHELLS
            .into_iter()
            .find(|shell| program.rsplit('/').next() == Some(shell))
    };
    if program.ends_with("/env") {
        let (program, options) = options.split_once(' ').unwrap_or((options, ""));
        return name(program).map(|shell| (shell, options));
    }
    name(program).map(|shell| (shell, options))
}

fn goes_on_after_errors(text: &str) -> bool {
    let Some((_, options)) = shell(text) else {
        return false;
    };
    let has_e = |words: &str| {
        let mut words = words.split_whitespace();
        words.any(|word| {
            word == "errexit" || (word.starts_with('-') && !word.starts_with("--") && word.contains('e'))
        })
    };
    let commands: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let sets = |line: &str| line.strip_prefix("set ").is_some_and(has_e);
    // After a single command nothing goes on.
    commands.len() > 1 && !has_e(options) && !commands.into_iter().any(sets)
}

/// The texts of a script that shellcheck reads.
pub fn to_check(texts: &BTreeSet<String>) -> impl Iterator<Item = &String> {
    let shell_scripts = texts.iter().filter(|text| shell(text).is_some());
    shell_scripts.take(MAX_CHECKED)
}

/// What shellcheck found.
pub struct Shellcheck {
    /// By text: the findings without their place, or why there are none.
    found: BTreeMap<String, Result<Vec<Problem>, String>>,
}

impl Shellcheck {
    /// Runs shellcheck once for each text, several at a time. Without the program, nothing is found.
    ///
    /// # Errors
    /// A thread that panics.
    pub fn run(texts: &BTreeSet<String>) -> Result<Self> {
        let texts: Vec<&String> = texts.iter().collect();
        let found = parallel::map(&texts, |text| match shell(text) {
            Some((shell, _)) => run(shell, &without_markers(text)),
            None => Ok(Vec::new()),
        })?;
        let texts = texts.into_iter().cloned();
        Ok(Self {
            found: texts.zip(found).collect(),
        })
    }

    /// The findings in the rendered texts of a script.
    pub fn problems(&self, path: &str, texts: &BTreeSet<String>, place: &Place) -> Vec<Problem> {
        let mut problems: Vec<Problem> = Vec::new();
        for result in to_check(texts).filter_map(|text| self.found.get(text)) {
            let found = match result {
                Ok(found) => found.clone(),
                Err(problem) => vec![Problem::warning("shellcheck", place.clone(), problem.clone())],
            };
            for mut problem in found {
                problem.place = place.clone();
                problem.message = format!("{path}, {}", problem.message);
                if !problems.contains(&problem) {
                    problems.push(problem);
                }
            }
        }
        problems
    }
}

/// A text with a word in the place of each marker, as the shell will see a value.
fn without_markers(text: &str) -> String {
    let mut parts = text.split(RESERVED_PREFIX);
    let mut clean = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (marker, rest) = part.split_once("}%%").unwrap_or((part, ""));
        clean.push_str(if marker.ends_with(",shell") {
            "'value'"
        } else {
            "value"
        });
        clean.push_str(rest);
    }
    clean
}

fn run(shell: &str, text: &str) -> Result<Vec<Problem>, String> {
    let shell = if shell == "ash" { "dash" } else { shell };
    let failed = |error: std::io::Error| format!("shellcheck can't be run: {error}");
    let child = Command::new("shellcheck")
        .args([
            "--norc",
            "--format=json1",
            "--severity=warning",
            "--shell",
            shell,
            "-",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        child => child.map_err(failed)?,
    };
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let text = text.to_owned();
    let writer = thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(text.as_bytes())));
    let reader = thread::spawn(move || {
        let mut output = String::new();
        stdout.map(|mut stdout| stdout.read_to_string(&mut output));
        output
    });
    let start = Instant::now();
    while child.try_wait().map_err(failed)?.is_none() {
        if start.elapsed() > MAX_TIME {
            child.kill().map_err(failed)?;
            child.wait().map_err(failed)?;
            return Err(format!("shellcheck took more than {} s", MAX_TIME.as_secs()));
        }
        thread::sleep(Duration::from_millis(5));
    }
    // It stops reading if the text can't be parsed at all.
    let _ = writer.join();
    let output = reader.join().unwrap_or_default();
    let output: Value =
        serde_json::from_str(&output).map_err(|_| "the output of shellcheck can't be read".to_owned())?;
    let comments = output.get("comments").and_then(Value::as_array);
    let problem = |comment: &Value| {
        let text = |key: &str| comment.get(key).and_then(Value::as_str).unwrap_or_default();
        let number = |key: &str| comment.get(key).and_then(Value::as_u64).unwrap_or_default();
        let message = format!(
            "line {} of the rendered script: {}",
            number("line"),
            text("message")
        );
        Problem::warning("shellcheck", Place::file(""), message)
            .hint(format!("https://www.shellcheck.net/wiki/SC{}", number("code")))
    };
    Ok(comments.into_iter().flatten().map(problem).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_go_on_after_errors_are_found() {
        for (text, expected) in [
            ("#!/bin/sh\na\nb\n", true),
            ("#!/bin/sh\nset -eu\na\n", false),
            ("#!/bin/sh\n# set -e\na\nb\n", true),
            ("#!/bin/bash -eu\na\nb\n", false),
            ("#!/usr/bin/env bash\nset -o errexit\na\n", false),
            ("#!/usr/bin/env bash\nset -ux\na\n", true),
            ("#!/usr/bin/env python3\na\nb\n", false),
            ("#!/bin/sh\n\nexec a\n", false),
            ("a\nb\n", false),
        ] {
            assert_eq!(goes_on_after_errors(text), expected, "{text}");
        }
    }

    #[test]
    fn markers_become_words() {
        assert_eq!(
            without_markers("a %%osm-late{api/token,shell}%% \"%%osm-late{b,raw}%%\""),
            "a 'value' \"value\""
        );
    }
}
