//! What a reviewer would say about a script.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use osm_render::RESERVED_PREFIX;
use serde_json::Value;

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

/// The program shellcheck.
pub struct Shellcheck(());

impl Shellcheck {
    /// The program, if it is installed.
    pub fn find() -> Option<Self> {
        let mut command = Command::new("shellcheck");
        let command = command.arg("--version").stdin(Stdio::null());
        let output = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        output.is_ok_and(|status| status.success()).then_some(Self(()))
    }

    /// Runs it on the rendered texts of a script.
    pub fn check(&self, path: &str, texts: &BTreeSet<String>, place: &Place) -> Vec<Problem> {
        let shell_scripts = texts.iter().filter_map(|text| Some((shell(text)?.0, text)));
        let mut problems: Vec<Problem> = Vec::new();
        for (shell, text) in shell_scripts.take(MAX_CHECKED) {
            let found = run(shell, &without_markers(text)).unwrap_or_else(|problem| {
                vec![Problem::warning(
                    "shellcheck",
                    place.clone(),
                    format!("{path}: {problem}"),
                )]
            });
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
    let mut child = Command::new("shellcheck")
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
        .spawn()
        .map_err(failed)?;
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
