//! Reading one tag, if it has one of the usual shapes: `{{path}}`, `{{helper value key="text"}}`, `{{#if (eq a b)}}`,
//! `{{else if a}}`, `{{/if}}`, `{{> name}}`, `{{! comment}}`, with or without `~`.

use std::collections::HashMap;

use ::handlebars::template::{BlockParam, ExpressionSpec, ExpressionSpecBuilder, Parameter, Subexpression};
use ::handlebars::{Path, PathSeg};
use serde_json::Value;

/// A tag.
pub(super) struct Tag<'a> {
    pub(super) kind: Kind<'a>,
    /// Whether it has a `~` at its start, which takes the blanks before it away.
    pub(super) trims_before: bool,
    /// Whether it has a `~` at its end.
    pub(super) trims_after: bool,
}

/// What a tag is.
pub(super) enum Kind<'a> {
    Comment(&'a str),
    Expression(ExpressionSpec),
    Include(ExpressionSpec),
    Open(ExpressionSpec),
    ElseIf(ExpressionSpec),
    Else,
    /// With the block's name.
    Close(&'a str),
}

/// Reads a tag with its braces. `None`: it has another shape, or is wrong.
pub(super) fn read(tag: &str) -> Option<Tag<'_>> {
    if tag.starts_with("{{!") {
        return Some(Tag { kind: Kind::Comment(comment(tag)?), trims_before: false, trims_after: false });
    }
    let mut rest = Rest(tag.strip_prefix("{{")?.strip_suffix("}}")?);
    let trims_before = rest.eat('~');
    let kind = if rest.eat('#') {
        let name = rest.name(is_symbol)?;
        Kind::Open(rest.expression(Parameter::Name(name.to_owned()))?)
    } else if rest.eat('/') {
        Kind::Close(rest.name(is_symbol)?)
    } else if rest.eat('>') {
        let name = rest.name(|c| "-_@/.".contains(c) || (is_symbol(c) && !"$:".contains(c)))?;
        // What may be no part of its name would be taken for a value.
        rest.starts(|c| c == '~' || c.is_ascii_whitespace()).then_some(())?;
        let include = rest.expression(Parameter::Name(name.to_owned()))?;
        Kind::Include(Some(include).filter(|include| include.block_param.is_none())?)
    } else {
        rest.expression_or_else()?
    };
    let trims_after = rest.eat('~');
    rest.skip_blanks();
    rest.0.is_empty().then_some(Tag { kind, trims_before, trims_after })
}

/// The text of a comment.
fn comment(tag: &str) -> Option<&str> {
    match tag.strip_prefix("{{!")? {
        dashed if dashed.starts_with("--") && dashed.ends_with("--}}") => {
            Some(tag.trim_start_matches("{{!--").trim_end_matches("--}}"))
        }
        plain if plain.contains("--") => None,
        _ => Some(tag.trim_start_matches("{{!").trim_end_matches("}}")),
    }
}

/// What names and the parts of paths consist of.
fn is_symbol(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_$:".contains(c) || !c.is_ascii()
}

/// What is left of a tag.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn starts(&self, with: impl Fn(char) -> bool) -> bool {
        self.0.chars().next().is_none_or(with)
    }

    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    /// Whether `c` comes next, and takes it.
    fn eat(&mut self, c: char) -> bool {
        self.skip_blanks();
        let rest = self.0.strip_prefix(c);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// The longest name that comes next.
    fn name(&mut self, is: impl Fn(char) -> bool) -> Option<&'a str> {
        self.skip_blanks();
        let end = self.0.find(|c| !is(c)).unwrap_or(self.0.len());
        let (name, rest) = self.0.split_at_checked(end)?;
        self.0 = rest;
        (!name.is_empty()).then_some(name)
    }

    /// A tag without a sign that says what it is.
    fn expression_or_else(&mut self) -> Option<Kind<'a>> {
        let word = self.word()?;
        if word == "else" {
            self.skip_blanks();
            if self.starts(|c| c == '~') {
                return Some(Kind::Else);
            }
            let name = self.name(is_symbol)?;
            return self.expression(Parameter::Name(name.to_owned())).map(Kind::ElseIf);
        }
        // The rest would be taken for a block's name.
        if word.starts_with("else") {
            return None;
        }
        self.value_of(word).map(Kind::Expression)
    }

    /// An expression that starts with `word`: a helper with arguments, or the path of a value.
    fn value_of(&mut self, word: &'a str) -> Option<ExpressionSpec> {
        let mut expression = self.expression(Parameter::Name(word.to_owned()))?;
        if expression.block_param.is_some() {
            return None;
        }
        if expression.params.is_empty() && expression.hash.is_empty() {
            expression.name = Parameter::Path(path(word)?);
        } else if !word.chars().all(is_symbol) {
            return None;
        }
        Some(expression)
    }

    /// The arguments of what has this name.
    fn expression(&mut self, name: Parameter) -> Option<ExpressionSpec> {
        let (mut params, mut hash, mut block_param) = (Vec::new(), HashMap::new(), None);
        loop {
            self.skip_blanks();
            if self.starts(|c| c == '~' || c == ')') || block_param.is_some() {
                break;
            }
            if !self.starts(|c| is_symbol(c) || "./@".contains(c)) {
                params.push(self.quoted()?);
                continue;
            }
            let word = self.word()?;
            if self.eat('=') {
                // Of two with one name the last counts.
                word.chars().all(is_symbol).then_some(())?;
                hash.insert(word.to_owned(), self.argument()?);
            } else if word == "as" && self.eat('|') {
                block_param = Some(self.block_param()?);
            } else {
                params.push(plain(word)?);
            }
        }
        let mut expression = ExpressionSpecBuilder::default();
        expression.name(name).params(params).hash(hash).omit_pre_ws(false).omit_pro_ws(false);
        let mut expression = expression.build().ok()?;
        expression.block_param = block_param;
        Some(expression)
    }

    /// The names between `|` and `|`.
    fn block_param(&mut self) -> Option<BlockParam> {
        let first = Parameter::Name(self.name(is_symbol)?.to_owned());
        let second = self.name(is_symbol).map(|name| Parameter::Name(name.to_owned()));
        self.eat('|').then_some(())?;
        Some(match second {
            Some(second) => BlockParam::Pair((first, second)),
            None => BlockParam::Single(first),
        })
    }

    fn word(&mut self) -> Option<&'a str> {
        self.name(|c| is_symbol(c) || "./@".contains(c))
    }

    fn argument(&mut self) -> Option<Parameter> {
        self.skip_blanks();
        match self.starts(|c| is_symbol(c) || "./@".contains(c)) {
            true => plain(self.word()?),
            false => self.quoted(),
        }
    }

    /// A text in quotes, or an expression in parentheses.
    fn quoted(&mut self) -> Option<Parameter> {
        if self.eat('(') {
            let word = self.word()?;
            let ExpressionSpec { name, params, hash, .. } = self.value_of(word)?;
            let expression = Subexpression::new(name, params, hash);
            return self.eat(')').then_some(Parameter::Subexpression(expression));
        }
        let quote = self.0.chars().next().filter(|c| ['"', '\''].contains(c))?;
        let mut escaped = false;
        let length = self.0.get(1..)?.find(|c| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        let (literal, rest) = self.0.split_at_checked(length + 2)?;
        self.0 = rest;
        if quote == '"' {
            return serde_json::from_str(literal).ok().map(Parameter::Literal);
        }
        let text = literal.trim_matches(quote);
        let plain = !text.contains(|c: char| c == '\\' || c == '"' || c.is_control());
        plain.then(|| Parameter::Literal(Value::String(text.to_owned())))
    }
}

/// An argument without quotes: a literal, or the path of a value.
fn plain(word: &str) -> Option<Parameter> {
    match word {
        "true" => return Some(Parameter::Literal(Value::Bool(true))),
        "false" => return Some(Parameter::Literal(Value::Bool(false))),
        "null" => return Some(Parameter::Literal(Value::Null)),
        _ => {}
    }
    if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        let number = word.chars().all(|c| c.is_ascii_digit());
        return number.then(|| serde_json::from_str(word).ok())?.map(Parameter::Literal);
    }
    // Words of the language, which can't start a path.
    let first = word.split(['.', '/']).next();
    let reserved = first.is_some_and(|first| ["as", "else", "true", "false", "null"].contains(&first));
    if reserved { None } else { path(word).map(Parameter::Path) }
}

fn path(word: &str) -> Option<Path> {
    let segments = word.split(['.', '/']);
    if !segments.clone().all(|segment| !segment.is_empty() && segment.chars().all(is_symbol)) {
        // Of a loop, or from a parent or the top.
        return match word.strip_prefix('@') {
            Some(local) if !local.is_empty() && local.chars().all(is_symbol) && local != "this" => {
                Some(Path::Local((0, local.to_owned(), word.to_owned())))
            }
            _ => Path::parse(word).ok(),
        };
    }
    let named = segments.filter(|segment| *segment != "this");
    Some(Path::Relative((named.map(|segment| PathSeg::Named(segment.to_owned())).collect(), word.to_owned())))
}
