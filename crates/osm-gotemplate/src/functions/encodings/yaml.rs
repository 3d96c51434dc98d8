//! YAML as values, with the types that `gopkg.in/yaml.v3` gives to scalars. A timestamp is a text.
//!
//! The values of a document are put together from the parser's events without recursion, so that no document
//! takes stack.

use std::collections::BTreeMap;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, Span, StrInput, Tag};

use super::json::{ENTRY_BYTES, Failure, ITEM_BYTES, too_deep};
use crate::budget::Budget;
use crate::strconv::{parse_float, parse_int, parse_uint};
use crate::value::{List, MAX_NESTING, Map, UintKind, Value};

/// Decodes the first document of a stream.
pub(super) fn decode(text: &str, budget: &dyn Budget) -> Result<Value, Failure> {
    let mut options = Options::default();
    options.emit_unresolved_aliases = true;
    let mut decoder = Decoder {
        parser: Parser::new_from_str_with_options(text, options),
        budget,
        anchors: BTreeMap::new(),
        open: Vec::new(),
    };
    let mut root = Value::Nil;
    while let Some((event, span)) = decoder.next()? {
        if matches!(event, Event::StreamEnd) {
            break;
        }
        if let Some(value) = decoder.event(event, span.start.line())? {
            root = value;
            // What follows the value in the document must be well-formed.
            decoder.next()?;
            break;
        }
    }
    Ok(root)
}

struct Decoder<'a> {
    parser: Parser<'a, StrInput<'a>>,
    budget: &'a dyn Budget,
    /// The values that aliases refer to.
    anchors: BTreeMap<usize, Value>,
    /// The collections around the next event.
    open: Vec<Collection>,
}

/// A list or a map that has not ended.
struct Collection {
    anchor: usize,
    items: Items,
}

enum Items {
    List(Vec<Value>),
    Map {
        entries: BTreeMap<Rc<str>, Value>,
        /// The key whose value comes next.
        key: Option<Key>,
        /// Maps whose entries are added unless the map has the keys.
        merged: Vec<Value>,
    },
}

enum Key {
    Text(Rc<str>),
    /// `<<`
    Merge,
}

fn malformed<T>(line: usize, problem: &str) -> Result<T, Failure> {
    Err(Failure::Malformed(format!("yaml: line {line}: {problem}")))
}

impl<'a> Decoder<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Failure> {
        self.budget.step(1)?;
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok(found)) => Ok(Some(found)),
            Some(Err(error)) => malformed(error.marker().line(), &error.info()),
        }
    }

    /// Takes an event. Returns the value of the document if it is complete.
    fn event(&mut self, event: Event<'a>, line: usize) -> Result<Option<Value>, Failure> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.budget.copy(text.len())?;
                let is_plain = style == ScalarStyle::Plain;
                if self.takes_key() {
                    if anchor != 0 {
                        self.budget.copy(ENTRY_BYTES)?;
                        self.anchors.insert(anchor, text.as_ref().into());
                    }
                    return self.key(&text, is_plain && text == "<<", line).map(|()| None);
                }
                let value = scalar(&short_tag(tag.as_deref()), &text, is_plain, line)?;
                self.complete(anchor, value, line)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.budget.copy(List::bytes(0))?;
                self.start(anchor, Items::List(Vec::new()), line)
            }
            Event::MappingStart(_, anchor, _) => {
                self.budget.copy(Map::bytes(0))?;
                let items = Items::Map {
                    entries: BTreeMap::new(),
                    key: None,
                    merged: Vec::new(),
                };
                self.start(anchor, items, line)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(line),
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some(Value::String(text)) if self.takes_key() => self.key(&text, false, line).map(|()| None),
                Some(value) => self.complete(0, value, line),
                None => malformed(line, "the value of an anchor contains itself"),
            },
            Event::UnresolvedAlias(name) => malformed(line, &format!("unknown anchor '{name}' referenced")),
            _ => Ok(None),
        }
    }

    /// Whether the next node is a key of a map.
    fn takes_key(&self) -> bool {
        let innermost = self.open.last().map(|collection| &collection.items);
        matches!(innermost, Some(Items::Map { key: None, .. }))
    }

    fn key(&mut self, text: &str, is_merge: bool, line: usize) -> Result<(), Failure> {
        let Some(Items::Map { entries, key, .. }) = self.open.last_mut().map(|open| &mut open.items) else {
            return Ok(());
        };
        self.budget.copy(ENTRY_BYTES.saturating_add(text.len()))?;
        if is_merge {
            *key = Some(Key::Merge);
            return Ok(());
        }
        if entries.contains_key(text) {
            return malformed(line, &format!("mapping key {text:?} already defined"));
        }
        *key = Some(Key::Text(text.into()));
        Ok(())
    }

    fn start(&mut self, anchor: usize, items: Items, line: usize) -> Result<Option<Value>, Failure> {
        if self.takes_key() {
            return malformed(line, "a key is a list or a map");
        }
        if self.open.len() >= MAX_NESTING {
            return Err(Failure::Fatal(too_deep()));
        }
        self.open.push(Collection { anchor, items });
        Ok(None)
    }

    fn end(&mut self, line: usize) -> Result<Option<Value>, Failure> {
        let Some(Collection { anchor, items }) = self.open.pop() else {
            return Ok(None);
        };
        let value = match items {
            Items::List(items) => Value::list(items),
            Items::Map {
                mut entries, merged, ..
            } => {
                for source in merged {
                    self.merge(&mut entries, &source, line)?;
                }
                Value::map(entries)
            }
        };
        self.complete(anchor, value, line)
    }

    /// Adds the entries of a map, or of the maps of a list. The first that has a key takes precedence.
    fn merge(
        &self,
        entries: &mut BTreeMap<Rc<str>, Value>,
        source: &Value,
        line: usize,
    ) -> Result<(), Failure> {
        let sources = match source {
            Value::List(list) => list.items(),
            one => std::slice::from_ref(one),
        };
        for source in sources {
            self.budget.step(1)?;
            let Value::Map(map) = source else {
                return malformed(line, "map merge requires map or sequence of maps as the value");
            };
            for (key, value) in map.entries(self.budget)? {
                self.budget.copy(ENTRY_BYTES)?;
                entries.entry(key).or_insert(value);
            }
        }
        Ok(())
    }

    /// Puts a value into the collection around it.
    fn complete(&mut self, anchor: usize, value: Value, line: usize) -> Result<Option<Value>, Failure> {
        if anchor != 0 {
            self.budget.copy(ENTRY_BYTES)?;
            self.anchors.insert(anchor, value.clone());
        }
        let Some(Collection { items, .. }) = self.open.last_mut() else {
            return Ok(Some(value));
        };
        self.budget.copy(ITEM_BYTES)?;
        match items {
            Items::List(items) => items.push(value),
            Items::Map {
                entries, key, merged, ..
            } => match key.take() {
                Some(Key::Text(key)) => _ = entries.insert(key, value),
                Some(Key::Merge) => merged.push(value),
                None => return malformed(line, "a key is a list or a map"),
            },
        }
        Ok(None)
    }
}

fn short_tag(tag: Option<&Tag>) -> String {
    let Some(tag) = tag else { return String::new() };
    let full = format!("{}{}", tag.handle(), tag.suffix());
    match full.strip_prefix("tag:yaml.org,2002:") {
        Some(name) => name.to_owned(),
        None => full,
    }
}

/// A scalar as a value of the type that its tag or its text says.
fn scalar(tag: &str, text: &str, is_plain: bool, line: usize) -> Result<Value, Failure> {
    let value = match tag {
        "" if is_plain => return Ok(plain(text)),
        "null" | "bool" | "int" | "float" => plain(text),
        "binary" => {
            let digits = text.replace(['\r', '\n', ' '], "");
            let bytes = STANDARD.decode(digits).ok();
            return match bytes.and_then(|bytes| String::from_utf8(bytes).ok()) {
                Some(text) => Ok(text.into()),
                None => malformed(line, "a !!binary value is not the base64 of a text"),
            };
        }
        _ => return Ok(text.into()),
    };
    match (tag, value) {
        ("null", value @ Value::Nil)
        | ("bool", value @ Value::Bool(_))
        | ("int", value @ (Value::Int(..) | Value::Uint(..)))
        | ("float", value @ Value::Float(..)) => Ok(value),
        #[allow(clippy::cast_precision_loss)] // As in Go.
        ("float", Value::Int(number, _)) => Ok(Value::float(number as f64)),
        _ => malformed(line, &format!("a value is no !!{tag}")),
    }
}

/// What a plain scalar is: `resolve` of yaml.v3, without timestamps.
fn plain(text: &str) -> Value {
    match text {
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        "" | "~" | "null" | "Null" | "NULL" => Value::Nil,
        ".nan" | ".NaN" | ".NAN" => Value::float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Value::float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Value::float(f64::NEG_INFINITY),
        _ if text.starts_with(['+', '-', '.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']) => {
            let digits = text.replace('_', "");
            let integer = parse_int(&digits).map(Value::int);
            let unsigned = || parse_uint(&digits).map(|number| Value::Uint(number, UintKind::Uint64));
            let float = || parse_float(&digits).map(Value::float);
            integer
                .or_else(unsigned)
                .or_else(float)
                .unwrap_or_else(|| text.into())
        }
        _ => text.into(),
    }
}
