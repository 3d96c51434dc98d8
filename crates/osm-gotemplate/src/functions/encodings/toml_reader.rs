//! TOML as values of the types that `github.com/BurntSushi/toml` gives them. The texts of errors are those of the crate `toml`.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::text::{Failure, visit};
use super::timestamps;
use crate::budget::Budget;
use crate::value::{COUNTS, List, Map, Type, Value};

/// Decodes a TOML document, which is a map.
pub(super) fn decode(text: &str, budget: &dyn Budget) -> Result<Value, Failure> {
    budget.copy(bytes_of_tree(text))?;
    match DeTable::parse(text) {
        Ok(table) => Reader { text, budget }.map(table.get_ref(), 0),
        Err(error) => {
            let before = error
                .span()
                .and_then(|span| text.get(..span.start))
                .unwrap_or_default();
            let line = before.matches('\n').count().saturating_add(1);
            Err(Failure::reported(format!(
                "toml: line {line}: {}",
                error.message()
            )))
        }
    }
}

/// Most bytes that the tree of a document takes, before it is parsed.
fn bytes_of_tree(text: &str) -> usize {
    /// A table has an entry for each key, and for each part of a key or of a header. Each may be the only entry of its table.
    const TABLE: usize =
        12 * (size_of::<(Spanned<DeString<'_>>, Spanned<DeValue<'_>>)>() + size_of::<usize>());
    /// A vector that grows has room for twice as many values.
    const VALUE: usize = 2 * size_of::<Spanned<DeValue<'_>>>();
    let bytes = text.bytes().map(|byte| match byte {
        b'=' | b'.' | b'[' => TABLE,
        b',' => VALUE,
        _ => 0,
    });
    // The parser finds the parts of the text before it makes a tree of them.
    bytes.fold(
        text.len().saturating_mul(size_of::<toml::Value>()) / 4,
        usize::saturating_add,
    )
}

struct Reader<'a> {
    text: &'a str,
    budget: &'a dyn Budget,
}

impl Reader<'_> {
    fn map(&self, table: &DeTable<'_>, depth: usize) -> Result<Value, Failure> {
        self.budget.copy(Map::bytes(table.len()))?;
        let mut entries = BTreeMap::new();
        for (key, entry) in table.iter() {
            let key: &str = key.get_ref();
            self.budget.copy(key.len().saturating_add(COUNTS))?;
            entries.insert(key.into(), self.value(entry.get_ref(), depth.saturating_add(1))?);
        }
        Ok(Value::map(entries))
    }

    fn value(&self, value: &DeValue<'_>, depth: usize) -> Result<Value, Failure> {
        visit(self.budget, depth)?;
        let out_of_range = |number: &str| Failure::reported(format!("toml: {number} is out of range"));
        Ok(match value {
            DeValue::String(text) => {
                self.budget.copy(text.len())?;
                text.as_ref().into()
            }
            DeValue::Integer(number) => {
                let parsed = i64::from_str_radix(number.as_str(), number.radix());
                Value::int64(parsed.map_err(|_| out_of_range(number.as_str()))?)
            }
            DeValue::Float(number) => {
                let parsed = number.as_str().parse();
                Value::float(parsed.map_err(|_| out_of_range(number.as_str()))?)
            }
            DeValue::Boolean(truth) => (*truth).into(),
            DeValue::Datetime(time) => datetime(&time.to_string()),
            DeValue::Array(items) => self.array(items, depth)?,
            DeValue::Table(table) => self.map(table, depth)?,
        })
    }

    fn array(&self, items: &DeArray<'_>, depth: usize) -> Result<Value, Failure> {
        // Only the tables of headers with two brackets have a type of their own.
        let is_inline = |item: &Spanned<DeValue<'_>>| {
            self.text
                .get(item.span())
                .is_some_and(|text| text.starts_with('{'))
        };
        let only_tables = !items.is_empty()
            && items
                .iter()
                .all(|item| item.get_ref().is_table() && !is_inline(item));
        let element = if only_tables {
            Type::Map(Type::Any.into())
        } else {
            Type::Any
        };
        self.budget.copy(List::bytes(items.len()))?;
        let mut values = Vec::with_capacity(items.len());
        for item in items.iter() {
            values.push(self.value(item.get_ref(), depth.saturating_add(1))?);
        }
        Ok(Value::List(List::new(element, values)))
    }
}

/// A time, of which Go's type always has a date and a zone.
fn datetime(text: &str) -> Value {
    let text = text.replace(' ', "T").to_uppercase();
    let (date, time) = text.split_once('T').unwrap_or(match text.contains(':') {
        true => ("0000-01-01", &text),
        false => (&text, "00:00:00"),
    });
    // Local times are in UTC.
    let zone = if time.contains(['Z', '+', '-']) { "" } else { "Z" };
    timestamps::time(&format!("{date}T{time}{zone}")).unwrap_or_else(|| text.as_str().into())
}
