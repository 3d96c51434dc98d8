//! Writing for people and programs, and putting documents together.

use std::io::{ErrorKind, IsTerminal, Write};

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde_json::Value;

/// Between two columns of a table.
const GAP: &str = "   ";

/// Writes `text` to standard output.
pub fn print(text: &str) -> Result<()> {
    is_read(text).map(|_| ())
}

/// Writes `text` to standard output. `false` if nobody reads it any more.
pub fn is_read(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough, such as head.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("can't write to standard output"),
    }
}

/// For whom a command prints.
#[derive(Clone, Copy, ValueEnum)]
pub enum Format {
    /// For people
    Text,
    /// For programs
    Json,
}

/// When to use color.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether standard output gets colors.
    pub fn is_on(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            // https://no-color.org: any value that is not empty.
            Self::Auto => {
                std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
                    && std::io::stdout().is_terminal()
            }
        }
    }
}

/// Writes warnings to standard error.
pub fn warnings<'a>(warnings: impl IntoIterator<Item = &'a String>) {
    for warning in warnings {
        eprintln!("osmctl: warning: {warning}");
    }
}

pub const BOLD: &str = "\x1b[1m";
pub const RED: &str = "\x1b[31m";
pub const GREEN: &str = "\x1b[32m";
pub const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[0m";

/// `text` in a color.
pub fn paint(color: &str, text: &str, with_color: bool) -> String {
    match with_color && !color.is_empty() {
        true => format!("{color}{text}{RESET}"),
        false => text.to_owned(),
    }
}

/// A number with its noun.
pub fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// A document for programs.
pub fn json(value: &Value) -> String {
    format!("{value:#}\n")
}

/// Adds the fields of `more` to `document`. Those of `more` win.
pub fn merge(document: &mut Value, more: &Value) {
    match (document, more) {
        (Value::Object(fields), Value::Object(more)) => {
            for (key, value) in more {
                merge(fields.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (place, value) => *place = value.clone(),
    }
}

/// A text that fits a cell of a table.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `text` without control characters that a terminal would act on.
pub fn visible(text: &str) -> String {
    let shown = |c: char| match c.is_control() && c != '\t' && c != '\n' {
        true => '\u{fffd}',
        false => c,
    };
    text.chars().map(shown).collect()
}

/// Lines with aligned columns.
pub fn table<L: AsRef<[String]>>(lines: &[L]) -> String {
    let most = lines.iter().map(|line| line.as_ref().len()).max();
    let mut widths = vec![0; most.unwrap_or_default()];
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(line.as_ref()) {
            *width = columns(cell).max(*width);
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line
            .as_ref()
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell}{:1$}", "", width - columns(cell)))
            .collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

/// Columns of a terminal that a text takes, without the codes of colors.
fn columns(text: &str) -> usize {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, rest)| rest));
    first.chars().count() + rest.map(|part| part.chars().count()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [["A", "LONG", "C"], ["wide", "b", ""]].map(|line| line.map(str::to_owned));
        assert_eq!(table(&lines), "A      LONG   C\nwide   b\n");
    }

    #[test]
    fn colors_take_no_columns() {
        let painted = paint(RED, "ab", true);
        assert_eq!(columns(&painted), 2);
        let lines = [[painted, "c".to_owned()], ["wide".to_owned(), "d".to_owned()]];
        assert_eq!(table(&lines), format!("{RED}ab{RESET}     c\nwide   d\n"));
    }
}
