//! JSON as values: Go's `encoding/json`, with its error texts.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::text::{Failure, charge_entry, push, visit};
use crate::budget::Budget;
use crate::format::quotes;
use crate::value::{List, Map, Value};

/// A value, and the error that leaves the rest of the value usable: a number that is too large for a float64.
pub(super) struct Decoded {
    pub(super) value: Value,
    pub(super) error: Option<String>,
}

/// Decodes JSON. All numbers are floats.
pub(super) fn decode(text: &str, budget: &dyn Budget) -> Result<Decoded, Failure> {
    let mut reader = Reader {
        text,
        at: 0,
        budget,
        error: None,
    };
    let value = reader.value(0)?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(Decoded {
            value,
            error: reader.error,
        }),
        Some(_) => Err(reader.unexpected("after top-level value")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    budget: &'a dyn Budget,
    error: Option<String>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at = self.at.saturating_add(1);
        }
    }

    fn advance(&mut self) {
        self.at = self.at.saturating_add(1);
    }

    /// The error for the byte that comes next.
    fn unexpected(&self, context: &str) -> Failure {
        // At the end, Go looks whether a space may follow.
        let space_fits =
            context.starts_with("looking") || context.starts_with("after ") || context == "in string literal";
        let byte = match self.peek() {
            Some(byte) => byte,
            None if space_fits && !context.ends_with("numeric literal") => {
                return Failure::reported("unexpected end of JSON input");
            }
            None => b' ',
        };
        let quoted = match byte {
            b'\'' => "'\\''".to_owned(),
            b'"' => "'\"'".to_owned(),
            _ => {
                // Go takes the byte for a character.
                let quoted = quotes::quote(char::from(byte).encode_utf8(&mut [0; 4]), false);
                format!("'{}'", quoted.trim_start_matches('"').trim_end_matches('"'))
            }
        };
        Failure::reported(format!("invalid character {quoted} {context}"))
    }

    fn value(&mut self, depth: usize) -> Result<Value, Failure> {
        visit(self.budget, depth)?;
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::string(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Nil),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, Failure> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(self.unexpected(&context));
            }
            self.advance();
        }
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Result<Value, Failure> {
        self.advance();
        self.budget.copy(List::bytes(0))?;
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.advance();
            return Ok(Value::list(items));
        }
        loop {
            let item = self.value(depth.saturating_add(1))?;
            push(&mut items, item, self.budget)?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.advance(),
                Some(b']') => {
                    self.advance();
                    return Ok(Value::list(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, Failure> {
        self.advance();
        self.budget.copy(Map::bytes(0))?;
        let mut entries: BTreeMap<Rc<str>, Value> = BTreeMap::new();
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.advance();
            return Ok(Value::map(entries));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.advance();
            let value = self.value(depth.saturating_add(1))?;
            charge_entry(self.budget)?;
            entries.insert(key.into(), value);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.advance(),
                Some(b'}') => {
                    self.advance();
                    return Ok(Value::map(entries));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
    }

    fn digits(&mut self) -> bool {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.advance();
        }
        self.at > from
    }

    fn number(&mut self) -> Result<Value, Failure> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.advance();
        }
        if self.peek() == Some(b'0') {
            self.advance();
        } else if !self.digits() {
            return Err(self.unexpected("in numeric literal"));
        }
        if self.peek() == Some(b'.') {
            self.advance();
            if !self.digits() {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.advance();
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.advance();
            }
            if !self.digits() {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
        }
        let number = self.text.get(from..self.at).unwrap_or_default();
        match number.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Value::float(value)),
            _ => {
                self.budget.copy(number.len())?;
                let error = format!("json: cannot unmarshal number {number} into Go value of type float64");
                self.error.get_or_insert(error);
                Ok(Value::Nil)
            }
        }
    }

    fn string(&mut self) -> Result<String, Failure> {
        self.advance();
        let mut out = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let plain = rest
                .find(|c: char| c < ' ' || matches!(c, '"' | '\\'))
                .unwrap_or(rest.len());
            self.budget.copy(plain)?;
            out.push_str(rest.get(..plain).unwrap_or_default());
            self.at = self.at.saturating_add(plain);
            match self.peek() {
                Some(b'"') => {
                    self.advance();
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.advance();
                    let c = self.escape()?;
                    self.budget.copy(c.len_utf8())?;
                    out.push(c);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Failure> {
        let c = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.advance();
                return self.unicode();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.advance();
        Ok(c)
    }

    /// The character of `\u`. A half of a surrogate pair without the other is the replacement character, as in Go.
    fn unicode(&mut self) -> Result<char, Failure> {
        let first = self.four_digits()?;
        if (0xd800..0xdc00).contains(&first)
            && self
                .text
                .get(self.at..)
                .is_some_and(|rest| rest.starts_with("\\u"))
        {
            let before = self.at;
            self.at = self.at.saturating_add(2);
            let second = self.four_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x1_0000_u32.saturating_add((first & 0x3ff) << 10 | (second & 0x3ff));
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn four_digits(&mut self) -> Result<u32, Failure> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            code = code << 4 | digit;
            self.advance();
        }
        Ok(code)
    }
}
