//! Late-bound values: credentials and names that are known only when user data is published.
//!
//! A template places a marker, `%%osm-late{<id>,<encoding>}%%`. When the document is written, the value in
//! that encoding replaces the marker. Markers must be intact after rendering, so a function that would change
//! one is an error.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use osm_api::config::{LateBound, LateBoundKind, LateBoundSource};
use osm_api::content::Content;
use osm_api::profile::MAX_CONTENT_BYTES;
use serde_json::Value;

use crate::error::UserDataError;
use crate::yaml;

/// Start of the marker of a late-bound value. An input with it could pass for a marker, so it is refused.
pub const RESERVED_PREFIX: &str = "%%osm-late{";

const SUFFIX: &str = "}%%";

/// Start of the ids of values of Secrets that profiles name: `secret/<namespace>/<name>/<key>`.
pub const SECRET_PREFIX: &str = "secret/";

pub type LateValues = BTreeMap<String, String>;

/// How a value is written in the place of its marker. All but `Raw` and `B64` include their quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::Display, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum Encoding {
    Raw,
    Toml,
    Yaml,
    Json,
    Shell,
    B64,
    /// Unchanged, in a tree whose writer quotes. Templates can't use it, because their output is not quoted
    /// again.
    Text,
}

impl Encoding {
    /// One that templates may ask for.
    pub fn of_template(name: &str) -> Option<Self> {
        name.parse().ok().filter(|encoding| *encoding != Self::Text)
    }

    /// A mask in the place of a value: with the quotes of the encoding, and readable in every one.
    fn describe(self, mask: &str) -> String {
        match self {
            Self::Raw | Self::B64 | Self::Text => mask.to_owned(),
            Self::Toml | Self::Yaml | Self::Json | Self::Shell => {
                self.encode(mask).unwrap_or_else(|| mask.to_owned())
            }
        }
    }

    /// `None` where the value can't be written raw, or in a shell.
    fn encode(self, value: &str) -> Option<String> {
        match self {
            Self::Raw => value
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._~+/=-".contains(c))
                .then(|| value.to_owned()),
            Self::Toml => Some(toml::Value::String(value.to_owned()).to_string()),
            Self::Yaml | Self::Json => Some(yaml::json(&Value::String(value.to_owned()))),
            Self::Shell => shell(value),
            Self::B64 => Some(STANDARD.encode(value)),
            Self::Text => Some(value.to_owned()),
        }
    }
}

/// A value of this kind that is the entry `key` of an object.
pub fn of_object(id: &str, kind: LateBoundKind, [namespace, name, key]: [&str; 3]) -> LateBound {
    LateBound {
        id: id.to_owned(),
        kind,
        source: Some(LateBoundSource {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            key: key.to_owned(),
        }),
    }
}

/// `text` as one word of a POSIX shell; `None` where it has a NUL, which shells leave out or end at.
pub fn shell(text: &str) -> Option<String> {
    (!text.contains('\0')).then(|| in_single_quotes(text))
}

/// `text` as one word of a POSIX shell, which must not have a NUL.
pub fn in_single_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marker {
    pub id: String,
    pub encoding: Encoding,
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{RESERVED_PREFIX}{},{}{SUFFIX}", self.id, self.encoding)
    }
}

impl Marker {
    /// Reads a marker at the start of `text`, with its length.
    fn read(text: &str) -> Option<(Self, usize)> {
        let body = text.strip_prefix(RESERVED_PREFIX)?;
        let (inner, _) = body.split_once(SUFFIX)?;
        let (id, encoding) = inner.split_once(',')?;
        let encoding = encoding.parse().ok()?;
        let known = |c: char| c.is_ascii_alphanumeric() || "._:/-[]".contains(c);
        let good = !id.is_empty() && id.chars().all(known);
        good.then(|| {
            (
                Self {
                    id: id.to_owned(),
                    encoding,
                },
                RESERVED_PREFIX.len() + inner.len() + SUFFIX.len(),
            )
        })
    }
}

/// A marker that was cut or changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Damaged;

/// A text, cut at its markers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Text(&'a str),
    Marker(Marker),
}

/// Cuts `text` at its markers.
pub(crate) fn parts(text: &str) -> Result<Vec<Part<'_>>, Damaged> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, _)) = rest.split_once(RESERVED_PREFIX) {
        let at = rest.get(before.len()..).unwrap_or_default();
        let (marker, length) = Marker::read(at).ok_or(Damaged)?;
        parts.push(Part::Text(before));
        parts.push(Part::Marker(marker));
        rest = at.get(length..).unwrap_or_default();
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

/// The markers of `text`, once for each time that they occur.
pub fn markers(text: &str) -> Result<Vec<Marker>, Damaged> {
    let markers = parts(text)?.into_iter().filter_map(|part| match part {
        Part::Marker(marker) => Some(marker),
        Part::Text(_) => None,
    });
    Ok(markers.collect())
}

/// What replaces markers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Filling<'a> {
    /// Values, in the encoding that each marker names.
    Values(&'a LateValues),
    /// Masks in the places of the values, for people.
    Masks(&'a LateValues),
}

impl Filling<'_> {
    fn write(self, Marker { id, encoding }: Marker) -> Result<String, UserDataError> {
        let (Self::Values(texts) | Self::Masks(texts)) = self;
        let Some(text) = texts.get(&id) else {
            return Err(UserDataError::MissingValue(id));
        };
        if let Self::Masks(_) = self {
            return Ok(encoding.describe(text));
        }
        encoding.encode(text).ok_or(match encoding {
            Encoding::Shell => UserDataError::Nul(id),
            _ => UserDataError::NotRaw(id),
        })
    }
}

/// Bytes that a filled stage may have: eight times the largest content. There is room for the largest values
/// of hundreds of registries, which are assumed until the real ones are known.
pub(crate) const MAX_FILLED_BYTES: usize = 8 * MAX_CONTENT_BYTES;

/// The bytes that a stage may still be filled with. A content that another client has written may have many
/// markers of large values.
pub(crate) struct Room(Cell<usize>);

impl Default for Room {
    fn default() -> Self {
        Self(Cell::new(MAX_FILLED_BYTES))
    }
}

impl Room {
    fn take(&self, text: &str, place: &dyn fmt::Display) -> Result<(), UserDataError> {
        let left = self.0.get().checked_sub(text.len());
        self.0.set(left.ok_or_else(|| UserDataError::FilledTooLarge {
            place: place.to_string(),
            limit: MAX_FILLED_BYTES,
        })?);
        Ok(())
    }
}

/// Fills the markers of `text`; `place` names the text in errors.
pub(crate) fn fill(
    text: &str,
    place: &dyn fmt::Display,
    declared: &[LateBound],
    filling: Filling<'_>,
    room: &Room,
) -> Result<String, UserDataError> {
    let unknown = || UserDataError::LateBoundValueUnknown {
        place: place.to_string(),
    };
    let mut filled = String::with_capacity(text.len());
    for part in parts(text).map_err(|Damaged| unknown())? {
        match part {
            Part::Text(text) => {
                room.take(text, place)?;
                filled.push_str(text);
            }
            Part::Marker(marker) => {
                if !declared.iter().any(|late| late.id == marker.id) {
                    return Err(unknown());
                }
                let value = filling.write(marker)?;
                room.take(&value, place)?;
                filled.push_str(&value);
            }
        }
    }
    Ok(filled)
}

/// The first text in `value`, keys included, that contains the reserved prefix, as a path.
pub fn find_reserved(value: &Value) -> Option<String> {
    find(value, &|text| text.contains(RESERVED_PREFIX))
}

/// The first text in `value`, keys included, that `is` so, as a path.
pub fn find(value: &Value, is: &impl Fn(&str) -> bool) -> Option<String> {
    match value {
        Value::String(text) => is(text).then(String::new),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(i, item)| find(item, is).map(|path| format!("[{i}]{}", dotted(&path)))),
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            if is(key) {
                return Some("a key".to_owned());
            }
            find(value, is).map(|path| format!("{key}{}", dotted(&path)))
        }),
        _ => None,
    }
}

fn dotted(path: &str) -> String {
    if path.is_empty() || path.starts_with('[') {
        path.to_owned()
    } else {
        format!(".{path}")
    }
}

/// A text for each value of `declared`.
fn texts(declared: &[LateBound], text: impl Fn(&LateBound) -> String) -> LateValues {
    declared
        .iter()
        .map(|late| (late.id.clone(), text(late)))
        .collect()
}

/// Readable stand-ins for late-bound values, for previews. Never use them for a machine.
pub fn placeholders(spec: &Content) -> LateValues {
    texts(&spec.late_bound_values, |late| {
        late.id.replace([':', '[', ']'], "-")
    })
}

/// What [`crate::masked_machine_stage`] shows in the places of late-bound values, by their ids, such as
/// `<registry/docker.io/password>`. Each begins with `<` and ends with `>`.
pub fn masks(spec: &Content) -> LateValues {
    texts(&spec.late_bound_values, |late| format!("<{}>", late.id))
}

/// Values as large as they get, which no compression makes smaller.
pub fn largest(declared: &[LateBound]) -> LateValues {
    let size = |kind| match kind {
        LateBoundKind::APIToken | LateBoundKind::KubeletToken => 1536,
        LateBoundKind::ProvisioningSecretName
        | LateBoundKind::ProvisioningKey
        | LateBoundKind::ProvisioningDigest
        | LateBoundKind::PoolID
        | LateBoundKind::ContentID
        | LateBoundKind::KubeconfigSecretName => 64,
        LateBoundKind::RegistryUsername => 256,
        _ => 4096,
    };
    texts(declared, |late| filler(&late.id, size(late.kind)))
}

/// `length` characters of base64url that look random and depend on `seed` alone.
pub fn filler(seed: &str, length: usize) -> String {
    let mut text = String::new();
    for i in 0.. {
        if text.len() >= length {
            break;
        }
        let bytes = osm_api::digest::sha256(format!("{seed}{i}").as_bytes());
        text.push_str(&base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes));
    }
    text.truncate(length);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A content that another client has written may repeat a marker thousands of times.
    #[test]
    fn a_stage_is_filled_up_to_a_bound_that_all_its_texts_share() {
        let declared = [LateBound {
            id: "a".into(),
            kind: LateBoundKind::SecretKey,
            source: None,
        }];
        let values = LateValues::from([("a".to_owned(), "x".repeat(1000))]);
        let room = Room::default();
        let fill = |text: &str| fill(text, &"/etc/a", &declared, Filling::Values(&values), &room);
        let marker = "%%osm-late{a,raw}%%";
        let fits = MAX_FILLED_BYTES / 1000;
        for _ in 0..4 {
            assert!(fill(&marker.repeat(fits / 4)).is_ok());
        }
        let refused = fill(&marker.repeat(3)).unwrap_err();
        assert!(matches!(&refused, UserDataError::FilledTooLarge { place, .. } if place == "/etc/a"));
        assert_eq!(refused.reason(), "UserDataTooLarge");
        assert!(!refused.to_string().contains("xx"), "{refused}");
    }
}
