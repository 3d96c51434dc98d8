//! The functions that templates can call: Go's, and those of sprig that a profile has a use for.
//!
//! Each group has a file with its table. A row gives the name, the types of parameters, which
//! [`crate::execute`] checks before the call, a sentence, and an example that a test runs.

mod builtin;
mod comparison;
mod constraints;
mod dicts;
mod encodings;
mod hashes;
mod lists;
#[cfg(test)]
mod names;
mod numbers;
mod refused;
mod regular_expressions;
mod strings;
mod table;
mod types;
mod version;
mod version_methods;
mod versions;

use std::collections::HashMap;
use std::sync::LazyLock;

pub use refused::REFUSED;
pub(crate) use version_methods::VERSION;

use crate::budget::{Budget, Exhausted};
pub use crate::problem::Problem;
use crate::value::{List, Map, Value};

/// A function that templates can call.
#[derive(Debug)]
pub struct Function {
    pub name: &'static str,
    /// Types of the parameters that must be given.
    pub parameters: &'static [Parameter],
    /// Type of any number of further arguments.
    pub variadic: Option<Parameter>,
    /// Go's name of the result's type, for people, e.g. `string`.
    pub returns: &'static str,
    /// What it returns: one sentence, e.g. "Returns the text in upper case."
    pub summary: &'static str,
    /// A template and what it renders without data.
    pub example: (&'static str, &'static str),
    pub(crate) run: Run,
}

pub(crate) type Run = fn(&Call<'_>) -> Result<Value, Problem>;

/// The type of a parameter, which decides what an argument may be. As in Go, a pointer to a value of the type
/// is dereferenced, and a value of a named type does not fit a parameter of the type without the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// `interface {}`: every value, as it is.
    Any,
    /// `reflect.Value`: every value; Go's own functions look through names and interfaces.
    Reflected,
    Bool,
    Int,
    String,
    /// `map[string]interface {}`
    Map,
    /// `*semver.Version`
    Version,
}

/// Functions of sprig that templates can't call, for the same reason.
#[derive(Debug)]
pub struct Refused {
    pub names: &'static [&'static str],
    /// Why, and what to do instead, as the end of a sentence that starts with a name: `env reads …; …`.
    pub reason: &'static str,
}

/// The arguments of a call. They have the types of the function's parameters. Those of a method come after
/// its receiver.
pub struct Call<'a> {
    pub(crate) arguments: &'a [Value],
    pub(crate) budget: &'a dyn Budget,
}

impl<'a> Call<'a> {
    /// Charges what every function may do with its arguments: look at each, and once at every byte of those
    /// that are texts. A function that does more, such as to visit the items of a list, charges that itself.
    pub(crate) fn new(arguments: &'a [Value], budget: &'a dyn Budget) -> Result<Self, Problem> {
        budget.step(arguments.len() as u64)?;
        let bytes = arguments.iter().map(|argument| match argument.underlying() {
            Value::String(text) => text.len(),
            _ => 0,
        });
        budget.read(bytes.fold(0, usize::saturating_add))?;
        Ok(Self { arguments, budget })
    }

    /// The value whose method is called.
    #[must_use]
    pub fn receiver(&self) -> &'a Value {
        self.any(0)
    }

    /// The argument at an index, [`Value::Nil`] if it was not given.
    #[must_use]
    pub fn any(&self, index: usize) -> &'a Value {
        self.arguments.get(index).unwrap_or(&Value::Nil)
    }

    /// The arguments from an index on.
    pub(crate) fn rest(&self, index: usize) -> &'a [Value] {
        self.arguments.get(index..).unwrap_or_default()
    }

    /// The text at an index: of a [`Parameter::String`].
    pub(crate) fn text(&self, index: usize) -> &'a str {
        match self.any(index) {
            Value::String(text) => text,
            _ => "",
        }
    }

    /// The number at an index: of a [`Parameter::Int`].
    pub(crate) fn int(&self, index: usize) -> i64 {
        match self.any(index) {
            Value::Int(value, _) => *value,
            _ => 0,
        }
    }

    /// The map at an index: of a [`Parameter::Map`]. None stands for a nil map.
    pub(crate) fn map(&self, index: usize) -> Option<&'a Map> {
        match self.any(index) {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Charges a text that the function has made, and returns it as a value.
    pub(crate) fn made(&self, text: impl Into<String>) -> Result<Value, Problem> {
        let text = text.into();
        self.budget.copy(text.len())?;
        Ok(Value::string(text))
    }

    /// Charges a list that the function has made, and returns it as a value.
    pub(crate) fn made_list(&self, items: Vec<Value>) -> Result<Value, Problem> {
        self.budget.copy(List::bytes(items.len()))?;
        Ok(Value::list(items))
    }
}

/// The text, unless it has more than `most` bytes. As a limit, this is reported although it is about an
/// argument, which may be a secret.
pub(crate) fn at_most<'t>(text: &'t str, most: usize, what: &str) -> Result<&'t str, Problem> {
    if text.len() <= most {
        Ok(text)
    } else {
        Err(Exhausted(format!("{what} has more than {most} bytes; use a shorter one")).into())
    }
}

/// Every function that templates can call, sorted by name within its group.
pub fn all() -> impl Iterator<Item = &'static Function> {
    GROUPS.iter().flat_map(|group| group.iter())
}

/// The function with a name, if templates can call it.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    static BY_NAME: LazyLock<HashMap<&str, &Function>> =
        LazyLock::new(|| all().map(|function| (function.name, function)).collect());
    BY_NAME.get(name).copied()
}

const GROUPS: &[&[Function]] = &[
    builtin::FUNCTIONS,
    builtin::COMPARISONS,
    dicts::FUNCTIONS,
    encodings::FUNCTIONS,
    hashes::FUNCTIONS,
    lists::FUNCTIONS,
    numbers::FUNCTIONS,
    regular_expressions::FUNCTIONS,
    strings::FUNCTIONS,
    types::FUNCTIONS,
    versions::FUNCTIONS,
];
