//! What a type with a name has that the type it is made of lacks: methods, and how encoders write its values.

use crate::functions::{Call, Parameter};
use crate::problem::Problem;
use crate::value::{Type, Value};

/// What distinguishes a type with a name from the type it is made of.
#[derive(Debug)]
pub struct Behavior {
    pub methods: &'static [Method],
    /// Whether the methods are those of an embedded field.
    pub embeds: bool,
    pub encoded: Encoded,
}

/// How encoders write a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoded {
    /// As the value that it is made of.
    AsValue,
    AsText,
    /// As its text, except in JSON.
    AsTextExceptInJson,
    /// As its text in JSON alone.
    AsTextInJson,
}

/// A method of a type.
#[derive(Debug)]
pub struct Method {
    pub name: &'static str,
    pub parameters: &'static [Parameter],
    /// Whether only a pointer to a value of the type has the method. The pointer may be nil.
    pub of_pointer: bool,
    /// The receiver is the first argument.
    pub(crate) run: fn(&Call<'_>) -> Result<Value, Problem>,
}

/// A type without methods.
pub static PLAIN: Behavior = Behavior::new(&[], Encoded::AsValue);

/// A type whose only method is `String`.
pub static WITH_TEXT: Behavior = Behavior::new(&[STRING], Encoded::AsValue);

/// How Go's runtime reports that a nil pointer was followed.
pub(crate) const NIL_POINTER: &str = "runtime error: invalid memory address or nil pointer dereference";

/// The method `String`.
pub(crate) const STRING: Method = Method::new("String", &[], |call| {
    Ok(match call.receiver() {
        Value::Named(named) => named.text().cloned().map_or(Value::Nil, Value::String),
        _ => Value::Nil,
    })
});

/// What Go reports when a method of values is called with a nil pointer to a type.
pub(crate) fn of_nil_pointer(of: &Type, method: &str) -> String {
    if of.behavior().embeds {
        return NIL_POINTER.to_owned();
    }
    let of = of.to_string();
    let pointer = of.rsplit('.').next().unwrap_or_default();
    format!("value method {of}.{method} called using nil *{pointer} pointer")
}

impl Behavior {
    #[must_use]
    pub const fn new(methods: &'static [Method], encoded: Encoded) -> Self {
        Self {
            methods,
            embeds: false,
            encoded,
        }
    }

    pub(crate) fn method(&self, name: &str) -> Option<&'static Method> {
        self.methods.iter().find(|method| method.name == name)
    }

    /// Whether values print as a text.
    pub(crate) fn has_text(&self) -> bool {
        self.method(STRING.name).is_some()
    }
}

/// Every type has one behavior.
impl PartialEq for Behavior {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Behavior {}

impl Method {
    /// A method of values, and of pointers that are not nil.
    #[must_use]
    pub const fn new(
        name: &'static str,
        parameters: &'static [Parameter],
        run: fn(&Call<'_>) -> Result<Value, Problem>,
    ) -> Self {
        Self {
            name,
            parameters,
            of_pointer: false,
            run,
        }
    }

    /// A method that only pointers have. For a nil pointer, the receiver is that pointer.
    #[must_use]
    pub const fn of_pointer(
        name: &'static str,
        parameters: &'static [Parameter],
        run: fn(&Call<'_>) -> Result<Value, Problem>,
    ) -> Self {
        Self {
            of_pointer: true,
            ..Self::new(name, parameters, run)
        }
    }
}
