//! YAML with the position of every node, within bounds.
//!
//! Values are read by [`osm_user_data::yaml`], as everywhere else. This tree finds out where they are, and
//! shows how scalars are written.

use std::collections::HashMap;

pub use granit_parser::ScalarStyle as Style;
use granit_parser::{Event, Parser, Span};

/// Most levels of lists and maps. The API server stores more, but the services read no more than 128 levels.
const MAX_DEPTH: usize = 100;

const DEPTH_HINT: &str = "flatten the value; a profile needs about 10 levels";

/// A value with its position.
#[derive(Clone, Debug)]
pub struct Node {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    pub kind: Kind,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Text as it is before its type is known, and how it is written.
    Scalar(String, Style),
    List(Vec<Node>),
    /// Keys and values, in order.
    Map(Vec<(Node, Node)>),
    /// A reference to an anchor.
    Alias,
}

/// Something wrong with the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    pub message: String,
    pub hint: Option<String>,
}

/// A list or map whose end was not seen yet.
struct Open {
    node: Node,
    /// The key whose value comes next.
    key: Option<Node>,
    /// Lines of the keys of a map.
    keys: HashMap<String, usize>,
}

#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    open: Vec<Open>,
}

/// Reads every document of a stream; empty ones are left out.
///
/// # Errors
/// The first mistake.
pub fn read(text: &str) -> Result<Vec<Node>, Mistake> {
    let mut builder = Builder::default();
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| {
            let marker = error.marker();
            syntax(text, marker.line().max(1), marker.col() + 1, &error.info())
        })?;
        builder
            .event(event, span)
            .map_err(|mistake| explain_tags(text, mistake))?;
    }
    Ok(builder.documents)
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Mistake> {
        let at = |kind| Node {
            line: span.start.line().max(1),
            column: span.start.col() + 1,
            kind,
        };
        match event {
            Event::Scalar(text, style, ..) => self.close(at(Kind::Scalar(text.into_owned(), style))),
            Event::Alias(_) => self.close(at(Kind::Alias)),
            Event::SequenceStart(..) => self.start(at(Kind::List(Vec::new()))),
            Event::MappingStart(..) => self.start(at(Kind::Map(Vec::new()))),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(open) => self.close(open.node),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn start(&mut self, node: Node) -> Result<(), Mistake> {
        if self.open.len() >= MAX_DEPTH {
            let message = format!("lists and maps are nested more than {MAX_DEPTH} levels deep");
            return Err(mistake(&node, message, Some(DEPTH_HINT)));
        }
        self.open.push(Open {
            node,
            key: None,
            keys: HashMap::new(),
        });
        Ok(())
    }

    /// Puts a complete node in its place.
    fn close(&mut self, node: Node) -> Result<(), Mistake> {
        let Some(open) = self.open.last_mut() else {
            if !is_null(&node) {
                self.documents.push(node);
            }
            return Ok(());
        };
        match (&mut open.node.kind, open.key.take()) {
            (Kind::Map(entries), Some(key)) => entries.push((key, node)),
            (Kind::Map(_), None) => {
                let Kind::Scalar(text, _) = &node.kind else {
                    let message = "a key of a map must be a text";
                    return Err(mistake(
                        &node,
                        message,
                        Some("write the key as a text on one line"),
                    ));
                };
                // Merge keys can be repeated.
                if text != "<<"
                    && let Some(first) = open.keys.insert(text.clone(), node.line)
                {
                    let message =
                        format!("the key {text:?} occurs twice in one map; the first is on line {first}");
                    return Err(mistake(&node, message, Some("remove one of the two")));
                }
                open.key = Some(node);
            }
            (Kind::List(items), _) => items.push(node),
            _ => {}
        }
        Ok(())
    }
}

fn is_null(node: &Node) -> bool {
    matches!(&node.kind, Kind::Scalar(text, Style::Plain) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
}

fn mistake(node: &Node, message: impl Into<String>, hint: Option<&str>) -> Mistake {
    Mistake {
        line: node.line,
        column: node.column,
        message: message.into(),
        hint: hint.map(str::to_owned),
    }
}

fn syntax(text: &str, line: usize, column: usize, problem: &str) -> Mistake {
    let written = text.lines().nth(line - 1).unwrap_or_default();
    let indentation: String = written.chars().take_while(|c| c.is_whitespace()).collect();
    let hint = if indentation.contains('\t') {
        "indent with spaces; YAML does not allow tabs there"
    } else {
        "correct the indentation, quotes and brackets here or in the lines before"
    };
    explain_tags(
        text,
        Mistake {
            line,
            column,
            message: format!("not valid YAML: {problem}"),
            hint: Some(hint.to_owned()),
        },
    )
}

/// The usual cause of an error in a line with a template tag is that the tag starts a plain scalar.
fn explain_tags(text: &str, mistake: Mistake) -> Mistake {
    let line = text.lines().nth(mistake.line - 1).unwrap_or_default();
    let value = line.split_once(": ").map_or(line, |(_, value)| value);
    if !value.trim_start_matches([' ', '-']).starts_with("{{") {
        return mistake;
    }
    Mistake {
        hint: Some("put a value that starts with a template tag into quotes: '{{…}}'".to_owned()),
        ..mistake
    }
}

impl Node {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Kind::Map(entries) = &self.kind else {
            return None;
        };
        entries.iter().find_map(|(found, value)| {
            matches!(&found.kind, Kind::Scalar(text, _) if text == key).then_some(value)
        })
    }

    /// Takes the node apart if it is a list.
    pub fn into_items(self) -> Vec<Self> {
        match self.kind {
            Kind::List(items) => items,
            _ => Vec::new(),
        }
    }

    /// Calls `look` with every scalar below, keys included, and with its key if it is the value of one.
    pub fn scalars<'n>(
        &'n self,
        key: Option<&'n str>,
        look: &mut impl FnMut(Option<&'n str>, &'n Self, bool),
    ) {
        match &self.kind {
            Kind::Scalar(..) => look(key, self, false),
            Kind::List(items) => items.iter().for_each(|item| item.scalars(key, look)),
            Kind::Map(entries) => {
                for (key, value) in entries {
                    look(None, key, true);
                    let name = match &key.kind {
                        Kind::Scalar(text, _) => Some(text.as_str()),
                        _ => None,
                    };
                    value.scalars(name, look);
                }
            }
            Kind::Alias => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_knows_its_place() {
        let documents = read("# c\na:\n  - b: c\n    d: |\n      x\n---\n---\ne: f\n").unwrap();
        assert_eq!(documents.len(), 2);
        let Kind::List(items) = &documents[0].get("a").unwrap().kind else {
            panic!()
        };
        let (b, d) = (items[0].get("b").unwrap(), items[0].get("d").unwrap());
        assert_eq!((b.line, b.column), (3, 8));
        assert_eq!((d.line, d.column), (5, 7), "the first character of the block");
        assert!(matches!(&d.kind, Kind::Scalar(text, Style::Literal) if text == "x\n"));
        assert_eq!(documents[1].get("e").unwrap().line, 8);
    }

    #[test]
    fn mistakes_have_their_place_and_a_hint() {
        let deep = format!("a: {}{}", "[".repeat(200), "]".repeat(200));
        let cases = [
            ("a: [", (1, 4), "not valid YAML", "brackets"),
            ("a: 1\nb: 2\na: 3\n", (3, 1), "\"a\" occurs twice", "remove one"),
            ("a:\n\tb: 1\n", (2, 2), "not valid YAML", "spaces"),
            ("a: {{b}}\n", (1, 5), "", "into quotes"),
            ("a:\n  - {{b}}\n", (2, 6), "", "into quotes"),
            (&deep, (1, 103), "more than 100 levels", "flatten"),
            ("a: *b\n", (1, 4), "not valid YAML", ""),
        ];
        for (text, (line, column), message, hint) in cases {
            let start: String = text.chars().take(60).collect();
            let mistake = read(text).expect_err(&start);
            assert_eq!(mistake.line, line, "{start} {mistake:?}");
            assert!(column == 0 || mistake.column == column, "{start} {mistake:?}");
            assert!(mistake.message.contains(message), "{start} {mistake:?}");
            assert!(mistake.hint.unwrap_or_default().contains(hint), "{start}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\-a-c:,&*\\[\\]{}|>#'\"\\\\ \n\t]{0,60}") {
            if let Err(mistake) = read(&text) {
                proptest::prop_assert!(mistake.line > 0 && !mistake.message.is_empty());
            }
        }
    }

    #[test]
    fn carriage_returns_and_merge_keys_are_fine() {
        let documents = read("a: &a {b: 1}\r\nc:\r\n  <<: *a\r\n  d: 1\r\n").unwrap();
        assert_eq!(documents[0].get("c").unwrap().get("d").unwrap().line, 4);
    }
}
