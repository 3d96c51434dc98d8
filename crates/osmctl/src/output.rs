//! Writes tables and texts to standard output, and puts documents together.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};
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

/// Writes warnings to standard error.
pub fn warnings<'a>(warnings: impl IntoIterator<Item = &'a String>) {
    for warning in warnings {
        eprintln!("osmctl: warning: {warning}");
    }
}

/// A number with its noun.
pub fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
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
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in lines {
        let cells: Vec<String> = line
            .as_ref()
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text.push_str(cells.join(GAP).trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let lines = [["A", "LONG", "C"], ["wide", "b", ""]].map(|line| line.map(str::to_owned));
        assert_eq!(table(&lines), "A      LONG   C\nwide   b\n");
    }
}
