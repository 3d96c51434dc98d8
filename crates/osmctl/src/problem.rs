//! A problem of an input, with its place.

use std::fmt;

use serde_json::{Value, json};

use crate::output::one_line;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The input can't be used.
    Error,
    /// The input works, but may not be what was meant.
    Warning,
}

impl Severity {
    /// As people and programs read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A place in an input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Path as it was given, or `<stdin>`.
    pub file: String,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
}

impl Place {
    /// A whole file.
    pub fn file(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: None,
            column: None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file.replace('\n', "\u{fffd}"))?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(f, ":{number}")?;
        }
        Ok(())
    }
}

/// Something wrong with an input. No part of it repeats a value that may be a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub severity: Severity,
    /// Name of the rule: a reason of a condition, or a name with hyphens for what only osmctl checks.
    pub rule: &'static str,
    pub place: Place,
    pub message: String,
    /// The next step, if the message does not contain it.
    pub hint: Option<String>,
}

impl Problem {
    /// An error without a hint.
    pub fn error(rule: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            rule,
            place,
            message: one_line(&message.into()),
            hint: None,
        }
    }

    /// A warning without a hint.
    pub fn warning(rule: &'static str, place: Place, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(rule, place, message)
        }
    }

    /// The problem with a next step.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        json!({
            "severity": self.severity.as_str(),
            "rule": self.rule,
            "file": self.place.file,
            "line": self.place.line,
            "column": self.place.column,
            "message": self.message,
            "hint": self.hint,
        })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            severity,
            rule,
            place,
            message,
            hint,
        } = self;
        write!(f, "{place}: {}: {message} [{rule}]", severity.as_str())?;
        hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n  hint: {hint}"))
    }
}

/// Why a command could not do its work: at least one problem.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Problems(pub Vec<Problem>);

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}
