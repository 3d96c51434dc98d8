//! The syntax tree, and how Go prints its parts in errors.

use std::ops::Range;
use std::sync::Arc;

pub(crate) use super::number::Number;
use crate::error::place;
use crate::format;
use crate::functions::Function;

/// A template that has been parsed.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// The name of the source, for errors.
    pub(crate) source_name: Arc<str>,
    pub(crate) source: Arc<str>,
    pub(crate) root: Vec<Node>,
    /// The root is nothing but space.
    pub(crate) is_empty: bool,
}

impl Tree {
    /// A template whose output is `text`.
    pub(crate) fn of_text(name: &str, text: &str) -> Self {
        Self {
            source_name: name.into(),
            source: text.into(),
            root: vec![Node::Text(0..text.len())],
            is_empty: text.trim().is_empty(),
        }
    }

    /// The line of a position, from 1, and the bytes before it in that line.
    pub(crate) fn line_and_column(&self, position: usize) -> (usize, usize) {
        place(&self.source, position)
    }
}

/// Something between two points of a template's text.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Text(Range<usize>),
    Action(Pipeline),
    If(Branches),
    With(Branches),
    Range(Box<Loop>),
    Template(Box<Include>),
    Break,
    Continue,
}

/// The conditions of an `if` or `with`, tried in order, and the last `else`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Branches {
    pub(crate) arms: Vec<(Pipeline, Vec<Node>)>,
    pub(crate) otherwise: Vec<Node>,
}

#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) over: Pipeline,
    pub(crate) body: Vec<Node>,
    pub(crate) otherwise: Vec<Node>,
}

/// `{{template "name" pipeline}}`
#[derive(Clone, Debug)]
pub(crate) struct Include {
    pub(crate) position: usize,
    pub(crate) name: Box<str>,
    pub(crate) data: Option<Pipeline>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pipeline {
    pub(crate) position: usize,
    /// The variables are set, not declared.
    pub(crate) assigns: bool,
    pub(crate) variables: Vec<Name>,
    pub(crate) commands: Vec<Command>,
}

/// A variable's name. Names are equal within a source if their numbers are equal.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) number: u32,
    pub(crate) text: Box<str>,
}

#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) position: usize,
    /// At least one.
    pub(crate) operands: Vec<Operand>,
}

#[derive(Clone, Debug)]
pub(crate) struct Operand {
    pub(crate) position: usize,
    pub(crate) kind: OperandKind,
}

#[derive(Clone, Debug)]
pub(crate) enum OperandKind {
    Dot,
    Nil,
    Bool(bool),
    Number(Box<(Number, Box<str>)>),
    String(Box<Literal>),
    /// `.A.B`: at least one name.
    Field(Box<[Box<str>]>),
    /// `$x.A.B`
    Variable(Name, Box<[Box<str>]>),
    Function(&'static Function),
    Pipeline(Box<Pipeline>),
    /// A function or pipeline with fields.
    Chain(Box<Operand>, Box<[Box<str>]>),
}

#[derive(Clone, Debug)]
pub(crate) struct Literal {
    pub(crate) text: Box<str>,
    /// As the source has it.
    pub(crate) quoted: Range<usize>,
}

/// A part of the tree that an error is about.
#[derive(Clone, Copy)]
pub(crate) enum Part<'t> {
    Include(&'t Include),
    Pipeline(&'t Pipeline),
    Command(&'t Command),
    Operand(&'t Operand),
}

impl Part<'_> {
    pub(crate) fn position(self) -> usize {
        match self {
            Self::Include(part) => part.position,
            Self::Pipeline(part) => part.position,
            Self::Command(part) => part.position,
            Self::Operand(part) => part.position,
        }
    }

    /// As Go prints it.
    pub(crate) fn print(self, source: &str) -> String {
        let mut printer = Printer {
            source,
            text: String::new(),
        };
        match self {
            Self::Include(part) => printer.include(part),
            Self::Pipeline(part) => printer.pipeline(part),
            Self::Command(part) => printer.command(part),
            Self::Operand(part) => printer.operand(part),
        }
        printer.text
    }
}

struct Printer<'t> {
    source: &'t str,
    text: String,
}

impl Printer<'_> {
    fn include(&mut self, include: &Include) {
        self.text.push_str("{{template ");
        self.text.push_str(&format::quote(&include.name));
        if let Some(data) = &include.data {
            self.text.push(' ');
            self.pipeline(data);
        }
        self.text.push_str("}}");
    }

    fn pipeline(&mut self, pipeline: &Pipeline) {
        for (index, variable) in pipeline.variables.iter().enumerate() {
            if index > 0 {
                self.text.push_str(", ");
            }
            self.text.push_str(&variable.text);
        }
        if !pipeline.variables.is_empty() {
            self.text.push_str(if pipeline.assigns { " = " } else { " := " });
        }
        for (index, command) in pipeline.commands.iter().enumerate() {
            if index > 0 {
                self.text.push_str(" | ");
            }
            self.command(command);
        }
    }

    fn command(&mut self, command: &Command) {
        for (index, operand) in command.operands.iter().enumerate() {
            if index > 0 {
                self.text.push(' ');
            }
            self.inner(operand);
        }
    }

    /// An operand as a part of something: pipelines have parentheses.
    fn inner(&mut self, operand: &Operand) {
        let parentheses = matches!(operand.kind, OperandKind::Pipeline(_));
        if parentheses {
            self.text.push('(');
        }
        self.operand(operand);
        if parentheses {
            self.text.push(')');
        }
    }

    fn operand(&mut self, operand: &Operand) {
        match &operand.kind {
            OperandKind::Dot => self.text.push('.'),
            OperandKind::Nil => self.text.push_str("nil"),
            OperandKind::Bool(value) => self.text.push_str(if *value { "true" } else { "false" }),
            OperandKind::Number(number) => self.text.push_str(&number.1),
            OperandKind::String(literal) => {
                let quoted = self.source.get(literal.quoted.clone());
                self.text.push_str(quoted.unwrap_or_default());
            }
            OperandKind::Field(names) => self.names(names),
            OperandKind::Variable(name, names) => {
                self.text.push_str(&name.text);
                self.names(names);
            }
            OperandKind::Function(function) => self.text.push_str(function.name),
            OperandKind::Pipeline(pipeline) => self.pipeline(pipeline),
            OperandKind::Chain(of, names) => {
                self.inner(of);
                self.names(names);
            }
        }
    }

    fn names(&mut self, names: &[Box<str>]) {
        for name in names {
            self.text.push('.');
            self.text.push_str(name);
        }
    }
}

/// Whether nodes are nothing but space, see Go's `parse.IsEmptyTree`.
pub(super) fn is_empty(nodes: &[Node], source: &str) -> bool {
    nodes.iter().all(|node| match node {
        Node::Text(range) => source
            .get(range.clone())
            .is_none_or(|text| text.trim().is_empty()),
        _ => false,
    })
}
