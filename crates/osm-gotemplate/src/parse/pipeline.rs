//! Pipelines, their commands and operands.

use super::node::{Command, Literal, Operand, OperandKind, Part, Pipeline};
use super::number;
use super::parser::{Parsed, Parser};
use super::token::{Keyword, Kind, Token};
use crate::format;
use crate::functions;

impl<'s> Parser<'s> {
    /// A pipeline up to a token.
    pub(super) fn pipeline(&mut self, context: &str, end: Kind) -> Parsed<Pipeline> {
        let mut pipeline = Pipeline {
            position: self.peek_non_space().position,
            commands: Vec::with_capacity(1),
            ..Pipeline::default()
        };
        self.declarations(&mut pipeline, context)?;
        loop {
            let token = self.next_non_space();
            match token.kind {
                kind if kind == end => {
                    self.check(&pipeline, context)?;
                    return Ok(pipeline);
                }
                Kind::Bool
                | Kind::CharConstant
                | Kind::Dot
                | Kind::Field
                | Kind::Identifier
                | Kind::Number
                | Kind::Keyword(Keyword::Nil)
                | Kind::RawString
                | Kind::String
                | Kind::Variable
                | Kind::LeftParenthesis => {
                    self.back_up();
                    let command = self.command()?;
                    pipeline.commands.push(command);
                }
                _ => return self.unexpected(token, context),
            }
        }
    }

    /// The variables that a pipeline declares or sets.
    fn declarations(&mut self, pipeline: &mut Pipeline, context: &str) -> Parsed<()> {
        loop {
            let variable = self.peek_non_space();
            if variable.kind != Kind::Variable {
                return Ok(());
            }
            self.next();
            let after = self.peek();
            let next = self.peek_non_space();
            match next.kind {
                Kind::Assign | Kind::Declare => {
                    pipeline.assigns = next.kind == Kind::Assign;
                    self.next_non_space();
                    self.declare(pipeline, variable);
                    return Ok(());
                }
                Kind::Char if next.text == "," => {
                    self.next_non_space();
                    self.declare(pipeline, variable);
                    if context != "range" || pipeline.variables.len() >= 2 {
                        return self.fail(format!("too many declarations in {context}"));
                    }
                    let second = self.peek_non_space().kind;
                    if !matches!(
                        second,
                        Kind::Variable | Kind::RightDelimiter | Kind::RightParenthesis
                    ) {
                        return self.fail("range can only initialize variables");
                    }
                }
                _ => {
                    if after.kind == Kind::Space {
                        self.back_up_to_both(variable, after);
                    } else {
                        self.back_up_to(variable);
                    }
                    return Ok(());
                }
            }
        }
    }

    fn declare(&mut self, pipeline: &mut Pipeline, variable: Token<'s>) {
        let name = self.name_of(variable.text);
        self.body.scope.declare(name.number);
        pipeline.variables.push(name);
    }

    fn check(&self, pipeline: &Pipeline, context: &str) -> Parsed<()> {
        if pipeline.commands.is_empty() {
            return self.fail(format!("missing value for {context}"));
        }
        for (index, command) in pipeline.commands.iter().enumerate().skip(1) {
            use OperandKind::{Bool, Dot, Nil, Number, String};
            let first = command.operands.first().map(|operand| &operand.kind);
            if let Some(Bool(_) | Dot | Nil | Number(_) | String(_)) = first {
                let stage = index.saturating_add(1);
                return self.fail(format!("non executable command in pipeline stage {stage}"));
            }
        }
        Ok(())
    }

    /// Operands with space between them, up to the end of the pipeline or past a `|`.
    fn command(&mut self) -> Parsed<Command> {
        self.charge_node(size_of::<Command>())?;
        let position = self.peek_non_space().position;
        let mut operands = Vec::with_capacity(1);
        loop {
            self.charge_node(size_of::<Operand>())?;
            self.peek_non_space();
            operands.extend(self.operand()?);
            self.check_format(&operands)?;
            let token = self.next();
            match token.kind {
                Kind::Space => continue,
                Kind::RightDelimiter | Kind::RightParenthesis => self.back_up(),
                Kind::Pipe => {}
                _ => return self.unexpected(token, "operand"),
            }
            if operands.is_empty() {
                return self.fail("empty command");
            }
            return Ok(Command { position, operands });
        }
    }

    /// Refuses a format of `printf` with something that is not supported as soon as it is read.
    fn check_format(&self, operands: &[Operand]) -> Parsed<()> {
        let [function, format] = operands else {
            return Ok(());
        };
        let (OperandKind::Function(function), OperandKind::String(format)) = (&function.kind, &format.kind)
        else {
            return Ok(());
        };
        match format::check(&format.text) {
            Err(problem) if function.name == "printf" => self.fail(problem),
            _ => Ok(()),
        }
    }

    /// A term and the fields after it, if an operand comes next.
    fn operand(&mut self) -> Parsed<Option<Operand>> {
        let token = self.next_non_space();
        let term = if token.kind == Kind::LeftParenthesis {
            Some(self.parenthesized()?)
        } else {
            self.term(token)?
        };
        match term {
            Some(term) if self.peek().kind == Kind::Field => self.with_fields(term).map(Some),
            term => Ok(term),
        }
    }

    /// A pipeline after its left parenthesis.
    fn parenthesized(&mut self) -> Parsed<Operand> {
        self.enter("max expression depth exceeded")?;
        let pipeline = Box::new(self.pipeline("parenthesized pipeline", Kind::RightParenthesis)?);
        self.leave();
        Ok(Operand {
            position: pipeline.position,
            kind: OperandKind::Pipeline(pipeline),
        })
    }

    /// A term with the fields that come next.
    fn with_fields(&mut self, term: Operand) -> Parsed<Operand> {
        let position = self.peek().position;
        let mut names: Vec<Box<str>> = Vec::new();
        while self.peek().kind == Kind::Field {
            self.charge_node(size_of::<Box<str>>())?;
            names.push(field_name(self.next()));
        }
        let kind = match term.kind {
            OperandKind::Field(first) => OperandKind::Field(first.into_iter().chain(names).collect()),
            OperandKind::Variable(name, _) => OperandKind::Variable(name, names.into()),
            OperandKind::Function(_) | OperandKind::Pipeline(_) | OperandKind::Chain(..) => {
                OperandKind::Chain(Box::new(term), names.into())
            }
            OperandKind::Dot
            | OperandKind::Nil
            | OperandKind::Bool(_)
            | OperandKind::Number(_)
            | OperandKind::String(_) => {
                let printed = Part::Operand(&term).print(&self.source);
                return self.fail(format!("unexpected . after term {}", format::quote(&printed)));
            }
        };
        Ok(Operand { position, kind })
    }

    /// A term that has no parts.
    fn term(&mut self, token: Token<'s>) -> Parsed<Option<Operand>> {
        let kind = match token.kind {
            Kind::Identifier => self.function(token)?,
            Kind::Dot => OperandKind::Dot,
            Kind::Keyword(Keyword::Nil) => OperandKind::Nil,
            Kind::Variable => self.variable(token)?,
            Kind::Field => OperandKind::Field(Box::new([field_name(token)])),
            Kind::Bool => OperandKind::Bool(token.text == "true"),
            Kind::CharConstant => self.number(token, number::of_char)?,
            Kind::Number => self.number(token, number::of_number)?,
            Kind::String | Kind::RawString => {
                let end = token.position.saturating_add(token.text.len());
                OperandKind::String(Box::new(Literal {
                    text: self.unquote(token)?.into(),
                    quoted: token.position..end,
                }))
            }
            _ => {
                self.back_up();
                return Ok(None);
            }
        };
        let position = token.position;
        Ok(Some(Operand { position, kind }))
    }

    fn variable(&mut self, token: Token<'s>) -> Parsed<OperandKind> {
        let name = self.name_of(token.text);
        if !self.body.scope.contains(name.number) {
            return self.fail(format!("undefined variable {}", format::quote(token.text)));
        }
        Ok(OperandKind::Variable(name, Box::default()))
    }

    fn number(
        &self,
        token: Token<'s>,
        value: fn(&str) -> Result<number::Number, String>,
    ) -> Parsed<OperandKind> {
        match value(token.text) {
            Ok(number) => Ok(OperandKind::Number(Box::new((number, token.text.into())))),
            Err(problem) => self.fail(problem),
        }
    }

    fn function(&self, token: Token<'s>) -> Parsed<OperandKind> {
        if let Some(function) = functions::find(token.text) {
            return Ok(OperandKind::Function(function));
        }
        let name = format::quote(token.text);
        match functions::REFUSED
            .iter()
            .find(|refused| refused.names.contains(&token.text))
        {
            Some(refused) => self.fail(format!("function {name} {}", refused.reason)),
            None => self.fail(format!("function {name} not defined")),
        }
    }
}

fn field_name(token: Token<'_>) -> Box<str> {
    token.text.strip_prefix('.').unwrap_or(token.text).into()
}
