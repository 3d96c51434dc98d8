//! Pipelines, commands and constants.

use std::rc::Rc;

use super::reflected::Reflected;
use super::state::{Executed, State};
use crate::parse::{Command, Literal, Number, Operand, OperandKind, Part, Pipeline};
use crate::value::Value;

impl<'t> State<'t> {
    /// The value of a pipeline. Declares or sets its variables, which callers forget when their block ends.
    pub(super) fn pipeline(&mut self, dot: &Reflected, pipeline: &'t Pipeline) -> Executed<Reflected> {
        self.at(Part::Pipeline(pipeline));
        let mut last = None;
        for command in &pipeline.commands {
            self.step()?;
            let value = self.command(dot, command, last)?.value;
            last = Some(Reflected::concrete(value));
        }
        let value = last.unwrap_or(Reflected::NONE);
        for variable in &pipeline.variables {
            if pipeline.assigns {
                self.set(variable, value.clone())?;
            } else {
                self.declare(variable, value.clone());
            }
        }
        Ok(value)
    }

    /// A pipeline in parentheses.
    pub(super) fn inner_pipeline(&mut self, dot: &Reflected, pipeline: &'t Pipeline) -> Executed<Reflected> {
        self.enter()?;
        let value = self.pipeline(dot, pipeline)?;
        self.leave();
        Ok(value)
    }

    /// The value of a command. `last` is the value of the command before it in the pipeline.
    fn command(
        &mut self,
        dot: &Reflected,
        command: &'t Command,
        last: Option<Reflected>,
    ) -> Executed<Reflected> {
        let Some((first, arguments)) = command.operands.split_first() else {
            return Ok(Reflected::NONE); // The parser makes no empty commands.
        };
        match &first.kind {
            OperandKind::Function(function) => {
                self.at(Part::Operand(first));
                return self.call(dot, function, Part::Command(command), arguments, last);
            }
            OperandKind::Field(_) | OperandKind::Chain(..) | OperandKind::Variable(..) => {
                return self.fields_of(dot, first, arguments, last);
            }
            OperandKind::Pipeline(pipeline) => {
                self.refuse_arguments(first, arguments, last.is_some())?;
                return self.inner_pipeline(dot, pipeline);
            }
            _ => {}
        }
        self.at(Part::Operand(first));
        self.refuse_arguments(first, arguments, last.is_some())?;
        match &first.kind {
            OperandKind::Dot => Ok(dot.clone()),
            OperandKind::Bool(value) => Ok(Reflected::concrete(Value::Bool(*value))),
            OperandKind::Number(number) => self.ideal_number(number).map(Reflected::concrete),
            OperandKind::String(literal) => self.literal(literal).map(Reflected::concrete),
            _ => self.fail("nil is not a command"),
        }
    }

    /// Refuses arguments of something that is not called.
    pub(super) fn refuse_arguments(
        &self,
        first: &'t Operand,
        arguments: &'t [Operand],
        piped: bool,
    ) -> Executed<()> {
        if arguments.is_empty() && !piped {
            return Ok(());
        }
        let printed = Part::Operand(first).print(&self.frame.tree.source);
        self.fail(format!("can't give argument to non-function {printed}"))
    }

    pub(super) fn literal(&self, literal: &'t Literal) -> Executed<Value> {
        self.charge(self.budget.copy(literal.text.len()))?;
        Ok(Value::String(Rc::from(&*literal.text)))
    }

    /// A number where nothing asks for a type: its syntax decides, see Go's `idealConstant`.
    pub(super) fn ideal_number(&self, number: &(Number, Box<str>)) -> Executed<Value> {
        let (number, text) = number;
        let is_hexadecimal = text
            .get(..2)
            .is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"));
        let is_float = text.contains(['.', 'e', 'E']) && !is_hexadecimal && !text.starts_with('\'');
        Ok(match (number.float, number.int) {
            (Some(float), _) if is_float => Value::float(float),
            (_, Some(int)) => Value::int(int),
            _ => return self.fail(format!("{text} overflows int")),
        })
    }
}
