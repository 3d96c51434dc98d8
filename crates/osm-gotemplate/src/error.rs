//! Why a template can't be parsed or executed.

use std::fmt;

/// Why a template can't be parsed or executed. `Display` gives Go's text.
#[derive(Clone, Debug, Default, PartialEq, Eq, thiserror::Error)]
pub struct Error {
    /// The name under which the source was parsed.
    pub template: String,
    /// The line in the source, from 1; 0 if the problem is not in a source.
    pub line: usize,
    /// Bytes before the place in its line.
    pub column: Option<usize>,
    /// The line that Go's text has. For a source that can't be parsed, it is where parsing ended, and there
    /// is no column.
    pub printed_line: usize,
    /// The template that was executed. It differs from `template` for a template that a `define` or `block`
    /// makes.
    pub executing: Option<Box<str>>,
    /// The part of the template that was executed, as Go prints it.
    pub context: Option<Box<str>>,
    pub problem: String,
    /// Whether the budget was exhausted.
    pub exhausted: bool,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("template: ")?;
        if self.printed_line > 0 {
            write!(f, "{}:{}:", self.template, self.printed_line)?;
            if let (Some(column), Some(_)) = (self.column, &self.executing) {
                write!(f, "{column}:")?;
            }
            f.write_str(" ")?;
        } else if !self.template.is_empty() {
            write!(f, "{}: ", self.template)?;
        }
        if let Some(executing) = &self.executing {
            write!(f, "executing {} ", crate::format::quote(executing))?;
            if let Some(context) = &self.context {
                write!(f, "at <{context}>")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.problem)
    }
}

/// The line of a position in a source, from 1, and the bytes before it in that line.
pub(crate) fn place(source: &str, position: usize) -> (usize, usize) {
    let before = source.get(..position).unwrap_or_default();
    let lines = before.bytes().filter(|byte| *byte == b'\n').count();
    let start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    (lines.saturating_add(1), position.saturating_sub(start))
}
