//! Values as JSON, YAML and TOML.

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::{Map, Number, Value as Json};
use serde_saphyr::DoubleQuoted;

use crate::budget::Budget;
use crate::methods::Encoded;
use crate::problem::Problem;
use crate::value::{FloatKind, MAX_NESTING, Struct, Value};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Yaml,
    Toml,
}

/// Encodes a value.
pub(super) fn encode(value: &Value, format: Format, budget: &dyn Budget) -> Result<String, Problem> {
    let data = Converter { format, budget }.data(value, 0)?;
    match format {
        Format::Json => serde_json::to_string(&data).map_err(|error| failed(&error)),
        Format::Yaml => {
            let mut text = serde_saphyr::to_string(&Yaml(&data)).map_err(|error| failed(&error))?;
            text.truncate(text.trim_end_matches('\n').len());
            Ok(text)
        }
        Format::Toml if data.is_object() => toml::to_string(&data).map_err(|error| failed(&error)),
        Format::Toml => Err(Problem::new("only a map can be encoded as TOML")),
    }
}

fn failed(error: &dyn std::fmt::Display) -> Problem {
    Problem::new(format!("the value can't be encoded: {error}"))
}

/// Makes the data that a serializer gets. Its size is charged, and with it that of the text.
struct Converter<'a> {
    format: Format,
    budget: &'a dyn Budget,
}

impl Converter<'_> {
    fn data(&self, value: &Value, depth: usize) -> Result<Json, Problem> {
        self.budget.step(1)?;
        // A line of a YAML document is indented.
        self.budget
            .copy((size_of::<Json>() + size_of::<usize>()).saturating_add(depth.saturating_mul(4)))?;
        if depth > MAX_NESTING {
            return Err(Problem::new(format!(
                "the value is nested deeper than {MAX_NESTING} levels"
            )));
        }
        let depth = depth.saturating_add(1);
        Ok(match value {
            Value::Nil => Json::Null,
            Value::Bool(truth) => (*truth).into(),
            Value::Int(number, _) => (*number).into(),
            Value::Uint(number, _) => (*number).into(),
            Value::Float(number, kind) => self.float(*number, *kind)?,
            Value::String(text) => self.text(text)?.into(),
            Value::List(list) if list.is_nil() && self.format != Format::Yaml => Json::Null,
            Value::List(list) => {
                let items = list.items().iter().map(|item| self.data(item, depth));
                Json::Array(items.collect::<Result<_, _>>()?)
            }
            Value::Map(map) if map.is_nil() && self.format != Format::Yaml => Json::Null,
            Value::Map(map) => {
                let entries = map.entries(self.budget)?;
                self.object(entries.iter().map(|(key, item)| (self.text(key), item)), depth)?
            }
            Value::Struct(fields) => {
                let fields = fields.fields().iter();
                let exported = fields.filter(|(name, _)| Struct::is_exported(name));
                let named = exported.map(|(name, field)| match self.format {
                    Format::Yaml => (Ok(name.to_lowercase()), field),
                    _ => (self.text(name), field),
                });
                self.object(named, depth)?
            }
            Value::Pointer(pointer) => match pointer.value() {
                Some(target) => self.data(target, depth)?,
                None => Json::Null,
            },
            Value::Named(named) => {
                let has_text = match named.behavior().encoded {
                    Encoded::AsText => true,
                    Encoded::AsTextInJson => self.format == Format::Json,
                    Encoded::AsTextExceptInJson => self.format != Format::Json,
                    Encoded::AsValue => false,
                };
                match named.text().filter(|_| has_text) {
                    // An address without bytes is encoded as no text, but printed as <nil>.
                    Some(text) if &**text == "<nil>" => "".into(),
                    Some(text) => self.text(text)?.into(),
                    None => self.data(named.value(), depth)?,
                }
            }
        })
    }

    /// Charges a text, which escapes can make longer.
    fn text(&self, text: &str) -> Result<String, Problem> {
        self.budget.copy(text.len().saturating_mul(8))?;
        Ok(text.to_owned())
    }

    fn object<'v>(
        &self,
        entries: impl Iterator<Item = (Result<String, Problem>, &'v Value)>,
        depth: usize,
    ) -> Result<Json, Problem> {
        let mut object = Map::new();
        for (key, item) in entries {
            let item = self.data(item, depth)?;
            // TOML has no null.
            if self.format != Format::Toml || !item.is_null() {
                object.insert(key?, item);
            }
        }
        Ok(Json::Object(object))
    }

    #[allow(clippy::cast_possible_truncation)] // The value was an f32, or fits.
    fn float(&self, number: f64, kind: FloatKind) -> Result<Json, Problem> {
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if self.format != Format::Toml && number.trunc() == number && number.abs() < EXACT {
            return Ok((number as i64).into()); // As Go writes it.
        }
        let number = match kind {
            FloatKind::Float64 => number,
            FloatKind::Float32 => (number as f32).to_string().parse().unwrap_or(number),
        };
        let finite = Number::from_f64(number).map(Json::Number);
        finite.ok_or_else(|| Problem::new("only finite numbers can be encoded"))
    }
}

/// Data as YAML. Readers differ: to those of YAML 1.1, `yes`, `12:30` and `1_000` are no texts. So every text
/// is quoted unless it consists of harmless characters.
struct Yaml<'a>(&'a Json);

impl Serialize for Yaml<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Json::String(text) => Text(text).serialize(serializer),
            Json::Array(items) => {
                let mut list = serializer.serialize_seq(Some(items.len()))?;
                for item in items {
                    list.serialize_element(&Yaml(item))?;
                }
                list.end()
            }
            Json::Object(entries) => {
                let mut map = serializer.serialize_map(Some(entries.len()))?;
                for (key, item) in entries {
                    map.serialize_entry(&Text(key), &Yaml(item))?;
                }
                map.end()
            }
            scalar => scalar.serialize(serializer),
        }
    }
}

struct Text<'a>(&'a str);

impl Text<'_> {
    /// Whether every reader takes the text for a text, without quotes.
    fn is_plain(&self) -> bool {
        const WORDS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
        let is_harmless = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        self.0.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
            && self.0.chars().all(is_harmless)
            && !WORDS.iter().any(|word| self.0.eq_ignore_ascii_case(word))
    }
}

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.is_plain() {
            serializer.serialize_str(self.0)
        } else {
            DoubleQuoted(self.0).serialize(serializer)
        }
    }
}
