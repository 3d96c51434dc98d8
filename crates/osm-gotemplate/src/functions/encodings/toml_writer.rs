//! Values as TOML: the encoder of `github.com/BurntSushi/toml`, which indents nested tables by two spaces.

use std::rc::Rc;

use super::text::{Failure, Plain, Text, plain, visit};
use crate::budget::Budget;
use crate::format::floats;
use crate::problem::Problem;
use crate::value::{FloatKind, List, Map, Struct, Value};

/// Encodes a value as TOML. Keys with tables go after the others.
pub(super) fn encode(value: &Value, budget: &dyn Budget) -> Result<String, Failure> {
    if matches!(value, Value::Nil) {
        // Go's encoder does not expect this, and panics.
        return Err(Problem::new("reflect: call of reflect.Value.Type on zero Value").into());
    }
    let mut writer = Writer {
        text: Text::new(budget),
    };
    writer.node(&mut Vec::new(), value, 0)?;
    Ok(writer.text.finish())
}

/// What decides where a value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing is written for it.
    Nil,
    Simple,
    Table,
    TableArray,
}

/// The entries of a table as they are written, and whether a comma follows each in an inline table.
type Entries = Vec<(Rc<str>, Value, bool)>;

struct Writer<'a> {
    text: Text<'a>,
}

impl Writer<'_> {
    fn kind(&self, value: &Value, depth: usize) -> Result<Kind, Failure> {
        visit(self.text.budget, depth)?;
        let Plain::Value(value) = plain(value, false) else {
            return Ok(Kind::Simple);
        };
        Ok(match value {
            Value::Nil => Kind::Nil,
            Value::Complex(..) => return Err(Failure::reported("unsupported type: complex128")),
            Value::List(list) if list.is_nil() => Kind::Nil,
            Value::List(list) if !list.items().is_empty() => {
                let mut only_tables = true;
                for item in list.items() {
                    match self.kind(item, depth.saturating_add(1))? {
                        Kind::Nil => {
                            return Err(Failure::reported("toml: cannot encode array with nil element"));
                        }
                        kind => only_tables &= kind == Kind::Table,
                    }
                }
                if only_tables {
                    Kind::TableArray
                } else {
                    Kind::Simple
                }
            }
            Value::Map(map) if map.is_nil() => Kind::Nil,
            Value::Map(_) | Value::Struct(_) => Kind::Table,
            _ => Kind::Simple,
        })
    }

    /// A value at a path of keys.
    fn node(&mut self, path: &mut Vec<String>, value: &Value, depth: usize) -> Result<(), Failure> {
        visit(self.text.budget, depth)?;
        let Plain::Value(simple) = plain(value, false) else {
            return self.assign(path, value, depth);
        };
        match simple {
            Value::Nil => Ok(()),
            Value::Complex(..) => {
                let path = path.join(".");
                Err(Failure::reported(format!(
                    "unsupported type for key '{path}': complex128"
                )))
            }
            Value::List(list) if self.kind(value, depth)? == Kind::TableArray => {
                if path.is_empty() {
                    return Err(Failure::reported(
                        "toml: top-level values must be Go maps or structs",
                    ));
                }
                for item in list.items() {
                    self.line_break()?;
                    self.header(path, "[[", "]]")?;
                    self.entries(path, item, depth.saturating_add(1))?;
                }
                Ok(())
            }
            Value::Map(map) if map.is_nil() => Ok(()),
            Value::Map(_) | Value::Struct(_) => {
                if path.len() == 1 {
                    self.line_break()?;
                }
                if !path.is_empty() {
                    self.header(path, "[", "]")?;
                }
                self.entries(path, value, depth)
            }
            _ => self.assign(path, value, depth),
        }
    }

    fn header(&mut self, path: &[String], open: &str, close: &str) -> Result<(), Failure> {
        self.indent(path)?;
        self.text.push(open)?;
        for (index, key) in path.iter().enumerate() {
            if index > 0 {
                self.text.push(".")?;
            }
            self.key(key)?;
        }
        self.text.push(close)?;
        self.line_break()
    }

    fn entries(&mut self, path: &mut Vec<String>, value: &Value, depth: usize) -> Result<(), Failure> {
        for (key, value, _) in self.table_entries(value, depth)? {
            self.entry(path, &key, &value, depth)?;
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &mut Vec<String>,
        key: &str,
        value: &Value,
        depth: usize,
    ) -> Result<(), Failure> {
        if self.kind(value, depth.saturating_add(1))? == Kind::Nil {
            return Ok(());
        }
        self.text.budget.copy(key.len())?;
        path.push(key.to_owned());
        self.node(path, value, depth.saturating_add(1))?;
        path.pop();
        Ok(())
    }

    /// The entries of a map, those without tables first. Go's encoder skips nil values in inline tables, but not their commas.
    fn map_entries(&self, map: &Map, depth: usize) -> Result<Entries, Failure> {
        self.text
            .budget
            .copy(map.len().saturating_mul(size_of::<(Rc<str>, Value, bool)>()))?;
        let (mut simple, mut tables) = (Vec::new(), Vec::new());
        for (key, value) in map.entries(self.text.budget)? {
            match self.kind(&value, depth.saturating_add(1))? {
                Kind::Table | Kind::TableArray => tables.push((key, value, true)),
                _ => simple.push((key, value, true)),
            }
        }
        simple.append(&mut tables);
        if let Some(last) = simple.last_mut() {
            last.2 = false;
        }
        Ok(simple)
    }

    /// The exported fields, those without tables first. Go's encoder omits the comma after the field of which the index is the last.
    fn field_entries(&self, fields: &Struct, depth: usize) -> Result<Entries, Failure> {
        let (mut simple, mut tables) = (Vec::new(), Vec::new());
        let count = fields
            .fields()
            .iter()
            .filter(|(name, _)| Struct::is_exported(name))
            .count();
        for (index, (name, value)) in fields.fields().iter().enumerate() {
            if !Struct::is_exported(name) {
                continue;
            }
            let entry = (name.clone(), value.clone(), index.saturating_add(1) != count);
            match self.kind(value, depth.saturating_add(1))? {
                Kind::Table | Kind::TableArray => tables.push(entry),
                _ => simple.push(entry),
            }
        }
        simple.append(&mut tables);
        Ok(simple)
    }

    fn table_entries(&self, value: &Value, depth: usize) -> Result<Entries, Failure> {
        match plain(value, false) {
            Plain::Value(Value::Map(map)) => self.map_entries(map, depth),
            Plain::Value(Value::Struct(fields)) => self.field_entries(fields, depth),
            _ => Ok(Vec::new()),
        }
    }

    /// `key = value`; at the top, the value alone.
    fn assign(&mut self, path: &[String], value: &Value, depth: usize) -> Result<(), Failure> {
        let Some(key) = path.last() else {
            return self.inline(value, depth);
        };
        self.indent(path)?;
        self.key(key)?;
        self.text.push(" = ")?;
        self.inline(value, depth)?;
        self.line_break()
    }

    fn inline(&mut self, value: &Value, depth: usize) -> Result<(), Failure> {
        visit(self.text.budget, depth)?;
        let value = match plain(value, false) {
            Plain::Text(text) => return self.quoted(text),
            Plain::Invalid(error) => return Err(Failure::reported(error)),
            Plain::Value(value) => value,
        };
        match value {
            Value::String(text) => self.quoted(text)?,
            Value::Bool(truth) => self.text.push(if *truth { "true" } else { "false" })?,
            Value::Int(number, _) => self.text.push(&number.to_string())?,
            Value::Uint(number, _) => self.text.push(&number.to_string())?,
            Value::Float(number, kind) => self.text.push(&float(*number, *kind == FloatKind::Float32))?,
            Value::List(list) => self.array(list, depth)?,
            Value::Map(_) | Value::Struct(_) => {
                self.text.push("{")?;
                for (key, value, has_comma) in self.table_entries(value, depth)? {
                    self.inline_entry(&key, &value, has_comma, depth)?;
                }
                self.text.push("}")?;
            }
            Value::Nil | Value::Complex(..) | Value::Pointer(_) | Value::Named(_) => {}
        }
        Ok(())
    }

    fn inline_entry(
        &mut self,
        key: &str,
        value: &Value,
        has_comma: bool,
        depth: usize,
    ) -> Result<(), Failure> {
        if self.kind(value, depth.saturating_add(1))? == Kind::Nil {
            return Ok(());
        }
        self.key(key)?;
        self.text.push(" = ")?;
        self.inline(value, depth.saturating_add(1))?;
        if has_comma {
            self.text.push(", ")?;
        }
        Ok(())
    }

    fn array(&mut self, list: &List, depth: usize) -> Result<(), Failure> {
        self.text.push("[")?;
        for (index, item) in list.items().iter().enumerate() {
            if index > 0 {
                self.text.push(", ")?;
            }
            self.inline(item, depth.saturating_add(1))?;
        }
        Ok(self.text.push("]")?)
    }

    fn indent(&mut self, path: &[String]) -> Result<(), Failure> {
        Ok(self.text.spaces(path.len().saturating_sub(1).saturating_mul(2))?)
    }

    /// A line break, unless nothing is written yet.
    fn line_break(&mut self) -> Result<(), Failure> {
        if !self.text.is_empty() {
            self.text.push("\n")?;
        }
        Ok(())
    }

    fn key(&mut self, key: &str) -> Result<(), Failure> {
        let is_bare = key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if is_bare && !key.is_empty() {
            return Ok(self.text.push(key)?);
        }
        self.quoted(key)
    }

    fn quoted(&mut self, text: &str) -> Result<(), Failure> {
        self.text.push("\"")?;
        let mut rest = text;
        while let Some((at, special)) = rest
            .char_indices()
            .find(|(_, c)| *c < ' ' || matches!(c, '"' | '\\' | '\u{7f}'))
        {
            self.text.push(rest.get(..at).unwrap_or_default())?;
            match special {
                '"' => self.text.push("\\\"")?,
                '\\' => self.text.push("\\\\")?,
                '\u{8}' => self.text.push("\\b")?,
                '\t' => self.text.push("\\t")?,
                '\n' => self.text.push("\\n")?,
                '\u{c}' => self.text.push("\\f")?,
                '\r' => self.text.push("\\r")?,
                _ => self.text.push(&format!("\\u{:04x}", u32::from(special)))?,
            }
            rest = rest.get(at.saturating_add(1)..).unwrap_or_default();
        }
        self.text.push(rest)?;
        Ok(self.text.push("\"")?)
    }
}

/// A float, which has a decimal point or an exponent in TOML.
fn float(number: f64, is_32: bool) -> String {
    let sign = if number.is_sign_negative() { "-" } else { "" };
    if number.is_nan() {
        return format!("{sign}nan");
    }
    if number.is_infinite() {
        return format!("{sign}inf");
    }
    let mut text = floats::shortest(number, is_32);
    if !text.contains(['e', '.']) {
        text.push_str(".0");
    }
    text
}
