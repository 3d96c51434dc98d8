//! Prints one value with one verb.

use super::directives::Flags;
use super::{floats, quotes};
use crate::budget::Budget;
use crate::problem::Problem;
use crate::value::{FloatKind, MAX_NESTING, Pointer, Struct, Type, Value};

/// Text that grows, and the flags of the directive that is being printed.
pub(super) struct Printer<'a> {
    budget: &'a dyn Budget,
    flags: Flags,
    out: String,
    /// Within `%!verb(type=value)`, methods are not called.
    in_error: bool,
    nesting: usize,
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

    fn repeat(&mut self, with: char, count: usize) -> Result<(), Problem> {
        self.budget.copy(count)?;
        self.out.extend(std::iter::repeat_n(with, count));
        Ok(())
    }

    /// Writes a text, filled up to the width.
    fn pad(&mut self, text: &str) -> Result<(), Problem> {
        let Flags { width, minus, zero } = self.flags;
        let missing = match width {
            0 => 0, // Most texts need not be counted.
            width => width.saturating_sub(text.chars().count()),
        };
        if minus {
            self.write(text)?;
            return self.repeat(' ', missing);
        }
        self.repeat(if zero { '0' } else { ' ' }, missing)?;
        self.write(text)
    }

    /// Writes a number, filled up to the width. Zeros go after the sign.
    fn number(&mut self, sign: &str, digits: &str) -> Result<(), Problem> {
        let Flags { width, minus, zero } = self.flags;
        if !zero || minus {
            return self.pad(&format!("{sign}{digits}"));
        }
        self.write(sign)?;
        self.repeat('0', width.saturating_sub(sign.len().saturating_add(digits.len())))?;
        self.write(digits)
    }

    /// Prints the argument of a directive, which may be missing.
    pub(super) fn directive(
        &mut self,
        flags: Flags,
        verb: char,
        value: Option<&Value>,
    ) -> Result<(), Problem> {
        self.flags = flags;
        match value {
            Some(value) => self.argument(value, verb),
            None => self.write(&format!("%!{verb}(MISSING)")),
        }
    }

    /// Prints arguments that no directive prints.
    pub(super) fn unused(&mut self, values: &[Value]) -> Result<(), Problem> {
        if values.is_empty() {
            return Ok(());
        }
        self.flags = Flags::default();
        self.write("%!(EXTRA ")?;
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                self.write(", ")?;
            }
            if let Some(of) = value.type_of() {
                self.write(&format!("{of}="))?;
            }
            self.argument(value, 'v')?;
        }
        self.write(")")
    }

    /// Prints an argument.
    pub(super) fn argument(&mut self, value: &Value, verb: char) -> Result<(), Problem> {
        match (value, verb) {
            (Value::Nil, 'v') => self.pad("<nil>"),
            (Value::Nil, _) => self.bad_verb(value, verb),
            _ if self.by_method(value, verb)? => Ok(()),
            _ => self.value(value, verb, true),
        }
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

    /// Prints the text of a Stringer. Returns whether the value is one.
    fn by_method(&mut self, value: &Value, verb: char) -> Result<bool, Problem> {
        if self.in_error || !matches!(verb, 'v' | 's' | 'x' | 'q') {
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
    fn element(&mut self, value: &Value, verb: char) -> Result<(), Problem> {
        if let Value::Nil = value {
            return self.write("<nil>");
        }
        if self.by_method(value, verb)? {
            return Ok(());
        }
        self.value(value, verb, false)
    }

    /// Prints a value by what its type is made of. Pointers to structs, lists and maps are followed only at
    /// the top.
    fn value(&mut self, value: &Value, verb: char, at_top: bool) -> Result<(), Problem> {
        self.budget.step(1)?;
        match value.underlying() {
            Value::Nil => self.write("<nil>"),
            Value::Bool(truth) => match verb {
                't' | 'v' => self.pad(if *truth { "true" } else { "false" }),
                _ => self.bad_verb(value, verb),
            },
            Value::Int(number, _) => self.integer(value, *number < 0, number.unsigned_abs(), verb),
            Value::Uint(number, _) => self.integer(value, false, *number, verb),
            Value::Float(number, kind) => self.float(value, *number, *kind, verb),
            Value::String(text) => self.string(text, value, verb),
            Value::List(list) => self.nested(|printer| printer.items(list.items(), verb)),
            Value::Map(map) => {
                let entries = map.entries(self.budget)?;
                self.nested(|printer| {
                    printer.write("map[")?;
                    for (index, (key, item)) in entries.into_iter().enumerate() {
                        printer.write(if index > 0 { " " } else { "" })?;
                        printer.element(&Value::String(key), verb)?;
                        printer.write(":")?;
                        printer.element(&item, verb)?;
                    }
                    printer.write("]")
                })
            }
            Value::Struct(fields) => self.nested(|printer| printer.fields(fields, verb)),
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
            'v' | 's' => self.pad(text),
            'q' => {
                self.budget.copy(text.len())?;
                self.pad(&quotes::quote(text))
            }
            'x' => {
                self.budget.copy(text.len().saturating_mul(2))?;
                let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
                self.pad(&digits)
            }
            _ => self.bad_verb(value, verb),
        }
    }

    fn integer(&mut self, value: &Value, negative: bool, absolute: u64, verb: char) -> Result<(), Problem> {
        let digits = match verb {
            'v' | 'd' => absolute.to_string(),
            'x' => format!("{absolute:x}"),
            'q' => return Err(not_supported(verb, "an integer")),
            _ => return self.bad_verb(value, verb),
        };
        self.number(if negative { "-" } else { "" }, &digits)
    }

    fn float(&mut self, value: &Value, number: f64, kind: FloatKind, verb: char) -> Result<(), Problem> {
        match verb {
            'v' => {
                let (sign, digits) = floats::shortest(number, kind == FloatKind::Float32);
                if !number.is_finite() {
                    self.flags.zero = false;
                }
                self.number(sign, &digits)
            }
            'x' => Err(not_supported(verb, "a floating-point number")),
            _ => self.bad_verb(value, verb),
        }
    }

    fn items(&mut self, items: &[Value], verb: char) -> Result<(), Problem> {
        self.write("[")?;
        for (index, item) in items.iter().enumerate() {
            self.write(if index > 0 { " " } else { "" })?;
            self.element(item, verb)?;
        }
        self.write("]")
    }

    fn fields(&mut self, fields: &Struct, verb: char) -> Result<(), Problem> {
        self.write("{")?;
        for (index, (name, item)) in fields.fields().iter().enumerate() {
            self.write(if index > 0 { " " } else { "" })?;
            // Methods of values in fields that are not exported can't be called.
            if Struct::is_exported(name) || matches!(item, Value::Nil) {
                self.element(item, verb)?;
            } else {
                self.value(item, verb, false)?;
            }
        }
        self.write("}")
    }

    /// Go prints the address of a pointer. Only that of a nil pointer is the same in each run.
    fn pointer(&mut self, pointer: &Pointer, value: &Value, verb: char, at_top: bool) -> Result<(), Problem> {
        let Some(target) = pointer.value() else {
            return match verb {
                'v' => self.pad("<nil>"),
                'd' | 'x' => self.number("", "0"),
                _ => self.bad_verb(value, verb),
            };
        };
        let is_followed = matches!(
            target.underlying(),
            Value::List(_) | Value::Map(_) | Value::Struct(_)
        );
        if at_top && is_followed {
            self.write("&")?;
            return self.element(target, verb);
        }
        if !matches!(verb, 'v' | 'd' | 'x') {
            return self.bad_verb(value, verb);
        }
        let of = value.type_of().unwrap_or(Type::Any);
        let problem = format!("can't print the address of a {of}, which is different in each run");
        Err(Problem::new(problem))
    }
}

fn not_supported(verb: char, of: &str) -> Problem {
    Problem::new(format!("printing {of} with %{verb} is not supported"))
}
