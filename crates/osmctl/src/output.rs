//! Writes to standard output and standard error, and puts tables, texts and documents together. Nothing else
//! in osmctl writes there.
//!
//! Texts of a cluster or a file may be hostile: they could change the title of a terminal, turn lines around,
//! or begin a line with a command for the runner of a workflow, which reads both streams. So they are cleaned
//! here, where they leave, and not where they are put together.

#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "the only place that writes"
)]

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Between two columns of a table.
const GAP: &str = "   ";

/// Writes `text` to standard output, cleaned.
pub fn print(text: &str) -> Result<()> {
    raw(&clean(text)).map(|_| ())
}

/// Writes one line or several to standard error, cleaned.
pub fn note(text: &str) {
    eprintln!("{}", clean(text));
}

/// Writes a document that a program reads to standard output. A changed one would be worse than none.
pub fn document(text: &str) -> Result<()> {
    if clean(text) != text {
        bail!(
            "the output would contain control characters, or lines that begin with `::`; remove them from the input, such as from the settings"
        );
    }
    raw(text).map(|_| ())
}

/// Writes a text as it is to standard output: what a machine gets, byte by byte, or a text of osmctl itself.
/// `false` if the reader has closed it.
pub fn raw(text: &str) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough, such as head.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("can't write to standard output"),
    }
}

/// Whether a person reads standard output in a terminal.
pub fn is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stdout())
}

/// `text` without characters that a terminal acts on or does not show, and without commands of workflows.
pub fn clean(text: &str) -> String {
    let lines: Vec<String> = text
        .split('\n')
        .map(|line| without_command(&shown(line)))
        .collect();
    lines.join("\n")
}

/// `line` with other characters in place of those that are not shown.
pub fn shown(line: &str) -> String {
    let shown = |c: char| match c {
        '\t' => '\u{2409}',
        _ if c.is_control() || is_invisible(c) => '\u{fffd}',
        _ => c,
    };
    line.chars().map(shown).collect()
}

/// Whether the character is of a category Cf, Zl or Zp of Unicode 16, such as those that change the direction
/// of text.
/// <https://www.unicode.org/Public/16.0.0/ucd/extracted/DerivedGeneralCategory.txt>
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}'
        | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2064}'
        | '\u{2066}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0001}'
        | '\u{e0020}'..='\u{e007f}')
}

/// The runner of GitHub takes a line for a command that begins with `::`, after white space, or that has
/// `##[` anywhere.
/// <https://github.com/actions/runner/blob/079cdb1d05fe0ec50f8c51de5a4fa51d0eb189b0/src/Runner.Common/ActionCommand.cs>
fn without_command(line: &str) -> String {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let line = match text.strip_prefix("::") {
        Some(rest) => format!("{}\u{fffd}:{rest}", line.get(..indent).unwrap_or_default()),
        None => line.to_owned(),
    };
    line.replace("##[", "#\u{fffd}[")
}

/// Writes warnings to standard error.
pub fn warnings<'a>(warnings: impl IntoIterator<Item = &'a String>) {
    for warning in warnings {
        note(&format!("osmctl: warning: {}", one_line(warning)));
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

    #[test]
    fn what_a_terminal_or_a_workflow_acts_on_is_replaced() {
        for (text, expected) in [
            ("a ü → 漢 🙂\n  b\n", "a ü → 漢 🙂\n  b\n"),
            (
                "\u{1b}]0;x\u{7}\u{9b}31m\r\n",
                "\u{fffd}]0;x\u{fffd}\u{fffd}31m\u{fffd}\n",
            ),
            (
                "\u{202e}\u{2066}\u{200b}\u{feff}\u{2028}\u{e0041}",
                "\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}",
            ),
            ("\ta", "\u{2409}a"),
            ("::stop-commands::x", "\u{fffd}:stop-commands::x"),
            (
                "a\n \u{a0}::add-mask::x\nb::c",
                "a\n \u{a0}\u{fffd}:add-mask::x\nb::c",
            ),
            ("a ##[add-mask]b", "a #\u{fffd}[add-mask]b"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
            assert_eq!(clean(&clean(text)), expected);
        }
    }
}
