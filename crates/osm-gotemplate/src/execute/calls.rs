//! Calls of functions.

use super::reflected::Reflected;
use super::state::{Executed, State};
use crate::functions::{Call, Function, Parameter};
use crate::parse::{Operand, Part};
use crate::value::Value;

impl<'t> State<'t> {
    /// Calls a function, see Go's `evalCall`. A problem of the function is about `part`. `last` is its last
    /// argument, if that comes from a pipeline.
    pub(super) fn call(
        &mut self,
        dot: &Reflected,
        function: &'static Function,
        part: Part<'t>,
        arguments: &'t [Operand],
        last: Option<Reflected>,
    ) -> Executed<Reflected> {
        self.check_count(function, arguments.len(), last.is_some())?;
        if matches!(function.name, "and" | "or") {
            return self.and_or(dot, function.name == "or", arguments, last);
        }
        let mut values = Vec::with_capacity(arguments.len().saturating_add(1));
        for (index, argument) in arguments.iter().enumerate() {
            let value = self.argument(dot, parameter(function, index), argument)?;
            values.push(self.given(function, part, value)?);
        }
        if let Some(last) = last {
            let value = self.fit(last, parameter(function, arguments.len()))?;
            values.push(self.given(function, part, value)?);
        }
        if function.name == "call" {
            return self.call_value(part, &values, arguments);
        }
        match Call::new(&values, self.budget).and_then(|call| (function.run)(&call)) {
            Ok(value) => Ok(Reflected::result(value, function.returns)),
            Err(problem) => {
                self.at(part);
                self.solve(Err(problem), &format!("error calling {}: ", function.name))
            }
        }
    }

    fn check_count(&self, function: &Function, given: usize, piped: bool) -> Executed<()> {
        let (name, fixed) = (function.name, function.parameters.len());
        let all = given.saturating_add(usize::from(piped));
        if function.variadic.is_some() {
            if all < fixed {
                return self.fail(format!(
                    "wrong number of args for {name}: want at least {fixed} got {given}"
                ));
            }
        } else if all != fixed {
            return self.fail(format!("wrong number of args for {name}: want {fixed} got {all}"));
        }
        Ok(())
    }

    /// An argument as the function gets it. Only `len` sees whether nil is an interface.
    fn given(&mut self, function: &Function, part: Part<'t>, value: Reflected) -> Executed<Value> {
        if value.is_nil_interface() && function.name == "len" {
            self.at(part);
            return self.fail("error calling len: len of nil pointer");
        }
        Ok(value.value)
    }

    /// `and` and `or` evaluate their arguments up to the one that decides.
    fn and_or(
        &mut self,
        dot: &Reflected,
        is_or: bool,
        arguments: &'t [Operand],
        last: Option<Reflected>,
    ) -> Executed<Reflected> {
        let mut value = Reflected::NONE;
        for argument in arguments {
            value = self.argument(dot, Parameter::Reflected, argument)?;
            if value.value.is_true() == is_or {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }

    /// `call` calls a function that the data holds. Values are never functions, so it fails as Go does for
    /// other values.
    fn call_value(
        &mut self,
        part: Part<'t>,
        values: &[Value],
        arguments: &'t [Operand],
    ) -> Executed<Reflected> {
        self.at(part);
        let callee = values.first().unwrap_or(&Value::Nil);
        let Some(callee_type) = callee.type_of() else {
            return self.fail("error calling call: call of nil");
        };
        let name = match (arguments.first(), callee.underlying()) {
            (Some(first), _) => Part::Operand(first).print(&self.frame.tree.source),
            (None, Value::String(text)) => text.to_string(),
            (None, _) => format!("<{callee_type} Value>"),
        };
        self.fail(format!(
            "error calling call: non-function {name} of type {callee_type}"
        ))
    }
}

fn parameter(function: &Function, index: usize) -> Parameter {
    let parameter = function.parameters.get(index).copied();
    parameter.or(function.variadic).unwrap_or(Parameter::Any)
}
