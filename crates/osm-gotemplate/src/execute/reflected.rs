//! Values as the executor holds them, which is what Go's `reflect.Value` knows.

use crate::value::{Type, Value};

/// A value, and whether an interface holds it, as for an element of `[]interface {}`. In an interface,
/// [`Value::Nil`] is a nil interface. Elsewhere it is no value at all.
#[derive(Clone, Debug)]
pub(super) struct Reflected {
    pub(super) value: Value,
    pub(super) is_interface: bool,
}

impl Reflected {
    /// No value at all, e.g. of a key that a map does not have.
    pub(super) const NONE: Self = Self {
        value: Value::Nil,
        is_interface: false,
    };

    /// A value that no interface holds.
    pub(super) fn concrete(value: Value) -> Self {
        Self {
            value,
            is_interface: false,
        }
    }

    /// A value of a list or map with elements of a type.
    pub(super) fn element(value: Value, of: &Type) -> Self {
        let is_interface = matches!(of, Type::Any);
        Self { value, is_interface }
    }

    /// A value of a struct's field or a method's result. Whether that is an interface is only known for nil.
    pub(super) fn member(value: Value) -> Self {
        let is_interface = matches!(value, Value::Nil);
        Self { value, is_interface }
    }

    /// A value that a function returns, whose result has a type of Go.
    pub(super) fn result(value: Value, returns: &str) -> Self {
        let is_interface = returns == "interface {}" && !matches!(value, Value::Nil);
        Self { value, is_interface }
    }

    /// Whether there is no value.
    pub(super) fn is_none(&self) -> bool {
        matches!(self.value, Value::Nil) && !self.is_interface
    }

    pub(super) fn is_nil_interface(&self) -> bool {
        matches!(self.value, Value::Nil) && self.is_interface
    }

    /// The type, as `%s` prints it.
    pub(super) fn type_name(&self) -> String {
        if self.is_interface {
            return Type::Any.to_string();
        }
        self.value.type_of().unwrap_or(Type::Any).to_string()
    }
}

/// Follows pointers, see Go's `indirect`. Returns the value at their end, which is a nil pointer or
/// [`Value::Nil`] if one is nil.
pub(super) fn indirect(value: &Value) -> &Value {
    let mut value = value;
    while let Value::Pointer(pointer) = value.underlying() {
        match pointer.value() {
            Some(target) => value = target,
            None => break,
        }
    }
    value
}
