//! Values as JSON: Go's `encoding/json`.

use super::bases;
use super::text::{Failure, Plain, Text, bytes_of, plain, visit};
use crate::budget::Budget;
use crate::format::floats;
use crate::value::{FloatKind, Struct, Value};

/// Encodes a value as JSON in one line, with `<`, `>` and `&` as escape sequences.
pub(super) fn encode(value: &Value, budget: &dyn Budget) -> Result<String, Failure> {
    let mut writer = Writer {
        text: Text::new(budget),
    };
    writer.value(value, 0)?;
    Ok(writer.text.finish())
}

struct Writer<'a> {
    text: Text<'a>,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Failure> {
        visit(self.text.budget, depth)?;
        let value = match plain(value, true) {
            Plain::Text(text) => return self.string(text),
            Plain::Invalid(error) => {
                return Err(Failure::reported(format!(
                    "json: error calling MarshalText for type net.IP: {error}"
                )));
            }
            Plain::Value(value) => value,
        };
        match value {
            Value::Nil | Value::Pointer(_) | Value::Named(_) => self.text.push("null")?,
            Value::Bool(truth) => self.text.push(if *truth { "true" } else { "false" })?,
            Value::Int(number, _) => self.text.push(&number.to_string())?,
            Value::Uint(number, _) => self.text.push(&number.to_string())?,
            Value::Float(number, kind) => self.float(*number, *kind == FloatKind::Float32)?,
            Value::Complex(..) => return Err(Failure::reported("json: unsupported type: complex128")),
            Value::String(text) => self.string(text)?,
            Value::List(list) if list.is_nil() => self.text.push("null")?,
            Value::List(list) => {
                if let Some(bytes) = bytes_of(list) {
                    self.text.budget.copy(bytes.len().saturating_mul(2))?;
                    return self.string(&bases::encode_64(&bytes));
                }
                self.text.push("[")?;
                for (index, item) in list.items().iter().enumerate() {
                    self.next(index)?;
                    self.value(item, depth.saturating_add(1))?;
                }
                self.text.push("]")?;
            }
            Value::Map(map) if map.is_nil() => self.text.push("null")?,
            Value::Map(map) => {
                let entries = map.entries(self.text.budget)?;
                self.object(entries.iter().map(|(key, item)| (&**key, item)), depth)?;
            }
            Value::Struct(fields) => {
                let exported = fields
                    .fields()
                    .iter()
                    .filter(|(name, _)| Struct::is_exported(name));
                self.object(exported.map(|(name, item)| (&**name, item)), depth)?;
            }
        }
        Ok(())
    }

    fn object<'v>(
        &mut self,
        entries: impl Iterator<Item = (&'v str, &'v Value)>,
        depth: usize,
    ) -> Result<(), Failure> {
        self.text.push("{")?;
        for (index, (key, item)) in entries.enumerate() {
            self.next(index)?;
            self.string(key)?;
            self.text.push(":")?;
            self.value(item, depth.saturating_add(1))?;
        }
        Ok(self.text.push("}")?)
    }

    /// What goes before an element.
    fn next(&mut self, index: usize) -> Result<(), Failure> {
        Ok(self.text.push(if index > 0 { "," } else { "" })?)
    }

    fn float(&mut self, number: f64, is_32: bool) -> Result<(), Failure> {
        if !number.is_finite() {
            let problem = format!("json: unsupported value: {}", floats::shortest(number, is_32));
            return Err(Failure::reported(problem));
        }
        let absolute = number.abs();
        // The limits are those of the type, and the nearest float32 to 1e-6 is below it.
        #[allow(clippy::cast_possible_truncation)]
        let has_exponent = absolute != 0.0
            && if is_32 {
                (absolute as f32) < 1e-6 || absolute as f32 >= 1e21
            } else {
                !(1e-6..1e21).contains(&absolute)
            };
        let text = floats::format(number, is_32, if has_exponent { 'e' } else { 'f' }, None);
        // Go writes e-9, not e-09.
        match text.split_once("e-0").filter(|_| has_exponent) {
            Some((digits, exponent)) => self.text.push(&format!("{digits}e-{exponent}"))?,
            None => self.text.push(&text)?,
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Result<(), Failure> {
        self.text.push("\"")?;
        let mut rest = text;
        let is_special = |c: char| match c {
            '"' | '\\' | '\u{2028}' | '\u{2029}' | '<' | '>' | '&' => true,
            _ => c < ' ',
        };
        while let Some((at, special)) = rest.char_indices().find(|(_, c)| is_special(*c)) {
            let (before, after) = rest.split_at_checked(at).unwrap_or((rest, ""));
            self.text.push(before)?;
            match special {
                '"' => self.text.push("\\\"")?,
                '\\' => self.text.push("\\\\")?,
                '\u{8}' => self.text.push("\\b")?,
                '\u{c}' => self.text.push("\\f")?,
                '\n' => self.text.push("\\n")?,
                '\r' => self.text.push("\\r")?,
                '\t' => self.text.push("\\t")?,
                _ => self.text.push(&format!("\\u{:04x}", u32::from(special)))?,
            }
            rest = after.get(special.len_utf8()..).unwrap_or_default();
        }
        self.text.push(rest)?;
        Ok(self.text.push("\"")?)
    }
}
