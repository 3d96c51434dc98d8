//! JSON as values.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::budget::{Budget, Exhausted};
use crate::problem::Problem;
use crate::value::{COUNTS, List, MAX_NESTING, Map, Value};

/// Most bytes that an item of a list takes: a vector has room for twice as many as it holds.
pub(super) const ITEM_BYTES: usize = 2 * size_of::<Value>();

/// Most bytes that an entry of a map takes.
pub(super) const ENTRY_BYTES: usize = Map::ENTRY_BYTES + COUNTS;

/// Why a text can't be decoded.
pub(super) enum Failure {
    /// The text is not of the format. The result reports it.
    Malformed(String),
    Fatal(Problem),
}

impl From<Exhausted> for Failure {
    fn from(exhausted: Exhausted) -> Self {
        Self::Fatal(exhausted.into())
    }
}

/// A text that is nested too deeply.
pub(super) fn too_deep() -> Problem {
    Problem::new(format!("the text is nested deeper than {MAX_NESTING} levels"))
}

/// Decodes JSON. All numbers are a `float64`.
pub(super) fn decode(text: &str, budget: &dyn Budget) -> Result<Value, Failure> {
    let fatal = Cell::new(None);
    let reader = Reader {
        budget,
        depth: 0,
        fatal: &fatal,
    };
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = reader.deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    match fatal.take() {
        Some(problem) => Err(Failure::Fatal(problem)),
        None => value.map_err(|error| Failure::Malformed(format!("json: {error}"))),
    }
}

/// Reads one value, and charges it.
#[derive(Clone, Copy)]
struct Reader<'a> {
    budget: &'a dyn Budget,
    depth: usize,
    /// A problem of this crate, which the error of the format's reader stands for.
    fatal: &'a Cell<Option<Problem>>,
}

impl Reader<'_> {
    fn charge<E: Error>(&self, charged: Result<(), Exhausted>) -> Result<(), E> {
        charged.map_err(|exhausted| {
            let error = E::custom(&exhausted);
            self.fatal.set(Some(exhausted.into()));
            error
        })
    }

    fn below<E: Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_NESTING {
            self.fatal.set(Some(too_deep()));
            return Err(E::custom(too_deep()));
        }
        let depth = self.depth.saturating_add(1);
        Ok(Self { depth, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.charge(self.budget.step(1))?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Nil)
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    #[allow(clippy::cast_precision_loss)] // As in Go.
    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(Value::float(number as f64))
    }

    #[allow(clippy::cast_precision_loss)] // As in Go.
    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(Value::float(number as f64))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(Value::float(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.charge(self.budget.copy(text.len()))?;
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        self.charge(self.budget.copy(List::bytes(0)))?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(below)? {
            self.charge(self.budget.copy(ITEM_BYTES))?;
            list.push(item);
        }
        Ok(Value::list(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        self.charge(self.budget.copy(Map::bytes(0)))?;
        let mut map: BTreeMap<Rc<str>, Value> = BTreeMap::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.charge(self.budget.copy(ENTRY_BYTES.saturating_add(key.len())))?;
            let value = entries.next_value_seed(below)?;
            map.insert(key.into(), value);
        }
        Ok(Value::map(map))
    }
}
