//! Arguments of functions: whether a value fits a parameter, as Go's reflection decides it.

use super::reflected::Reflected;
use super::state::{Executed, State};
use crate::functions::{Parameter, VERSION};
use crate::parse::{Operand, OperandKind, Part};
use crate::value::{IntKind, Map, Pointer, Type, Value};

fn is_named(of: &Type, name: &str) -> bool {
    matches!(of, Type::Named(known, ..) if &**known == name)
}

impl<'t> State<'t> {
    /// The value of an argument, see Go's `evalArg`. Constants get the parameter's type.
    pub(super) fn argument(
        &mut self,
        dot: &Reflected,
        parameter: Parameter,
        operand: &'t Operand,
    ) -> Executed<Reflected> {
        self.at(Part::Operand(operand));
        let value = match &operand.kind {
            OperandKind::Dot => dot.clone(),
            OperandKind::Field(_) | OperandKind::Variable(..) | OperandKind::Chain(..) => {
                self.fields_of(dot, operand, &[], None)?
            }
            OperandKind::Pipeline(pipeline) => self.inner_pipeline(dot, pipeline)?,
            OperandKind::Function(function) => self.call(dot, function, Part::Operand(operand), &[], None)?,
            OperandKind::Nil => match parameter.nil() {
                Some(nil) => return Ok(Reflected::concrete(nil)),
                None => return self.fail(format!("cannot assign nil to {}", parameter.go_type())),
            },
            OperandKind::Bool(_) | OperandKind::Number(_) | OperandKind::String(_) => {
                return self.constant(parameter, operand).map(Reflected::concrete);
            }
        };
        self.fit(value, parameter)
    }

    fn constant(&self, parameter: Parameter, operand: &'t Operand) -> Executed<Value> {
        use OperandKind::{Bool, Number, String};
        use Parameter::{Any, Reflected};
        let value = match (parameter, &operand.kind) {
            (Any | Reflected | Parameter::Bool, Bool(value)) => Some(Value::Bool(*value)),
            (Any | Reflected | Parameter::String, String(literal)) => Some(self.literal(literal)?),
            (Any | Reflected, Number(number)) => Some(self.ideal_number(number)?),
            (Parameter::Int, Number(number)) => number.0.int.map(Value::int),
            _ => None,
        };
        if let Some(value) = value {
            return Ok(value);
        }
        let printed = Part::Operand(operand).print(&self.frame.tree.source);
        let expected = match parameter {
            Parameter::Bool => "bool",
            Parameter::Int => "integer",
            Parameter::String => "string",
            Any | Reflected | Parameter::Map | Parameter::Version => {
                return self.fail(format!(
                    "can't handle {printed} for arg of type {}",
                    parameter.go_type()
                ));
            }
        };
        self.fail(format!("expected {expected}; found {printed}"))
    }

    /// The value as one of the parameter's type, see Go's `validateType`.
    pub(super) fn fit(&self, argument: Reflected, parameter: Parameter) -> Executed<Reflected> {
        if matches!(parameter, Parameter::Any | Parameter::Reflected) {
            return Ok(argument);
        }
        if argument.is_none() {
            return match parameter.nil() {
                Some(nil) => Ok(Reflected::concrete(nil)),
                None => self.fail(format!("invalid value; expected {}", parameter.go_type())),
            };
        }
        if parameter.takes(&argument.value) {
            return Ok(Reflected::concrete(Parameter::without_name(argument.value)));
        }
        if let Value::Pointer(pointer) = argument.value.underlying()
            && parameter.takes_type(pointer.to())
        {
            return match pointer.value() {
                Some(value) => Ok(Reflected::concrete(Parameter::without_name(value.clone()))),
                None => self.fail(format!(
                    "dereference of nil pointer of type {}",
                    parameter.go_type()
                )),
            };
        }
        // Of an interface, the type of the value that it holds.
        let got = argument.value.type_of().unwrap_or(Type::Any);
        self.fail(format!(
            "wrong type for value; expected {}; got {got}",
            parameter.go_type()
        ))
    }
}

impl Parameter {
    /// The value as functions get it.
    fn without_name(value: Value) -> Value {
        match &value {
            Value::Named(_) => value.underlying().clone(),
            _ => value,
        }
    }

    /// Go's name of the type.
    #[must_use]
    pub fn go_type(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::Reflected => "reflect.Value",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::String => "string",
            Self::Map => "map[string]interface {}",
            Self::Version => "*semver.Version",
        }
    }

    /// The type's nil, if it has one.
    fn nil(self) -> Option<Value> {
        Some(match self {
            Self::Any | Self::Reflected => Value::Nil,
            Self::Map => Value::Map(Map::nil(Type::Any)),
            Self::Version => Value::Pointer(Pointer::nil(Type::named(VERSION, Type::Struct))),
            Self::Bool | Self::Int | Self::String => return None,
        })
    }

    /// Whether a value can be assigned to the type. Maps can have a named type, because the parameter's type
    /// has no name. Strings can have one although Go refuses that. Every template that Go accepts still
    /// renders the same.
    fn takes(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Any | Self::Reflected, _)
            | (Self::Bool, Value::Bool(_))
            | (Self::Int, Value::Int(_, IntKind::Int))
            | (Self::String, Value::String(_)) => true,
            (Self::Map, Value::Map(map)) => *map.element() == Type::Any,
            (Self::Version, Value::Pointer(pointer)) => is_named(pointer.to(), VERSION),
            (Self::String | Self::Map, Value::Named(_)) => self.takes(value.underlying()),
            _ => false,
        }
    }

    /// As [`Parameter::takes`], for every value of a type.
    fn takes_type(self, of: &Type) -> bool {
        match (self, of) {
            (Self::Any | Self::Reflected, _)
            | (Self::Bool, Type::Bool)
            | (Self::Int, Type::Int(IntKind::Int))
            | (Self::String, Type::String) => true,
            (Self::Map, Type::Map(element)) => **element == Type::Any,
            (Self::Version, Type::Pointer(to)) => is_named(to, VERSION),
            (Self::String | Self::Map, Type::Named(_, made_of, _)) => self.takes_type(made_of),
            _ => false,
        }
    }
}
