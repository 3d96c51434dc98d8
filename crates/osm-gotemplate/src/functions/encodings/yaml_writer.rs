//! Values as YAML: `Marshal` of `gopkg.in/yaml.v3`, with its indent of four spaces. It follows the states of its emitter, since
//! where it breaks lines depends on what it wrote before.

use std::rc::Rc;

use super::key_order;
use super::text::{Failure, Plain, Text, plain, visit};
use super::yaml_scalars::{is_break, is_printable, needs_quotes, styles};
use crate::budget::Budget;
use crate::format::floats;
use crate::problem::Problem;
use crate::value::{FloatKind, Struct, Value};

const INDENT: usize = 4;

/// Longest key that goes before its colon in the same line.
const LONGEST_KEY: usize = 128;

/// Encodes a value as YAML, with a line break at the end.
pub(super) fn encode(value: &Value, budget: &dyn Budget) -> Result<String, Failure> {
    let mut writer = Writer {
        text: Text::new(budget),
        column: 0,
        indent: None,
        after_space: true,
        at_line_start: true,
    };
    writer.node(value, Place::Root, 0)?;
    writer.line()?;
    Ok(writer.text.finish())
}

/// Where a node is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    /// After `- `.
    Item,
    Value,
    /// A key in the line of its value.
    Key,
}

struct Writer<'a> {
    text: Text<'a>,
    column: usize,
    /// None is outside of the root.
    indent: Option<usize>,
    /// The last character separates tokens.
    after_space: bool,
    /// Nothing but indent and indicators are in the line.
    at_line_start: bool,
}

impl Writer<'_> {
    fn node(&mut self, value: &Value, place: Place, depth: usize) -> Result<(), Failure> {
        visit(self.text.budget, depth)?;
        let value = match plain(value, false) {
            Plain::Text(text) => return self.string(text, place),
            Plain::Invalid(error) => return Err(Failure::reported(error)),
            Plain::Value(value) => value,
        };
        match value {
            Value::Nil | Value::Pointer(_) | Value::Named(_) => self.plain("null"),
            Value::Bool(truth) => self.plain(if *truth { "true" } else { "false" }),
            Value::Int(number, _) => self.plain(&number.to_string()),
            Value::Uint(number, _) => self.plain(&number.to_string()),
            Value::Float(number, kind) => {
                let text = match floats::shortest(*number, *kind == FloatKind::Float32) {
                    text if text == "+Inf" => ".inf".to_owned(),
                    text if text == "-Inf" => "-.inf".to_owned(),
                    text if text == "NaN" => ".nan".to_owned(),
                    text => text,
                };
                self.plain(&text)
            }
            Value::Complex(..) => Err(Problem::new("cannot marshal type: complex128").into()),
            Value::String(text) => self.string(text, place),
            Value::List(list) if list.items().is_empty() => self.empty("[", "]"),
            Value::List(list) => {
                let before = self.deepen(false, place);
                for item in list.items() {
                    self.line()?;
                    self.indicator("-", true, true)?;
                    self.node(item, Place::Item, depth.saturating_add(1))?;
                }
                self.indent = before;
                Ok(())
            }
            Value::Map(map) => {
                let budget = self.text.budget;
                let entries = key_order::sort(map.entries(budget)?, budget)?;
                self.mapping(&entries, place, depth)
            }
            Value::Struct(fields) => {
                let exported = fields
                    .fields()
                    .iter()
                    .filter(|(name, _)| Struct::is_exported(name));
                let entries: Vec<(Rc<str>, Value)> = exported
                    .map(|(name, value)| (name.to_lowercase().into(), value.clone()))
                    .collect();
                self.mapping(&entries, place, depth)
            }
        }
    }

    fn mapping(&mut self, entries: &[(Rc<str>, Value)], place: Place, depth: usize) -> Result<(), Failure> {
        if entries.is_empty() {
            return self.empty("{", "}");
        }
        let before = self.deepen(false, place);
        for (key, value) in entries {
            self.line()?;
            self.text.budget.read(key.len())?;
            if key.len() <= LONGEST_KEY && !styles(key).has_line_breaks {
                self.string(key, Place::Key)?;
                self.indicator(":", false, false)?;
            } else {
                self.indicator("?", true, true)?;
                self.string(key, Place::Value)?;
                self.line()?;
                self.indicator(":", true, true)?;
            }
            self.node(value, Place::Value, depth.saturating_add(1))?;
        }
        self.indent = before;
        Ok(())
    }

    fn empty(&mut self, open: &str, close: &str) -> Result<(), Failure> {
        self.indicator(open, true, false)?;
        self.indicator(close, false, false)
    }

    /// Increases the indent. Returns that before.
    fn deepen(&mut self, is_scalar: bool, place: Place) -> Option<usize> {
        let before = self.indent;
        self.indent = Some(match before {
            None if is_scalar => INDENT,
            None => 0,
            Some(indent) if place == Place::Item => indent.saturating_add(2),
            Some(indent) => (indent / INDENT).saturating_add(1).saturating_mul(INDENT),
        });
        before
    }

    fn put(&mut self, text: &str) -> Result<(), Failure> {
        self.text.push(text)?;
        self.column = self.column.saturating_add(text.chars().count());
        Ok(())
    }

    fn line_break(&mut self) -> Result<(), Failure> {
        self.text.push("\n")?;
        self.column = 0;
        self.at_line_start = true;
        Ok(())
    }

    /// Goes to the indent of the next line, unless this line has nothing but indicators before it.
    fn line(&mut self) -> Result<(), Failure> {
        let indent = self.indent.unwrap_or(0);
        if !self.at_line_start || self.column > indent || (self.column == indent && !self.after_space) {
            self.line_break()?;
        }
        let missing = indent.saturating_sub(self.column);
        self.text.spaces(missing)?;
        self.column = self.column.saturating_add(missing);
        self.after_space = true;
        Ok(())
    }

    fn indicator(&mut self, text: &str, needs_space: bool, keeps_line_start: bool) -> Result<(), Failure> {
        if needs_space && !self.after_space {
            self.put(" ")?;
        }
        self.put(text)?;
        self.after_space = text == "[" || text == "{";
        self.at_line_start = self.at_line_start && keeps_line_start;
        Ok(())
    }

    fn plain(&mut self, text: &str) -> Result<(), Failure> {
        if !self.after_space {
            self.put(" ")?;
        }
        self.put(text)?;
        self.after_space = false;
        self.at_line_start = false;
        Ok(())
    }

    fn string(&mut self, text: &str, place: Place) -> Result<(), Failure> {
        self.text.budget.read(text.len())?;
        let styles = styles(text);
        let before = self.deepen(true, place);
        if text.contains('\n') && styles.block && place != Place::Key {
            self.literal(text)?;
        } else if text.contains('\n') || needs_quotes(text) {
            self.double_quoted(text)?;
        } else if styles.plain {
            self.plain(text)?;
        } else if styles.single_quoted {
            self.single_quoted(text)?;
        } else {
            self.double_quoted(text)?;
        }
        self.indent = before;
        Ok(())
    }

    /// Text of which lines are indented.
    fn lines(&mut self, text: &str, starts_line: bool, doubles_quotes: bool) -> Result<(), Failure> {
        let mut after_break = starts_line;
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let line_end = rest.find(is_break).unwrap_or(rest.len());
            let (line, after) = rest.split_at_checked(line_end).unwrap_or((rest, ""));
            if !line.is_empty() {
                if after_break {
                    self.line()?;
                }
                if doubles_quotes && line.contains('\'') {
                    self.text.budget.copy(line.len())?;
                    self.put(&line.replace('\'', "''"))?;
                } else {
                    self.put(line)?;
                }
                self.at_line_start = false;
                after_break = false;
                rest = after;
                continue;
            }
            if c == '\n' {
                self.line_break()?;
            } else {
                self.put(c.encode_utf8(&mut [0; 4]))?;
                self.column = 0;
                self.at_line_start = true;
            }
            after_break = true;
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
        }
        Ok(())
    }

    fn single_quoted(&mut self, text: &str) -> Result<(), Failure> {
        self.indicator("'", true, false)?;
        self.lines(text, false, true)?;
        self.indicator("'", false, false)
    }

    fn literal(&mut self, text: &str) -> Result<(), Failure> {
        self.indicator("|", true, false)?;
        if text.starts_with(|c| c == ' ' || is_break(c)) {
            self.indicator("4", false, false)?;
        }
        let mut from_end = text.chars().rev();
        let last_is_break = from_end.next().is_some_and(is_break);
        if !last_is_break {
            self.indicator("-", false, false)?;
        } else if from_end.next().is_none_or(is_break) {
            self.indicator("+", false, false)?;
        }
        self.after_space = true;
        self.lines(text, true, false)
    }

    fn double_quoted(&mut self, text: &str) -> Result<(), Failure> {
        self.indicator("\"", true, false)?;
        // yaml.v3 escapes all characters of a text that starts with a byte order mark.
        let escape_all = text.starts_with('\u{feff}');
        self.text.budget.copy(text.len())?;
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            if is_printable(c) && !is_break(c) && !matches!(c, '"' | '\\') && !escape_all {
                out.push(c);
                continue;
            }
            let code = u32::from(c);
            match c {
                '\0' => out.push_str("\\0"),
                '\u{7}' => out.push_str("\\a"),
                '\u{8}' => out.push_str("\\b"),
                '\t' => out.push_str("\\t"),
                '\n' => out.push_str("\\n"),
                '\u{b}' => out.push_str("\\v"),
                '\u{c}' => out.push_str("\\f"),
                '\r' => out.push_str("\\r"),
                '\u{1b}' => out.push_str("\\e"),
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\u{85}' => out.push_str("\\N"),
                '\u{a0}' => out.push_str("\\_"),
                '\u{2028}' => out.push_str("\\L"),
                '\u{2029}' => out.push_str("\\P"),
                _ if code <= 0xff => out.push_str(&format!("\\x{code:02X}")),
                _ if code <= 0xffff => out.push_str(&format!("\\u{code:04X}")),
                _ => out.push_str(&format!("\\U{code:08X}")),
            }
        }
        self.put(&out)?;
        self.indicator("\"", false, false)
    }
}
