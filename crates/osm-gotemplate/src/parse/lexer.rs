//! Splits a template into tokens, one at a time. It follows the states of Go's `text/template/parse/lex.go`.

use super::number;
use super::token::{Keyword, Kind, Token};
use crate::format;

const LEFT: &str = "{{";
const RIGHT: &str = "}}";
const COMMENT_START: &str = "/*";
const COMMENT_END: &str = "*/";
const UNCLOSED_ACTION: &str = "unclosed action";
const UNCLOSED_COMMENT: &str = "unclosed comment";
/// A trim marker is a `-` with a space beside it.
const TRIM_MARKER: usize = 2;

pub(super) struct Lexer<'s> {
    source: &'s str,
    position: usize,
    line: usize,
    /// Where the token that is being read starts.
    start: usize,
    start_line: usize,
    /// Where the last left delimiter is, which may start a comment.
    action_start: usize,
    open_parentheses: usize,
    inside_action: bool,
    /// Why reading failed.
    error: Option<(String, usize, usize)>,
}

impl<'s> Lexer<'s> {
    pub(super) fn new(source: &'s str) -> Self {
        Self {
            source,
            position: 0,
            line: 1,
            start: 0,
            start_line: 1,
            action_start: 0,
            open_parentheses: 0,
            inside_action: false,
            error: None,
        }
    }

    /// Why the last token is a [`Kind::Error`].
    pub(super) fn error(&self) -> &str {
        self.error.as_ref().map_or("", |(error, ..)| error)
    }

    /// Where the last token is a [`Kind::Error`]: what is not closed is reported where it starts.
    pub(super) fn error_position(&self) -> usize {
        match &self.error {
            Some((error, ..)) if error == UNCLOSED_ACTION || error == UNCLOSED_COMMENT => self.action_start,
            Some((_, position, _)) => *position,
            None => self.position,
        }
    }

    /// Where the last left delimiter is.
    pub(super) fn action_start(&self) -> usize {
        self.action_start
    }

    pub(super) fn next_token(&mut self) -> Token<'s> {
        if self.error.is_none() {
            let token = if self.inside_action {
                self.action()
            } else {
                self.text()
            };
            match token {
                Ok(token) => return token,
                Err(error) => self.error = Some((error, self.start, self.start_line)),
            }
        }
        let (position, line) = self
            .error
            .as_ref()
            .map_or((0, 0), |(_, position, line)| (*position, *line));
        Token {
            kind: Kind::Error,
            position,
            text: "",
            line,
        }
    }

    fn rest(&self) -> &'s str {
        self.source.get(self.position..).unwrap_or_default()
    }

    fn current(&self) -> &'s str {
        self.source.get(self.start..self.position).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position = self.position.saturating_add(next.len_utf8());
        if next == '\n' {
            self.line = self.line.saturating_add(1);
        }
        Some(next)
    }

    /// Skips bytes, which end at a character's end.
    fn skip(&mut self, bytes: usize) {
        let skipped = self.rest().get(..bytes).unwrap_or_default();
        let lines = skipped.bytes().filter(|byte| *byte == b'\n').count();
        self.line = self.line.saturating_add(lines);
        self.position = self.position.saturating_add(skipped.len());
    }

    fn token(&mut self, kind: Kind) -> Token<'s> {
        let token = Token {
            kind,
            position: self.start,
            text: self.current(),
            line: self.start_line,
        };
        self.ignore();
        token
    }

    fn ignore(&mut self) {
        self.start = self.position;
        self.start_line = self.line;
    }

    fn accept(&mut self, valid: &[u8]) -> bool {
        let found = self
            .peek()
            .is_some_and(|next| u8::try_from(next).is_ok_and(|next| valid.contains(&next)));
        if found {
            self.next();
        }
        found
    }

    fn accept_run(&mut self, valid: &[u8]) {
        while self.accept(valid) {}
    }

    /// Text up to the next action, and the action's delimiter once there is no text. Comments are skipped.
    fn text(&mut self) -> Result<Token<'s>, String> {
        loop {
            let Some(length) = self.rest().find(LEFT) else {
                self.skip(self.rest().len());
                let kind = if self.position > self.start {
                    Kind::Text
                } else {
                    Kind::End
                };
                return Ok(self.token(kind));
            };
            let (text, action) = self.rest().split_at(length);
            let trimmed = action.get(LEFT.len()..).is_some_and(has_left_trim_marker);
            let kept = if trimmed {
                text.trim_end_matches(is_space).len()
            } else {
                length
            };
            self.skip(kept);
            if kept > 0 {
                let token = self.token(Kind::Text);
                self.skip(length.saturating_sub(kept));
                self.ignore();
                return Ok(token);
            }
            self.skip(length);
            self.ignore();
            self.action_start = self.start;
            let marker = if trimmed { TRIM_MARKER } else { 0 };
            let inner = action
                .get(LEFT.len().saturating_add(marker)..)
                .unwrap_or_default();
            if inner.starts_with(COMMENT_START) {
                self.skip(LEFT.len().saturating_add(marker));
                self.ignore();
                self.comment()?;
                continue;
            }
            self.skip(LEFT.len());
            let token = self.token(Kind::LeftDelimiter);
            self.inside_action = true;
            self.skip(marker);
            self.ignore();
            self.open_parentheses = 0;
            return Ok(token);
        }
    }

    fn comment(&mut self) -> Result<(), String> {
        self.skip(COMMENT_START.len());
        let Some(length) = self.rest().find(COMMENT_END) else {
            self.position = self.start;
            return Err(UNCLOSED_COMMENT.to_owned());
        };
        self.skip(length.saturating_add(COMMENT_END.len()));
        let Some(trim) = self.at_right_delimiter() else {
            return Err("comment ends before closing delimiter".to_owned());
        };
        self.skip_right_delimiter(trim);
        self.ignore();
        Ok(())
    }

    /// Whether a right delimiter comes next; true inside if it has a trim marker.
    fn at_right_delimiter(&self) -> Option<bool> {
        let rest = self.rest();
        if has_right_trim_marker(rest)
            && rest
                .get(TRIM_MARKER..)
                .is_some_and(|rest| rest.starts_with(RIGHT))
        {
            return Some(true);
        }
        rest.starts_with(RIGHT).then_some(false)
    }

    fn skip_right_delimiter(&mut self, trim: bool) {
        if trim {
            self.skip(TRIM_MARKER);
        }
        self.skip(RIGHT.len());
        if trim {
            let rest = self.rest();
            self.skip(rest.len().saturating_sub(rest.trim_start_matches(is_space).len()));
        }
    }

    fn right_delimiter(&mut self, trim: bool) -> Token<'s> {
        if trim {
            self.skip(TRIM_MARKER);
            self.ignore();
        }
        self.skip(RIGHT.len());
        let token = self.token(Kind::RightDelimiter);
        if trim {
            let rest = self.rest();
            self.skip(rest.len().saturating_sub(rest.trim_start_matches(is_space).len()));
            self.ignore();
        }
        self.inside_action = false;
        token
    }

    fn action(&mut self) -> Result<Token<'s>, String> {
        if let Some(trim) = self.at_right_delimiter() {
            if self.open_parentheses > 0 {
                return Err("unclosed left paren".to_owned());
            }
            return Ok(self.right_delimiter(trim));
        }
        let Some(first) = self.next() else {
            return Err(UNCLOSED_ACTION.to_owned());
        };
        match first {
            ' ' | '\t' | '\r' | '\n' => Ok(self.space()),
            '=' => Ok(self.token(Kind::Assign)),
            ':' => {
                if self.next() == Some('=') {
                    Ok(self.token(Kind::Declare))
                } else {
                    Err("expected :=".to_owned())
                }
            }
            '|' => Ok(self.token(Kind::Pipe)),
            '"' => self.quoted('"', Kind::String, "unterminated quoted string"),
            '\'' => self.quoted('\'', Kind::CharConstant, "unterminated character constant"),
            '`' => {
                let Some(length) = self.rest().find('`') else {
                    return Err("unterminated raw quoted string".to_owned());
                };
                self.skip(length.saturating_add(1));
                Ok(self.token(Kind::RawString))
            }
            '$' => self.name(Kind::Variable, Kind::Variable),
            '.' if self.peek().is_some_and(|next| !next.is_ascii_digit()) => {
                self.name(Kind::Field, Kind::Dot)
            }
            '.' | '+' | '-' | '0'..='9' => {
                self.position = self.start;
                self.number()
            }
            '(' => {
                self.open_parentheses = self.open_parentheses.saturating_add(1);
                Ok(self.token(Kind::LeftParenthesis))
            }
            ')' => {
                let Some(open) = self.open_parentheses.checked_sub(1) else {
                    return Err("unexpected right paren".to_owned());
                };
                self.open_parentheses = open;
                Ok(self.token(Kind::RightParenthesis))
            }
            _ if is_alphanumeric(first) => self.identifier(),
            ' '..='~' => Ok(self.token(Kind::Char)),
            _ => Err(format!("unrecognized character in action: {}", describe(first))),
        }
    }

    /// A run of space, without the space that is part of a right delimiter with a trim marker.
    fn space(&mut self) -> Token<'s> {
        let rest = self.rest();
        let more = rest.len().saturating_sub(rest.trim_start_matches(is_space).len());
        self.skip(more);
        let last = self.position.saturating_sub(1);
        let from_last = self.source.get(last..).unwrap_or_default();
        let delimits = has_right_trim_marker(from_last)
            && from_last
                .get(TRIM_MARKER..)
                .is_some_and(|rest| rest.starts_with(RIGHT));
        if delimits {
            self.position = last;
            if from_last.starts_with('\n') {
                self.line = self.line.saturating_sub(1);
            }
            if more == 0 {
                return self.right_delimiter(true);
            }
        }
        self.token(Kind::Space)
    }

    fn identifier(&mut self) -> Result<Token<'s>, String> {
        self.skip_word()?;
        let kind = match self.current() {
            "true" | "false" => Kind::Bool,
            word => Keyword::of(word).map_or(Kind::Identifier, Kind::Keyword),
        };
        Ok(self.token(kind))
    }

    /// A name after `.` or `$`, or only that character.
    fn name(&mut self, kind: Kind, alone: Kind) -> Result<Token<'s>, String> {
        if self.at_terminator() {
            return Ok(self.token(alone));
        }
        self.skip_word()?;
        Ok(self.token(kind))
    }

    fn skip_word(&mut self) -> Result<(), String> {
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
        match self.peek() {
            Some(next) if !self.at_terminator() => Err(format!("bad character {}", describe(next))),
            _ => Ok(()),
        }
    }

    fn at_terminator(&self) -> bool {
        self.peek()
            .is_none_or(|next| is_space(next) || matches!(next, '.' | ',' | '|' | ':' | ')' | '('))
            || self.rest().starts_with(RIGHT)
    }

    fn quoted(&mut self, quote: char, kind: Kind, problem: &str) -> Result<Token<'s>, String> {
        loop {
            let next = match self.next() {
                Some('\\') => self
                    .next()
                    .map(|_| '\\')
                    .filter(|_| !self.current().ends_with('\n')),
                next => next.filter(|next| *next != '\n'),
            };
            match next {
                Some(next) if next == quote => return Ok(self.token(kind)),
                Some(_) => {}
                None => return Err(problem.to_owned()),
            }
        }
    }

    fn number(&mut self) -> Result<Token<'s>, String> {
        let mut good = self.skip_number();
        if good && matches!(self.peek(), Some('+' | '-')) {
            if self.skip_number() && self.current().ends_with('i') {
                return Err(number::unsupported(self.current()));
            }
            good = false;
        }
        if good {
            Ok(self.token(Kind::Number))
        } else {
            Err(format!("bad number syntax: {}", format::quote(self.current())))
        }
    }

    /// Skips what looks like a number. Whether it is one shows when its value is computed.
    fn skip_number(&mut self) -> bool {
        const DECIMAL: &[u8] = b"0123456789_";
        self.accept(b"+-");
        let mut digits = DECIMAL;
        let mut exponent: &[u8] = b"eE";
        if self.accept(b"0") {
            if self.accept(b"xX") {
                digits = b"0123456789abcdefABCDEF_";
                exponent = b"pP";
            } else if self.accept(b"oO") {
                digits = b"01234567_";
                exponent = b"";
            } else if self.accept(b"bB") {
                digits = b"01_";
                exponent = b"";
            }
        }
        self.accept_run(digits);
        if self.accept(b".") {
            self.accept_run(digits);
        }
        if self.accept(exponent) {
            self.accept(b"+-");
            self.accept_run(DECIMAL);
        }
        self.accept(b"i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn has_left_trim_marker(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next() == Some('-') && characters.next().is_some_and(is_space)
}

fn has_right_trim_marker(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(is_space) && characters.next() == Some('-')
}

fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Go's `%#U`: the code point, and the character if it is printable.
fn describe(c: char) -> String {
    let code = u32::from(c);
    if format::quotes::is_print(c) {
        format!("U+{code:04X} '{c}'")
    } else {
        format!("U+{code:04X}")
    }
}
