//! Fields of structs, keys of maps, and methods.

use super::reflected::{Reflected, indirect};
use super::state::{Executed, State};
use crate::parse::{Operand, OperandKind, Part};
use crate::value::{Type, Value};

impl<'t> State<'t> {
    /// The value of a variable, or of an operand that ends with fields. Only a method that is the last name can have arguments.
    pub(super) fn fields_of(
        &mut self,
        dot: &Reflected,
        operand: &'t Operand,
        arguments: &'t [Operand],
        last: Option<Reflected>,
    ) -> Executed<Reflected> {
        self.at(Part::Operand(operand));
        let count = arguments.len().saturating_add(usize::from(last.is_some()));
        match &operand.kind {
            OperandKind::Field(names) => self.chain(dot, names, count),
            OperandKind::Variable(name, names) => {
                let value = self.variable(name)?;
                if names.is_empty() {
                    self.refuse_arguments(operand, arguments, last.is_some())?;
                    return Ok(value);
                }
                self.chain(&value, names, count)
            }
            OperandKind::Chain(of, names) => {
                self.at(Part::Operand(of));
                let value = match &of.kind {
                    OperandKind::Pipeline(pipeline) => self.inner_pipeline(dot, pipeline)?,
                    OperandKind::Function(function) => {
                        let result = self.call(dot, function, Part::Operand(of), &[], None)?;
                        // Unlike that of a pipeline, its nil still is an interface.
                        Reflected {
                            is_interface: result.is_interface || function.returns == Type::Any.to_string(),
                            ..result
                        }
                    }
                    _ => return Ok(Reflected::NONE), // The parser makes no others.
                };
                self.chain(&value, names, count)
            }
            _ => Ok(Reflected::NONE),
        }
    }

    fn chain(
        &mut self,
        receiver: &Reflected,
        names: &'t [Box<str>],
        arguments: usize,
    ) -> Executed<Reflected> {
        let Some((last, names)) = names.split_last() else {
            return Ok(receiver.clone());
        };
        let Some((first, names)) = names.split_first() else {
            return self.field(receiver, last, arguments);
        };
        let mut value = self.field(receiver, first, 0)?;
        for name in names {
            self.step()?;
            value = self.field(&value, name, 0)?;
        }
        self.field(&value, last, arguments)
    }

    /// A field, key or method, see Go's `evalField`. `arguments` is their number.
    fn field(&self, receiver: &Reflected, name: &str, arguments: usize) -> Executed<Reflected> {
        if receiver.is_none() {
            return Ok(Reflected::NONE);
        }
        self.look_up(name)?;
        let value = indirect(&receiver.value);
        if let Value::Named(named) = value
            && let Some(result) = named.method(name)
        {
            if arguments > 0 {
                return self.fail(format!("wrong number of args for {name}: want 0 got {arguments}"));
            }
            return Ok(Reflected::member(result));
        }
        match value.underlying() {
            Value::Struct(fields) => {
                if let Some(field) = fields.field(name) {
                    if arguments > 0 {
                        return self.fail(format!("{name} has arguments but cannot be invoked as function"));
                    }
                    return Ok(Reflected::member(field.clone()));
                }
            }
            Value::Map(map) => {
                if arguments > 0 {
                    return self.fail(format!("{name} is not a method but has arguments"));
                }
                let entry = map.get(name);
                return Ok(entry.map_or(Reflected::NONE, |entry| Reflected::element(entry, map.element())));
            }
            // A nil pointer, or a pointer to a nil interface.
            Value::Pointer(_) | Value::Nil => {
                return self.fail(format!("nil pointer evaluating {}.{name}", receiver.type_name()));
            }
            _ => {}
        }
        self.fail(format!(
            "can't evaluate field {name} in type {}",
            receiver.type_name()
        ))
    }
}
