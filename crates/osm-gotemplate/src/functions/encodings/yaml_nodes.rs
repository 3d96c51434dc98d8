//! YAML as nodes: scalars, lists, maps and aliases, as they are written.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_saphyr::granit_parser::{Event, Options, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::text::{Failure, push, visit};
use crate::budget::Budget;
use crate::value::COUNTS;

/// The first document of a stream.
pub(super) struct Document {
    /// None: the stream is empty.
    pub(super) root: Option<Rc<Node>>,
    /// The nodes that aliases refer to.
    pub(super) anchors: BTreeMap<usize, Rc<Node>>,
}

/// Reads the first document.
pub(super) fn read(text: &str, budget: &dyn Budget) -> Result<Document, Failure> {
    let mut options = Options::default();
    options.emit_unresolved_aliases = true;
    let mut composer = Composer {
        parser: Parser::new_from_str_with_options(text, options),
        text,
        budget,
        anchors: BTreeMap::new(),
    };
    let root = composer.document()?;
    Ok(Document {
        root,
        anchors: composer.anchors,
    })
}

/// A node of the document.
pub(super) struct Node {
    pub(super) kind: Kind,
    /// In its short form, e.g. `!!str`. Empty if it has none.
    pub(super) tag: String,
    pub(super) line: usize,
}

pub(super) enum Kind {
    Scalar { text: String, is_plain: bool },
    List(Vec<Rc<Node>>),
    Map(Vec<(Rc<Node>, Rc<Node>)>),
    Alias { name: String, anchor: usize },
}

/// Makes nodes of events.
struct Composer<'a> {
    parser: Parser<'a, StrInput<'a>>,
    text: &'a str,
    budget: &'a dyn Budget,
    anchors: BTreeMap<usize, Rc<Node>>,
}

fn short_tag(tag: Option<&Tag>) -> String {
    let Some(tag) = tag else { return String::new() };
    let full = format!("{}{}", tag.handle(), tag.suffix());
    match full.strip_prefix("tag:yaml.org,2002:") {
        Some(name) => format!("!!{name}"),
        None if full == "!" => String::new(),
        None => full,
    }
}

fn malformed(error: &ScanError) -> Failure {
    // yaml.v3 does not name the first line.
    match error.marker().line() {
        0 | 1 => Failure::reported(format!("yaml: {}", error.info())),
        line => Failure::reported(format!("yaml: line {line}: {}", error.info())),
    }
}

impl<'a> Composer<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Failure> {
        loop {
            self.budget.step(1)?;
            match self.parser.next_event() {
                None => return Ok(None),
                Some(Err(error)) => return Err(malformed(&error)),
                Some(Ok((Event::Comment(..) | Event::Anchor(..), _))) => {}
                Some(Ok(found)) => return Ok(Some(found)),
            }
        }
    }

    fn document(&mut self) -> Result<Option<Rc<Node>>, Failure> {
        loop {
            match self.next()? {
                None | Some((Event::StreamEnd, _)) => return Ok(None),
                Some((Event::StreamStart | Event::DocumentStart(..), _)) => {}
                Some((event, span)) => {
                    let root = self.node(event, &span, 0)?;
                    // What follows the value in the document must be well-formed.
                    self.next()?;
                    return Ok(Some(root));
                }
            }
        }
    }

    fn child(&mut self, depth: usize, end: &Event<'_>) -> Result<Option<Rc<Node>>, Failure> {
        match self.next()? {
            Some((event, _)) if event == *end => Ok(None),
            Some((event, span)) => self.node(event, &span, depth.saturating_add(1)).map(Some),
            None => Err(Failure::reported("yaml: unexpected end of stream")),
        }
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Rc<Node>, Failure> {
        visit(self.budget, depth)?;
        self.budget.copy(size_of::<Node>() + COUNTS)?;
        let line = span.start.line();
        let (kind, tag, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.budget.copy(text.len())?;
                let kind = Kind::Scalar {
                    text: text.into_owned(),
                    is_plain: style == ScalarStyle::Plain,
                };
                (kind, short_tag(tag.as_deref()), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                let mut items = Vec::new();
                while let Some(item) = self.child(depth, &Event::SequenceEnd)? {
                    push(&mut items, item, self.budget)?;
                }
                (Kind::List(items), short_tag(tag.as_deref()), anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                let mut entries = Vec::new();
                while let Some(key) = self.child(depth, &Event::MappingEnd)? {
                    let value = self.child(depth, &Event::MappingEnd)?;
                    let value = value.ok_or_else(|| Failure::reported("yaml: a key has no value"))?;
                    push(&mut entries, (key, value), self.budget)?;
                }
                (Kind::Map(entries), short_tag(tag.as_deref()), anchor)
            }
            Event::Alias(anchor) => {
                let name = span
                    .slice(self.text)
                    .unwrap_or_default()
                    .trim_start_matches('*')
                    .to_owned();
                (Kind::Alias { name, anchor }, String::new(), 0)
            }
            Event::UnresolvedAlias(name) => {
                return Err(Failure::reported(format!(
                    "yaml: unknown anchor '{name}' referenced"
                )));
            }
            _ => {
                return Err(Failure::reported(format!(
                    "yaml: line {line}: did not find expected node content"
                )));
            }
        };
        let node = Rc::new(Node { kind, tag, line });
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }
}
