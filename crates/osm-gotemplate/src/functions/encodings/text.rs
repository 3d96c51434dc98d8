//! The text that an encoder writes, and what encoders have in common.

use crate::budget::{Budget, Exhausted};
use crate::methods::Encoded;
use crate::problem::Problem;
use crate::value::{COUNTS, List, MAX_NESTING, Map};
use crate::value::{Type, UintKind, Value};

/// Why a value can't be encoded or decoded.
pub(super) enum Failure {
    /// An error that Go's encoder returns, which some functions swallow.
    Reported(String),
    /// A problem that no function swallows.
    Fatal(Problem),
}

impl From<Exhausted> for Failure {
    fn from(exhausted: Exhausted) -> Self {
        Self::Fatal(exhausted.into())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Fatal(problem)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Reported(error) => Self::new(error),
            Failure::Fatal(problem) => problem,
        }
    }
}

impl Failure {
    pub(super) fn reported(error: impl Into<String>) -> Self {
        Self::Reported(error.into())
    }
}

/// Text that is charged before it grows.
pub(super) struct Text<'a> {
    out: String,
    pub(super) budget: &'a dyn Budget,
}

impl<'a> Text<'a> {
    pub(super) fn new(budget: &'a dyn Budget) -> Self {
        Self {
            out: String::new(),
            budget,
        }
    }

    pub(super) fn push(&mut self, text: &str) -> Result<(), Exhausted> {
        self.budget.copy(text.len())?;
        self.out.push_str(text);
        Ok(())
    }

    pub(super) fn spaces(&mut self, count: usize) -> Result<(), Exhausted> {
        self.budget.copy(count)?;
        self.out.extend(std::iter::repeat_n(' ', count));
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// Charges one value at a depth.
pub(super) fn visit(budget: &dyn Budget, depth: usize) -> Result<(), Problem> {
    budget.step(1)?;
    if depth > MAX_NESTING {
        return Err(Problem::new(format!(
            "the value is nested deeper than {MAX_NESTING} levels"
        )));
    }
    Ok(())
}

/// Adds an item, and charges the room that a vector makes for it.
pub(super) fn push<T>(items: &mut Vec<T>, item: T, budget: &dyn Budget) -> Result<(), Problem> {
    if items.len() == items.capacity() {
        let room = items.capacity().max(4);
        budget.copy(room.saturating_mul(size_of::<T>()))?;
        items.reserve_exact(room);
    }
    items.push(item);
    Ok(())
}

/// Charges an entry of a map, before it is inserted.
pub(super) fn charge_entry(budget: &dyn Budget) -> Result<(), Problem> {
    Ok(budget.copy(Map::ENTRY_BYTES + COUNTS)?)
}

/// A value as encoders see it: without pointers and names.
pub(super) enum Plain<'v> {
    Value(&'v Value),
    Text(&'v str),
    /// What the type's encoder refuses, and why.
    Invalid(String),
}

/// Removes pointers and names, as an encoder of JSON or another one does.
pub(super) fn plain(value: &Value, is_json: bool) -> Plain<'_> {
    let mut value = value;
    loop {
        match value {
            Value::Pointer(pointer) => match pointer.value() {
                Some(target) => value = target,
                None => return Plain::Value(&Value::Nil),
            },
            Value::Named(named) => {
                match (named.behavior().encoded, named.text()) {
                    (Encoded::AsAddress, Some(text)) => {
                        return match text.strip_prefix('?') {
                            Some(bytes) => Plain::Invalid(format!("address {bytes}: invalid IP address")),
                            // An address without bytes is encoded as no text, but printed as <nil>.
                            None if &**text == "<nil>" => Plain::Text(""),
                            None => Plain::Text(text),
                        };
                    }
                    (Encoded::AsText, Some(text)) => return Plain::Text(text),
                    (Encoded::AsTextExceptInJson, Some(text)) if !is_json => return Plain::Text(text),
                    (Encoded::AsTextInJson, Some(text)) if is_json => return Plain::Text(text),
                    _ => value = named.value(),
                }
            }
            _ => return Plain::Value(value),
        }
    }
}

/// The bytes of a `[]byte`.
pub(super) fn bytes_of(list: &List) -> Option<Vec<u8>> {
    if *list.element() != Type::Uint(UintKind::Uint8) {
        return None;
    }
    let byte = |item: &Value| match item {
        Value::Uint(byte, _) => u8::try_from(*byte).unwrap_or(0),
        _ => 0,
    };
    Some(list.items().iter().map(byte).collect())
}
