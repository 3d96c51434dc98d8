//! Reports what a reviewer would say about a script.

use std::collections::BTreeSet;

use crate::problem::{Place, Problem};

/// Shells whose option `-e` ends a script at the first error.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ash", "ksh"];

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
}
