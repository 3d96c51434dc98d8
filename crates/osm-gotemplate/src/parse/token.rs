//! The parts that the lexer splits a template into.

use crate::format;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The lexer failed. It keeps the reason.
    Error,
    Bool,
    /// A printable ASCII character such as a comma.
    Char,
    CharConstant,
    /// `=`
    Assign,
    /// `:=`
    Declare,
    End,
    Field,
    Identifier,
    LeftDelimiter,
    LeftParenthesis,
    Number,
    Pipe,
    RawString,
    RightDelimiter,
    RightParenthesis,
    Space,
    String,
    Text,
    Variable,
    /// The cursor, spelled `.`.
    Dot,
    Keyword(Keyword),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keyword {
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

impl Keyword {
    pub(super) fn of(word: &str) -> Option<Self> {
        Some(match word {
            "block" => Self::Block,
            "break" => Self::Break,
            "continue" => Self::Continue,
            "define" => Self::Define,
            "else" => Self::Else,
            "end" => Self::End,
            "if" => Self::If,
            "nil" => Self::Nil,
            "range" => Self::Range,
            "template" => Self::Template,
            "with" => Self::With,
            _ => return None,
        })
    }
}

/// A part of the source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'s> {
    pub(super) kind: Kind,
    /// Bytes before it in the source.
    pub(super) position: usize,
    pub(super) text: &'s str,
    /// The line where it starts, from 1.
    pub(super) line: usize,
}

impl Token<'_> {
    /// How Go names the token in errors.
    pub(super) fn describe(&self) -> String {
        match self.kind {
            Kind::End => "EOF".to_owned(),
            Kind::Error => self.text.to_owned(),
            Kind::Dot | Kind::Keyword(_) => format!("<{}>", self.text),
            _ if self.text.len() > 10 => {
                let end = self
                    .text
                    .char_indices()
                    .nth(10)
                    .map_or(self.text.len(), |(at, _)| at);
                format!("{}...", format::quote(self.text.get(..end).unwrap_or_default()))
            }
            _ => format::quote(self.text),
        }
    }
}
