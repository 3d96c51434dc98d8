//! YAML as values: `Unmarshal` of `gopkg.in/yaml.v3`, which reads the first document.
//!
//! The syntax is that of YAML 1.2. Scalars have the types that yaml.v3 gives them, and its error texts where the syntax is right.
//! Maps have strings as keys here: a key of another type becomes its text. A merged map never replaces a key that the map has
//! itself, while yaml.v3 does that for keys of other types.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::bases;
use super::text::{Failure, charge_entry, visit};
use super::yaml_nodes::{self, Document, Kind, Node};
use super::yaml_scalars::{Resolved, resolve};
use crate::budget::Budget;
use crate::format;
use crate::problem::Problem;
use crate::value::{List, Map, Type, Value};

/// What the document must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    Any,
    Map,
    /// A key of the outermost map.
    Text,
}

/// A value, and the errors that leave the rest of the value usable.
pub(super) struct Decoded {
    /// None: the document has no value that fits.
    pub(super) value: Option<Value>,
    pub(super) error: Option<String>,
}

/// Decodes the first document of a YAML stream.
pub(super) fn decode(text: &str, budget: &dyn Budget) -> Result<Decoded, Failure> {
    let Document { root, anchors } = yaml_nodes::read(text, budget)?;
    let Some(root) = root else {
        return Ok(Decoded {
            value: None,
            error: None,
        });
    };
    let mut decoder = Decoder {
        budget,
        anchors,
        open: BTreeSet::new(),
        errors: Vec::new(),
        fatal: None,
        decoded: 0,
        aliased: 0,
        alias_depth: 0,
    };
    let value = decoder.node(&root, Target::Map, 0)?;
    let error = match decoder.fatal {
        None if decoder.errors.is_empty() => None,
        None => Some(format!(
            "yaml: unmarshal errors:\n  {}",
            decoder.errors.join("\n  ")
        )),
        fatal => fatal,
    };
    Ok(Decoded { value, error })
}

/// How many pairs of equal keys of a map are reported.
const MOST_DUPLICATES: usize = 1000;

/// Makes values of nodes.
struct Decoder<'a> {
    budget: &'a dyn Budget,
    anchors: BTreeMap<usize, Rc<Node>>,
    /// The anchors that are being expanded.
    open: BTreeSet<usize>,
    errors: Vec<String>,
    /// The error that ended decoding. The entries of the outermost map before it are kept.
    fatal: Option<String>,
    decoded: u64,
    aliased: u64,
    alias_depth: usize,
}

fn is_merge(key: &Node) -> bool {
    matches!(&key.kind, Kind::Scalar { text, is_plain: true } if text == "<<")
        && matches!(key.tag.as_str(), "" | "!!merge")
}

/// How much of a document may come from aliases, in percent: 99 of a small one, 10 of a very large one.
fn allowed_percent(decoded: u64) -> u64 {
    const SMALL: u64 = 400_000;
    const LARGE: u64 = 4_000_000;
    let above = decoded.clamp(SMALL, LARGE).saturating_sub(SMALL);
    99_u64.saturating_sub(above.saturating_mul(89) / (LARGE - SMALL))
}

impl Decoder<'_> {
    fn node(&mut self, node: &Rc<Node>, into: Target, depth: usize) -> Result<Option<Value>, Failure> {
        visit(self.budget, depth)?;
        self.decoded = self.decoded.saturating_add(1);
        self.aliased = self.aliased.saturating_add(u64::from(self.alias_depth > 0));
        let percent = self.aliased.saturating_mul(100);
        if self.aliased > 100
            && self.decoded > 1000
            && percent > allowed_percent(self.decoded).saturating_mul(self.decoded)
        {
            return Err(Failure::reported("yaml: document contains excessive aliasing"));
        }
        match &node.kind {
            Kind::Alias { name, anchor } => {
                let target = self.anchors.get(anchor).cloned();
                let Some(target) = target.filter(|_| self.open.insert(*anchor)) else {
                    return Err(Failure::reported(format!(
                        "yaml: anchor '{name}' value contains itself"
                    )));
                };
                self.alias_depth = self.alias_depth.saturating_add(1);
                let value = self.node(&target, into, depth.saturating_add(1))?;
                self.alias_depth = self.alias_depth.saturating_sub(1);
                self.open.remove(anchor);
                Ok(value)
            }
            Kind::Scalar { text, is_plain } => self.scalar(node, text, *is_plain, into),
            Kind::List(items) => {
                if into != Target::Any {
                    return Ok(self.mismatch(node, "!!seq", "", into));
                }
                self.budget.copy(List::bytes(items.len()))?;
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    values.extend(self.node(item, Target::Any, depth.saturating_add(1))?);
                }
                Ok(Some(Value::list(values)))
            }
            Kind::Map(entries) => {
                if self.has_duplicates(entries)? {
                    return Ok(None);
                }
                if !matches!(into, Target::Any | Target::Map) {
                    return Ok(self.mismatch(node, "!!map", "", into));
                }
                self.budget.copy(Map::bytes(0))?;
                let mut map = BTreeMap::new();
                // Keys of other types are dropped where a map with strings as keys merges them.
                let has_texts = into == Target::Map || has_only_texts(entries)?;
                let keys = if has_texts { Target::Text } else { Target::Any };
                match self.entries(entries, keys, &mut map, depth) {
                    Err(Failure::Reported(error)) if depth == 0 && into == Target::Map => {
                        self.fatal = Some(error)
                    }
                    done => done?,
                }
                Ok(Some(Value::map(map)))
            }
        }
    }

    /// Reports that a node does not fit.
    fn mismatch(&mut self, node: &Node, tag: &str, text: &str, into: Target) -> Option<Value> {
        let into = match into {
            Target::Map => "map[string]interface {}",
            Target::Text => "string",
            Target::Any => return None,
        };
        let tag = if node.tag.is_empty() { tag } else { &node.tag };
        let shown = match text.len() {
            _ if matches!(node.kind, Kind::List(_) | Kind::Map(_)) => String::new(),
            0..=10 => format!(" `{text}`"),
            _ => format!(
                " `{}...`",
                String::from_utf8_lossy(text.as_bytes().get(..7).unwrap_or_default())
            ),
        };
        self.errors.push(format!(
            "line {}: cannot unmarshal {tag}{shown} into {into}",
            node.line
        ));
        None
    }

    fn has_duplicates(&mut self, entries: &[(Rc<Node>, Rc<Node>)]) -> Result<bool, Failure> {
        let mut seen: BTreeMap<(u8, &str), Vec<usize>> = BTreeMap::new();
        let mut found = Vec::new();
        for (key, _) in entries {
            let name = match &key.kind {
                Kind::Scalar { text, .. } => (0, text.as_str()),
                Kind::Alias { name, .. } => (1, name.as_str()),
                Kind::List(_) => (2, ""),
                Kind::Map(_) => (3, ""),
            };
            let before = seen.entry(name).or_default();
            self.budget.step(1)?;
            // Go reports every pair of equal keys.
            for line in before.iter().take(MOST_DUPLICATES.saturating_sub(found.len())) {
                self.budget.copy(name.1.len().saturating_add(64))?;
                found.push((*line, key.line, name.1));
            }
            before.push(key.line);
        }
        found.sort_unstable_by_key(|(first, second, _)| (*first, *second));
        for (first, second, name) in &found {
            let name = format::quote(name);
            self.errors.push(format!(
                "line {second}: mapping key {name} already defined at line {first}"
            ));
        }
        Ok(!found.is_empty())
    }

    /// Puts entries into a map that has none of these keys, or that has keys which take precedence.
    fn entries(
        &mut self,
        entries: &[(Rc<Node>, Rc<Node>)],
        keys: Target,
        map: &mut BTreeMap<Rc<str>, Value>,
        depth: usize,
    ) -> Result<(), Failure> {
        let below = depth.saturating_add(1);
        let before: BTreeSet<Rc<str>> = map.keys().cloned().collect();
        self.budget
            .step(u64::try_from(before.len()).unwrap_or(u64::MAX))?;
        let mut merge = None;
        for (key, value) in entries {
            if is_merge(key) {
                merge = Some(value);
                continue;
            }
            let Some(key) = self.node(key, keys, below)? else {
                continue;
            };
            let key: Rc<str> = match key {
                Value::String(text) => text,
                Value::List(_) | Value::Map(_) => {
                    let shown = format::sprintf("%#v", std::slice::from_ref(&key), self.budget)?;
                    return Err(Failure::reported(format!("yaml: invalid map key: {shown}")));
                }
                other => format::sprint(std::slice::from_ref(&other), self.budget)?.into(),
            };
            if before.contains(&key) {
                continue;
            }
            if let Some(value) = self.node(value, Target::Any, below)? {
                charge_entry(self.budget)?;
                map.insert(key, value);
            }
        }
        merge.map_or(Ok(()), |merge| self.merge(merge, keys, map, below))
    }

    fn merge(
        &mut self,
        merge: &Rc<Node>,
        keys: Target,
        map: &mut BTreeMap<Rc<str>, Value>,
        depth: usize,
    ) -> Result<(), Failure> {
        visit(self.budget, depth)?;
        let below = depth.saturating_add(1);
        match &merge.kind {
            Kind::Map(entries) => {
                if !self.has_duplicates(entries)? {
                    self.entries(entries, keys, map, below)?;
                }
                Ok(())
            }
            Kind::Alias { name, anchor } => {
                let target = self.anchors.get(anchor).cloned();
                let Some(target) = target.filter(|_| self.open.insert(*anchor)) else {
                    return Err(Failure::reported(format!(
                        "yaml: anchor '{name}' value contains itself"
                    )));
                };
                if !matches!(target.kind, Kind::Map(_)) {
                    return Err(not_mergeable());
                }
                self.alias_depth = self.alias_depth.saturating_add(1);
                self.merge(&target, keys, map, below)?;
                self.alias_depth = self.alias_depth.saturating_sub(1);
                self.open.remove(anchor);
                Ok(())
            }
            Kind::List(items) => {
                for item in items {
                    if matches!(item.kind, Kind::List(_) | Kind::Scalar { .. }) {
                        return Err(not_mergeable());
                    }
                    self.merge(item, keys, map, below)?;
                }
                Ok(())
            }
            Kind::Scalar { .. } => Err(not_mergeable()),
        }
    }

    fn scalar(
        &mut self,
        node: &Node,
        text: &str,
        is_plain: bool,
        into: Target,
    ) -> Result<Option<Value>, Failure> {
        self.budget.copy(text.len())?;
        let (tag, value) = typed(&node.tag, text, is_plain)?;
        Ok(match (value, into) {
            (Value::Nil, Target::Any) => Some(Value::Nil),
            (Value::Nil, Target::Map) => Some(Value::Map(Map::nil(Type::Any))),
            (Value::Nil, Target::Text) => None,
            (value, Target::Any) => Some(value),
            (value, Target::Text) if tag == "!!binary" => Some(value),
            (_, Target::Text) => Some(text.into()),
            (_, Target::Map) => self.mismatch(node, tag, text, into),
        })
    }
}

/// Whether all keys of a map are strings.
fn has_only_texts(entries: &[(Rc<Node>, Rc<Node>)]) -> Result<bool, Failure> {
    for (key, _) in entries {
        let Kind::Scalar { text, is_plain } = &key.kind else {
            return Ok(false);
        };
        if !matches!(typed(&key.tag, text, *is_plain)?.0, "!!str" | "!!merge") {
            return Ok(false);
        }
    }
    Ok(true)
}

fn not_mergeable() -> Failure {
    Failure::reported("yaml: map merge requires map or sequence of maps as the value")
}

/// The tag of a value that was found without one.
fn tag_of(value: &Value) -> &'static str {
    match value {
        Value::Nil => "!!null",
        Value::Bool(_) => "!!bool",
        Value::Int(..) | Value::Uint(..) => "!!int",
        Value::Float(..) => "!!float",
        _ => "!!str",
    }
}

/// A scalar as a value of the type that its tag and its text say.
fn typed<'t>(tag: &'t str, text: &str, is_plain: bool) -> Result<(&'t str, Value), Failure> {
    let as_text = || Value::string(text);
    match tag {
        "" if !is_plain => return Ok(("!!str", as_text())),
        "" if text == "<<" => return Ok(("!!merge", as_text())),
        "!!str" => return Ok(("!!str", as_text())),
        "!!binary" => {
            let bytes = bases::decode_64(text)
                .map_err(|_| Failure::reported("yaml: !!binary value contains invalid base64 data"))?;
            let text = String::from_utf8(bytes);
            let text = text.map_err(|_| {
                Problem::new("the bytes of a !!binary value are not UTF-8, so they can't become text")
            })?;
            return Ok(("!!binary", text.into()));
        }
        "" | "!!bool" | "!!int" | "!!float" | "!!null" => {}
        _ => return Ok((tag, as_text())),
    }
    let value = match resolve(text) {
        Resolved::Text => as_text(),
        Resolved::Value(value) => value,
    };
    let found = tag_of(&value);
    match (tag, &value) {
        ("", _) => Ok((found, value)),
        _ if tag == found => Ok((tag, value)),
        #[allow(clippy::cast_precision_loss)] // Go converts it, too.
        ("!!float", Value::Int(number, _)) => Ok((tag, Value::float(*number as f64))),
        _ => Err(Failure::reported(format!(
            "yaml: cannot decode {found} `{text}` as a {tag}"
        ))),
    }
}
