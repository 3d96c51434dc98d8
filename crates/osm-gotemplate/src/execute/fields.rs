//! Fields of structs, keys of maps, and methods.

use super::reflected::{Reflected, indirect};
use super::state::{Executed, State};
use crate::functions::Call;
use crate::methods::{self, Method, PLAIN};
use crate::parse::{Operand, OperandKind, Part};
use crate::problem::Problem;
use crate::value::{Struct, Type, Value};

impl<'t> State<'t> {
    /// The value of a variable, or of an operand that ends with fields. Only a method that is the last name
    /// can have arguments.
    pub(super) fn fields_of(
        &mut self,
        dot: &Reflected,
        operand: &'t Operand,
        arguments: &'t [Operand],
        last: Option<Reflected>,
    ) -> Executed<Reflected> {
        self.at(Part::Operand(operand));
        let given = Given {
            dot,
            operand,
            arguments,
            last,
        };
        match &operand.kind {
            OperandKind::Field(names) => self.chain(dot, names, given),
            OperandKind::Variable(name, names) => {
                let value = self.variable(name)?;
                if names.is_empty() {
                    self.refuse_arguments(operand, arguments, given.last.is_some())?;
                    return Ok(value);
                }
                self.chain(&value, names, given)
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
                self.chain(&value, names, given)
            }
            _ => Ok(Reflected::NONE),
        }
    }

    fn chain(
        &mut self,
        receiver: &Reflected,
        names: &'t [Box<str>],
        given: Given<'_, 't>,
    ) -> Executed<Reflected> {
        let Some((last, names)) = names.split_last() else {
            return Ok(receiver.clone());
        };
        let Some((first, names)) = names.split_first() else {
            return self.field(receiver, last, given);
        };
        let mut value = self.field(receiver, first, given.nothing())?;
        for name in names {
            self.step()?;
            value = self.field(&value, name, given.nothing())?;
        }
        self.field(&value, last, given)
    }

    /// A field, key or method, see Go's `evalField`.
    fn field(&mut self, receiver: &Reflected, name: &'t str, given: Given<'_, 't>) -> Executed<Reflected> {
        if receiver.is_none() {
            return Ok(Reflected::NONE);
        }
        self.look_up(name)?;
        let value = indirect(&receiver.value);
        let behavior = match value {
            Value::Named(named) => named.behavior(),
            Value::Pointer(pointer) => pointer.to().behavior(),
            _ => &PLAIN,
        };
        let by_pointer = matches!(receiver.value.underlying(), Value::Pointer(_));
        let method = behavior.method(name);
        if let Some(method) = method.filter(|method| by_pointer || !method.of_pointer) {
            return self.call_method(value, method, given);
        }
        let has_arguments = given.count() > 0;
        match value.underlying() {
            Value::Struct(fields) => {
                if let Some(field) = fields.field(name) {
                    if !Struct::is_exported(name) {
                        let of = receiver.type_name();
                        return self.fail(format!("{name} is an unexported field of struct type {of}"));
                    }
                    if has_arguments {
                        return self.fail(format!("{name} has arguments but cannot be invoked as function"));
                    }
                    return Ok(Reflected::member(field.clone()));
                }
            }
            Value::Map(map) => {
                if has_arguments {
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

    /// Calls a method of a value, or of the nil pointer that `receiver` is.
    fn call_method(
        &mut self,
        receiver: &Value,
        method: &'static Method,
        given: Given<'_, 't>,
    ) -> Executed<Reflected> {
        let (name, wanted, got) = (method.name, method.parameters.len(), given.count());
        if got != wanted {
            return self.fail(format!(
                "wrong number of args for {name}: want {wanted} got {got}"
            ));
        }
        let mut values = Vec::with_capacity(wanted.saturating_add(1));
        values.push(receiver.clone());
        let mut parameters = method.parameters.iter().copied();
        for (argument, parameter) in given.arguments.iter().zip(parameters.by_ref()) {
            values.push(self.argument(given.dot, parameter, argument)?.value);
        }
        if let Some((last, parameter)) = given.last.zip(parameters.next()) {
            values.push(self.fit(last, parameter)?.value);
        }
        let result = match receiver {
            Value::Pointer(pointer) if !method.of_pointer => {
                Err(Problem::new(methods::of_nil_pointer(pointer.to(), name)))
            }
            _ => Call::new(&values, self.budget).and_then(|call| (method.run)(&call)),
        };
        result.map(Reflected::member).or_else(|problem| {
            self.at(Part::Operand(given.operand));
            self.solve(Err(problem), &format!("error calling {name}: "))
        })
    }
}

/// What follows a chain of names.
struct Given<'d, 't> {
    dot: &'d Reflected,
    /// The whole chain, which errors of a method are about.
    operand: &'t Operand,
    arguments: &'t [Operand],
    last: Option<Reflected>,
}

impl<'d, 't> Given<'d, 't> {
    fn count(&self) -> usize {
        self.arguments
            .len()
            .saturating_add(usize::from(self.last.is_some()))
    }

    /// What follows a name that is not the last of the chain.
    fn nothing(&self) -> Self {
        Self {
            arguments: &[],
            last: None,
            ..*self
        }
    }
}
