//! Prints one value with one verb.

use super::flags::{Base, Flags};
use crate::budget::Budget;
use crate::problem::Problem;
use crate::value::{FloatKind, List, MAX_NESTING, Map, Pointer, Struct, Type, UintKind, Value};

/// Text that grows, and the flags of the directive that is being printed.
pub(super) struct Printer<'a> {
    pub(super) budget: &'a dyn Budget,
    pub(super) flags: Flags,
    out: String,
    /// Within `%!verb(type=value)`, methods are not called.
    in_error: bool,
    nesting: usize,
}

/// A byte as Go's `%T` prints it within other types, e.g. in `[]uint8`.
fn is_bytes(list: &List) -> bool {
    match list.element() {
        Type::Uint(UintKind::Uint8) => true,
        Type::Named(_, made_of, _) => **made_of == Type::Uint(UintKind::Uint8),
        _ => false,
    }
}

fn bytes_of(list: &List) -> Vec<u8> {
    let byte = |item: &Value| match item.underlying() {
        Value::Uint(byte, _) => u8::try_from(*byte).unwrap_or(0),
        _ => 0,
    };
    list.items().iter().map(byte).collect()
}

impl<'a> Printer<'a> {
    pub(super) fn new(budget: &'a dyn Budget) -> Self {
        Self {
            budget,
            flags: Flags::default(),
            out: String::new(),
            in_error: false,
            nesting: 0,
        }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    pub(super) fn write(&mut self, text: &str) -> Result<(), Problem> {
        self.budget.copy(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    pub(super) fn repeat(&mut self, with: char, count: usize) -> Result<(), Problem> {
        self.budget.copy(count)?;
        self.out.extend(std::iter::repeat_n(with, count));
        Ok(())
    }

    /// Writes what is charged already.
    pub(super) fn push(&mut self, c: char) {
        self.out.push(c);
    }

    /// Writes what is charged already.
    pub(super) fn push_str(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Prints an argument.
    pub(super) fn argument(&mut self, value: &Value, verb: char) -> Result<(), Problem> {
        let Some(of) = value.type_of() else {
            return match verb {
                'T' | 'v' => self.pad("<nil>"),
                _ => self.bad_verb(value, verb),
            };
        };
        match (verb, value) {
            ('T', _) => return self.text(&of.to_string()),
            ('p', _) => return self.address(value, verb),
            // Alone, bytes are printed as the type byte; within other values, as uint8.
            (_, Value::List(list)) if *list.element() == Type::Uint(UintKind::Uint8) => match verb {
                'v' | 'd' => return self.byte_list(list, verb),
                's' | 'x' | 'X' | 'q' => return self.bytes(list, verb),
                _ => return self.value(value, verb, true),
            },
            _ => {}
        }
        if self.by_method(value, verb)? {
            return Ok(());
        }
        self.value(value, verb, true)
    }

    /// `%!verb(type=value)`
    fn bad_verb(&mut self, value: &Value, verb: char) -> Result<(), Problem> {
        let Some(of) = value.type_of() else {
            return self.write(&format!("%!{verb}(<nil>)"));
        };
        self.write(&format!("%!{verb}({of}="))?;
        self.in_error = true;
        self.value(value, 'v', true)?;
        self.in_error = false;
        self.write(")")
    }

    /// Prints the text of a Stringer.
    fn by_method(&mut self, value: &Value, verb: char) -> Result<bool, Problem> {
        let has_methods = matches!(
            value,
            Value::List(_) | Value::Map(_) | Value::Struct(_) | Value::Pointer(_) | Value::Named(_)
        );
        if self.in_error {
            return Ok(false);
        }
        if verb == 'w' && (has_methods || self.nesting > 0) {
            self.bad_verb(value, verb)?;
            return Ok(true);
        }
        if self.flags.sharp_v || !matches!(verb, 'v' | 's' | 'x' | 'X' | 'q') {
            return Ok(false);
        }
        // A pointer has the methods of the type that it points to.
        let receiver = match value {
            Value::Pointer(pointer) if pointer.value().is_none() && pointer.to().behavior().has_text() => {
                // Go calls the method, which fails.
                return self.write("<nil>").map(|()| true);
            }
            Value::Pointer(pointer) => pointer.value(),
            _ => Some(value),
        };
        let Some(Value::Named(named)) = receiver else {
            return Ok(false);
        };
        match named.text() {
            Some(text) => self.string(text, value, verb).map(|()| true),
            None => Ok(false),
        }
    }

    /// Prints an element of another value.
    fn element(&mut self, value: &Value, verb: char, of: &Type) -> Result<(), Problem> {
        if let Value::Nil = value {
            return if self.flags.sharp_v {
                self.write(&format!("{of}(nil)"))
            } else {
                self.write("<nil>")
            };
        }
        if self.by_method(value, verb)? {
            return Ok(());
        }
        self.value(value, verb, false)
    }

    /// Prints a value by what its type is made of. Pointers to structs, lists and maps are followed only at the top.
    fn value(&mut self, value: &Value, verb: char, at_top: bool) -> Result<(), Problem> {
        self.budget.step(1)?;
        match value.underlying() {
            Value::Nil => self.write("<nil>"),
            Value::Bool(truth) => match verb {
                't' | 'v' => self.pad(if *truth { "true" } else { "false" }),
                _ => self.bad_verb(value, verb),
            },
            Value::Int(number, _) => {
                // Verbs that print characters take the bits of a negative number.
                #[allow(clippy::cast_sign_loss)]
                let bits = *number as u64;
                self.any_integer(value, *number < 0, number.unsigned_abs(), bits, verb)
            }
            Value::Uint(number, _) => {
                if verb == 'v' && self.flags.sharp_v {
                    return self.with_0x(*number);
                }
                self.any_integer(value, false, *number, *number, verb)
            }
            Value::Float(number, kind) => self.any_float(value, *number, *kind, verb),
            Value::Complex(real, imaginary) => {
                if !matches!(verb, 'v' | 'b' | 'g' | 'G' | 'x' | 'X' | 'f' | 'F' | 'e' | 'E') {
                    return self.bad_verb(value, verb);
                }
                self.write("(")?;
                self.any_float(value, *real, FloatKind::Float64, verb)?;
                let plus = std::mem::replace(&mut self.flags.plus, true);
                self.any_float(value, *imaginary, FloatKind::Float64, verb)?;
                self.flags.plus = plus;
                self.write("i)")
            }
            Value::String(text) => self.string(text, value, verb),
            Value::List(list) => {
                if matches!(verb, 's' | 'q' | 'x' | 'X') && is_bytes(list) {
                    return self.bytes(list, verb);
                }
                self.nested(|printer| printer.list(list, value, verb))
            }
            Value::Map(map) => self.nested(|printer| printer.map(map, value, verb)),
            Value::Struct(fields) => self.nested(|printer| printer.fields(fields, value, verb)),
            Value::Pointer(pointer) => self.nested(|printer| printer.pointer(pointer, value, verb, at_top)),
            Value::Named(_) => Ok(()), // `underlying` removes all names.
        }
    }

    fn nested(&mut self, print: impl FnOnce(&mut Self) -> Result<(), Problem>) -> Result<(), Problem> {
        if self.nesting >= MAX_NESTING {
            return Err(Problem::new(format!(
                "the value is nested deeper than {MAX_NESTING} levels"
            )));
        }
        self.nesting = self.nesting.saturating_add(1);
        let done = print(self);
        self.nesting = self.nesting.saturating_sub(1);
        done
    }

    fn string(&mut self, text: &str, value: &Value, verb: char) -> Result<(), Problem> {
        match verb {
            'v' if self.flags.sharp_v => self.quoted(text),
            'v' | 's' => self.text(text),
            'x' | 'X' => self.hex(text.as_bytes(), verb == 'X'),
            'q' => self.quoted(text),
            _ => self.bad_verb(value, verb),
        }
    }

    fn any_integer(
        &mut self,
        value: &Value,
        negative: bool,
        absolute: u64,
        bits: u64,
        verb: char,
    ) -> Result<(), Problem> {
        let base = match verb {
            'v' | 'd' => Base::Decimal,
            'b' => Base::Binary,
            'o' | 'O' => Base::Octal,
            'x' => Base::Hex,
            'X' => Base::UpperHex,
            'c' => return self.character(bits),
            'q' => return self.quoted_character(bits),
            'U' => return self.unicode(bits),
            _ => return self.bad_verb(value, verb),
        };
        self.integer(negative, absolute, base, verb == 'O')
    }

    fn with_0x(&mut self, number: u64) -> Result<(), Problem> {
        let sharp = std::mem::replace(&mut self.flags.sharp, true);
        let done = self.integer(false, number, Base::Hex, false);
        self.flags.sharp = sharp;
        done
    }

    fn any_float(&mut self, value: &Value, number: f64, kind: FloatKind, verb: char) -> Result<(), Problem> {
        let (verb, precision) = match verb {
            'v' => ('g', None),
            'b' | 'g' | 'G' | 'x' | 'X' => (verb, None),
            'f' | 'e' | 'E' => (verb, Some(6)),
            'F' => ('f', Some(6)),
            _ => return self.bad_verb(value, verb),
        };
        self.float(number, kind == FloatKind::Float32, verb, precision)
    }

    /// Bytes with a verb of strings.
    fn bytes(&mut self, list: &List, verb: char) -> Result<(), Problem> {
        self.budget.copy(list.items().len())?;
        let bytes = bytes_of(list);
        if matches!(verb, 'x' | 'X') {
            return self.hex(&bytes, verb == 'X');
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| Problem::new("the bytes are not UTF-8, so they can't become text"))?;
        if verb == 'q' {
            self.quoted(&text)
        } else {
            self.text(&text)
        }
    }

    /// Bytes as numbers.
    fn byte_list(&mut self, list: &List, verb: char) -> Result<(), Problem> {
        if self.flags.sharp_v {
            if list.is_nil() {
                return self.write("[]byte(nil)");
            }
            self.write("[]byte")?;
        }
        self.budget
            .step(u64::try_from(list.items().len()).unwrap_or(u64::MAX))?;
        let (open, between, close) = self.braces();
        self.write(open)?;
        for (index, byte) in bytes_of(list).into_iter().enumerate() {
            if index > 0 {
                self.write(between)?;
            }
            if self.flags.sharp_v {
                self.with_0x(u64::from(byte))?;
            } else {
                self.any_integer(&Value::Nil, false, u64::from(byte), u64::from(byte), verb)?;
            }
        }
        self.write(close)
    }

    /// What goes before, between and after elements of a list.
    fn braces(&self) -> (&'static str, &'static str, &'static str) {
        if self.flags.sharp_v {
            ("{", ", ", "}")
        } else {
            ("[", " ", "]")
        }
    }

    /// Writes the name of the type for `%#v`. Returns whether the value is nil, of which `(nil)` is all.
    fn go_syntax(&mut self, value: &Value, is_nil: bool) -> Result<bool, Problem> {
        if !self.flags.sharp_v {
            return Ok(false);
        }
        let of = value.type_of().unwrap_or(Type::Any);
        self.write(&of.to_string())?;
        if is_nil {
            self.write("(nil)")?;
        }
        Ok(is_nil)
    }

    fn list(&mut self, list: &List, value: &Value, verb: char) -> Result<(), Problem> {
        if self.go_syntax(value, list.is_nil())? {
            return Ok(());
        }
        let (open, between, close) = self.braces();
        self.write(open)?;
        for (index, item) in list.items().iter().enumerate() {
            if index > 0 {
                self.write(between)?;
            }
            self.element(item, verb, list.element())?;
        }
        self.write(close)
    }

    fn map(&mut self, map: &Map, value: &Value, verb: char) -> Result<(), Problem> {
        if self.go_syntax(value, map.is_nil())? {
            return Ok(());
        }
        let (open, between, close) = self.braces();
        if !self.flags.sharp_v {
            self.write("map")?;
        }
        self.write(open)?;
        for (index, (key, item)) in map.entries(self.budget)?.into_iter().enumerate() {
            if index > 0 {
                self.write(between)?;
            }
            self.element(&Value::String(key), verb, &Type::String)?;
            self.write(":")?;
            self.element(&item, verb, map.element())?;
        }
        self.write(close)
    }

    fn fields(&mut self, fields: &Struct, value: &Value, verb: char) -> Result<(), Problem> {
        self.go_syntax(value, false)?;
        self.write("{")?;
        for (index, (name, item)) in fields.fields().iter().enumerate() {
            if index > 0 {
                self.write(if self.flags.sharp_v { ", " } else { " " })?;
            }
            if self.flags.plus_v || self.flags.sharp_v {
                self.write(name)?;
                self.write(":")?;
            }
            // Methods of values in fields that are not exported can't be called.
            if name.chars().next().is_some_and(char::is_uppercase) || matches!(item, Value::Nil) {
                self.element(item, verb, &Type::Any)?;
            } else {
                self.value(item, verb, false)?;
            }
        }
        self.write("}")
    }

    fn pointer(&mut self, pointer: &Pointer, value: &Value, verb: char, at_top: bool) -> Result<(), Problem> {
        if let Some(target) = pointer.value().filter(|_| at_top)
            && matches!(
                target.underlying(),
                Value::List(_) | Value::Map(_) | Value::Struct(_)
            )
        {
            self.write("&")?;
            return self.element(target, verb, pointer.to());
        }
        self.address(value, verb)
    }

    /// What Go prints for a pointer instead of what it points to. Only that of a nil pointer is the same in each run.
    fn address(&mut self, value: &Value, verb: char) -> Result<(), Problem> {
        let is_nil = match value.underlying() {
            Value::Pointer(pointer) => pointer.value().is_none(),
            Value::Map(map) => map.is_nil(),
            Value::List(list) => list.is_nil(),
            _ => return self.bad_verb(value, verb),
        };
        if !matches!(verb, 'v' | 'p' | 'b' | 'o' | 'd' | 'x' | 'X') {
            return self.bad_verb(value, verb);
        }
        let of = value.type_of().unwrap_or(Type::Any);
        if !is_nil {
            let problem = format!("can't print the address of a {of}, which is different in each run");
            return Err(Problem::new(problem));
        }
        match verb {
            'v' if self.flags.sharp_v => self.write(&format!("({of})(nil)")),
            'v' => self.pad("<nil>"),
            'p' if self.flags.sharp => {
                self.flags.sharp = false;
                self.integer(false, 0, Base::Hex, false)
            }
            'p' => self.with_0x(0),
            _ => self.any_integer(value, false, 0, 0, verb),
        }
    }
}
