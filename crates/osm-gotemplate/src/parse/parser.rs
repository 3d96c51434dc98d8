//! The parser: tokens and templates. Actions that control the flow are in `control`, and pipelines in
//! `pipeline`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::lexer::Lexer;
use super::node::{Name, Node, Tree, is_empty};
use super::scope::Scope;
use super::token::{Keyword, Kind, Token};
use super::unquote;
use crate::budget::{Budget, Exhausted};
use crate::error::{Error, place};
use crate::format;

pub(super) type Parsed<T> = Result<T, Box<Error>>;

/// How a list of nodes ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    End,
    Else,
}

impl Ending {
    /// How Go names it in errors.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::End => "{{end}}",
            Self::Else => "{{else}}",
        }
    }
}

/// What an action is: a node, or the end of a list.
pub(super) enum Item {
    Node(Node),
    Ending(Ending),
}

pub(super) struct Parser<'s> {
    source_name: Arc<str>,
    pub(super) source: Arc<str>,
    lexer: Lexer<'s>,
    budget: &'s dyn Budget,
    /// The number of each variable's name.
    names: HashMap<&'s str, u32>,
    templates: BTreeMap<Arc<str>, Tree>,
    /// How deeply blocks and parentheses are nested.
    nesting: usize,
    /// Where the last token is that was read and is no space.
    last: usize,
    pub(super) body: Body<'s>,
}

/// What the parser knows of the template that it reads. Each `define` and `block` starts a new one.
pub(super) struct Body<'s> {
    /// Tokens that have been read, the next one last. The first one's line is the line of errors.
    tokens: [Token<'s>; 3],
    peeked: usize,
    pub(super) scope: Scope,
    /// The line of the action that is being read, 0 outside actions.
    action_line: usize,
    pub(super) ranges: usize,
}

impl<'s> Parser<'s> {
    pub(super) fn new(name: &str, source: &'s str, budget: &'s dyn Budget) -> Parsed<Self> {
        let mut parser = Self {
            source_name: name.into(),
            source: Arc::default(),
            lexer: Lexer::new(source),
            budget,
            names: HashMap::new(),
            templates: BTreeMap::new(),
            nesting: 0,
            last: 0,
            body: Body::new(),
        };
        parser.name_of("$"); // Gets number 0.
        parser.charge(|budget| budget.read(source.len()))?;
        parser.source = source.into();
        Ok(parser)
    }

    /// Parses the source, see Go's `Tree.Parse`.
    pub(super) fn parse(mut self) -> Parsed<BTreeMap<Arc<str>, Tree>> {
        let mut root = Vec::new();
        while self.peek().kind != Kind::End {
            if self.peek().kind == Kind::LeftDelimiter {
                let delimiter = self.next();
                if self.next_non_space().kind == Kind::Keyword(Keyword::Define) {
                    self.definition()?;
                    continue;
                }
                self.back_up_to(delimiter);
            }
            match self.text_or_action()? {
                Item::Node(node) => root.push(node),
                Item::Ending(ending) => {
                    return self.fail_at_action(format!("unexpected {}", ending.describe()));
                }
            }
        }
        self.add(self.source_name.clone(), root)?;
        Ok(self.templates)
    }

    /// `{{define "name"}}`. The keyword has been read.
    fn definition(&mut self) -> Parsed<()> {
        const CONTEXT: &str = "define clause";
        let outer = self.start_body();
        let name = self.next_non_space();
        if !matches!(name.kind, Kind::String | Kind::RawString) {
            return self.unexpected(name, CONTEXT);
        }
        let name = self.unquote(name)?;
        self.expect(Kind::RightDelimiter, CONTEXT)?;
        let ending = self.rest_of_body(name.into())?;
        self.expect_end(ending, CONTEXT)?;
        self.body = *outer;
        Ok(())
    }

    /// Parses up to the end of a `define` or `block`, and adds the template.
    pub(super) fn rest_of_body(&mut self, name: Arc<str>) -> Parsed<Ending> {
        let (root, ending) = self.item_list()?;
        if ending == Ending::End {
            self.add(name, root)?;
        }
        Ok(ending)
    }

    pub(super) fn expect_end(&self, ending: Ending, context: &str) -> Parsed<()> {
        match ending {
            Ending::End => Ok(()),
            Ending::Else => self.fail_at_action(format!("unexpected {} in {context}", ending.describe())),
        }
    }

    /// Starts a template inside another, with nothing declared and no token read. Returns the outer one.
    pub(super) fn start_body(&mut self) -> Box<Body<'s>> {
        Box::new(std::mem::replace(&mut self.body, Body::new()))
    }

    /// Adds a template. Of two with the same name, one must be empty.
    fn add(&mut self, name: Arc<str>, root: Vec<Node>) -> Parsed<()> {
        let is_empty = is_empty(&root, &self.source);
        if self.templates.get(&name).is_none_or(|known| known.is_empty) {
            let tree = Tree {
                source_name: self.source_name.clone(),
                source: self.source.clone(),
                root,
                is_empty,
            };
            self.templates.insert(name, tree);
        } else if !is_empty {
            let name = format::quote(&name);
            return self.fail(format!("template: multiple definition of template {name}"));
        }
        Ok(())
    }

    /// Nodes up to an `{{end}}` or `{{else}}`.
    pub(super) fn item_list(&mut self) -> Parsed<(Vec<Node>, Ending)> {
        let mut nodes = Vec::new();
        while self.peek_non_space().kind != Kind::End {
            match self.text_or_action()? {
                Item::Node(node) => nodes.push(node),
                Item::Ending(ending) => return Ok((nodes, ending)),
            }
        }
        self.fail_at(self.source.len(), "unexpected EOF")
    }

    fn text_or_action(&mut self) -> Parsed<Item> {
        self.charge_node(size_of::<Node>())?;
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => {
                let end = token.position.saturating_add(token.text.len());
                Ok(Item::Node(Node::Text(token.position..end)))
            }
            Kind::LeftDelimiter => {
                self.body.action_line = token.line;
                let item = self.action()?;
                self.body.action_line = 0;
                Ok(item)
            }
            _ => self.unexpected(token, "input"),
        }
    }

    /// Enters a block or parenthesis. Callers leave it with [`Parser::leave`].
    pub(super) fn enter(&mut self, problem: &str) -> Parsed<()> {
        if self.nesting >= super::MAX_NESTING {
            return self.fail(problem);
        }
        self.nesting = self.nesting.saturating_add(1);
        Ok(())
    }

    pub(super) fn leave(&mut self) {
        self.nesting = self.nesting.saturating_sub(1);
    }

    pub(super) fn next(&mut self) -> Token<'s> {
        if self.body.peeked > 0 {
            self.body.peeked = self.body.peeked.saturating_sub(1);
        } else {
            self.body.tokens[0] = self.lexer.next_token();
        }
        self.token(self.body.peeked)
    }

    pub(super) fn peek(&mut self) -> Token<'s> {
        if self.body.peeked == 0 {
            self.body.tokens[0] = self.lexer.next_token();
            self.body.peeked = 1;
        }
        self.token(self.body.peeked.saturating_sub(1))
    }

    fn token(&self, index: usize) -> Token<'s> {
        let [first, ..] = self.body.tokens;
        self.body.tokens.get(index).copied().unwrap_or(first)
    }

    pub(super) fn next_non_space(&mut self) -> Token<'s> {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                self.last = token.position;
                return token;
            }
        }
    }

    pub(super) fn peek_non_space(&mut self) -> Token<'s> {
        let token = self.next_non_space();
        self.back_up();
        token
    }

    /// Reads the last token again.
    pub(super) fn back_up(&mut self) {
        self.body.peeked = self.body.peeked.saturating_add(1);
    }

    /// Reads a token again, and the last one after it.
    pub(super) fn back_up_to(&mut self, token: Token<'s>) {
        self.body.tokens[1] = token;
        self.body.peeked = 2;
    }

    /// Reads two tokens again, and the last one after them.
    pub(super) fn back_up_to_both(&mut self, first: Token<'s>, second: Token<'s>) {
        self.body.tokens[1] = second;
        self.body.tokens[2] = first;
        self.body.peeked = 3;
    }

    pub(super) fn expect(&mut self, kind: Kind, context: &str) -> Parsed<Token<'s>> {
        let token = self.next_non_space();
        if token.kind == kind {
            Ok(token)
        } else {
            self.unexpected(token, context)
        }
    }

    pub(super) fn unquote(&self, token: Token<'s>) -> Parsed<String> {
        unquote::unquote(token.text).or_else(|problem| self.fail_at(token.position, problem))
    }

    pub(super) fn name_of(&mut self, text: &'s str) -> Name {
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let number = *self.names.entry(text).or_insert(next);
        Name {
            number,
            text: text.into(),
        }
    }

    pub(super) fn unexpected<T>(&self, token: Token<'s>, context: &str) -> Parsed<T> {
        if token.kind != Kind::Error {
            return self.fail_at(
                token.position,
                format!("unexpected {} in {context}", token.describe()),
            );
        }
        let mut problem = self.lexer.error().to_owned();
        let started = self.body.action_line;
        if started != 0 && started != token.line {
            // "unclosed action in action" would be odd.
            let extra = if problem.ends_with(" action") {
                ""
            } else {
                " in action"
            };
            problem.push_str(&format!("{extra} started at {}:{started}", self.source_name));
        }
        self.fail_at(self.lexer.error_position(), problem)
    }

    /// An error at the last token.
    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Parsed<T> {
        self.fail_at(self.last, problem)
    }

    /// An error at the action that has been read.
    pub(super) fn fail_at_action<T>(&self, problem: impl Into<String>) -> Parsed<T> {
        self.fail_at(self.lexer.action_start(), problem)
    }

    fn fail_at<T>(&self, position: usize, problem: impl Into<String>) -> Parsed<T> {
        Err(Box::new(self.error(position, problem.into(), false)))
    }

    fn error(&self, position: usize, problem: String, exhausted: bool) -> Error {
        let [first, ..] = self.body.tokens;
        let (line, column) = place(&self.source, position);
        Error {
            template: self.source_name.to_string(),
            line,
            column: Some(column),
            printed_line: first.line,
            problem,
            exhausted,
            ..Error::default()
        }
    }

    /// Charges a part of the syntax tree, with its size.
    pub(super) fn charge_node(&self, bytes: usize) -> Parsed<()> {
        self.charge(|budget| budget.step(1).and_then(|()| budget.copy(bytes)))
    }

    fn charge(&self, charge: impl FnOnce(&dyn Budget) -> Result<(), Exhausted>) -> Parsed<()> {
        charge(self.budget).map_err(|exhausted| Box::new(self.error(self.last, exhausted.to_string(), true)))
    }
}

impl Body<'_> {
    fn new() -> Self {
        let mut scope = Scope::default();
        scope.declare(0); // `$`
        let none = Token {
            kind: Kind::End,
            position: 0,
            text: "",
            line: 1,
        };
        Self {
            tokens: [none; 3],
            peeked: 0,
            scope,
            action_line: 0,
            ranges: 0,
        }
    }
}
