//! Writing for people and programs.

use std::io::{ErrorKind, IsTerminal, Write};

use anyhow::{Context, Result};
use clap::ValueEnum;
use jiff::Timestamp;
use serde_json::Value;

/// Between two columns of a table.
const GAP: &str = "   ";

/// Writes `text` to standard output.
pub fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough, such as head.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("can't write to standard output"),
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

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether standard output gets colours.
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

/// `text` in a colour.
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

/// A time without fractions of a second.
pub fn timestamp(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
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

/// The first columns of a line, with an ellipsis where something was cut. Codes of colours take no columns.
pub fn cut(line: &str, most: usize) -> String {
    if columns(line) <= most {
        return line.to_owned();
    }
    let (mut text, mut rest, mut room) = (String::new(), line, most.saturating_sub(1));
    let mut is_painted = false;
    loop {
        let code = rest.strip_prefix("\x1b[").and_then(|code| code.split_once('m'));
        if let Some((code, after)) = code {
            text.push_str(&format!("\x1b[{code}m"));
            (rest, is_painted) = (after, true);
            continue;
        }
        let mut chars = rest.chars();
        match chars.next() {
            Some(c) if room > 0 => text.push(c),
            _ => break,
        }
        (rest, room) = (chars.as_str(), room - 1);
    }
    text.push('…');
    if is_painted {
        text.push_str(RESET);
    }
    text
}

/// Columns of a terminal that a text takes, without the codes of colours.
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
    fn a_line_is_cut_where_the_terminal_ends_and_its_colour_ends_there() {
        for (line, most, expected) in [
            ("abcd", 4, "abcd"),
            ("abcde", 4, "abc…"),
            ("äöüß!", 4, "äöü…"),
            ("ab", 1, "…"),
            ("ab", 0, "…"),
        ] {
            assert_eq!(cut(line, most), expected, "{line} {most}");
        }
        let line = format!("a{}b", paint(RED, "cdef", true));
        assert_eq!(cut(&line, 6), line);
        assert_eq!(cut(&line, 4), format!("a{RED}cd…{RESET}"));
        assert_eq!(columns(&cut(&line, 4)), 4);
    }

    #[test]
    fn colours_take_no_columns() {
        let painted = paint(RED, "ab", true);
        assert_eq!(columns(&painted), 2);
        let lines = [[painted, "c".to_owned()], ["wide".to_owned(), "d".to_owned()]];
        assert_eq!(table(&lines), format!("{RED}ab{RESET}     c\nwide   d\n"));
    }
}
