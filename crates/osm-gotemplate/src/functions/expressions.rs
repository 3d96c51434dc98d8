//! Go's syntax of regular expressions, translated to that of the crate `regex`.
//!
//! The parser accepts what Go's `regexp/syntax` accepts, with its error texts. Flags such as `(?i)` are applied to each character and
//! class by itself; `\d`, `\s`, `\w` and `\b` have Go's meaning, which is that of ASCII.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::escapes::{
    after, before, error, parse_class_character, parse_escape, parse_posix_class, parse_repeat,
};

/// Largest number of repetitions, also of nested ones multiplied.
const MAX_REPEAT: u64 = 1000;
/// Groups within groups, fewer than Go permits: compiling takes stack for each.
const MAX_DEPTH: usize = 30;
/// Largest estimated size of the compiled expression.
const MAX_WEIGHT: u64 = 50_000;

/// An expression that the crate `regex` compiles.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) pattern: String,
    /// Names of the groups, by their number. The group 0 is the whole match.
    pub(super) names: Vec<String>,
    /// About how many characters and classes the expression has, counted as often as they are repeated.
    pub(super) weight: u64,
}

/// What a repetition applies to.
#[derive(Debug, Default)]
struct Item {
    text: String,
    weight: u64,
    /// A further repetition needs a group around.
    is_repeated: bool,
    /// The repetitions within, nested ones multiplied.
    repeats: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    folds_case: bool,
    is_multi_line: bool,
    dot_is_any: bool,
    is_lazy: bool,
}

/// A group that is not closed yet.
#[derive(Debug, Default)]
struct Group {
    opening: &'static str,
    flags_outside: Flags,
    done: Item,
    items: Vec<Item>,
}

struct Parser<'a> {
    whole: &'a str,
    flags: Flags,
    groups: Vec<Group>,
    current: Group,
    weight: u64,
    names: Vec<String>,
    /// Classes such as `\p{Greek}` that are known to exist.
    unicode_classes: BTreeSet<String>,
}

/// Translates an expression, or returns Go's error.
pub(super) fn translate(expression: &str) -> Result<Translated, String> {
    let mut parser = Parser {
        whole: expression,
        flags: Flags::default(),
        groups: Vec::new(),
        current: Group::default(),
        weight: 0,
        names: vec![String::new()],
        unicode_classes: BTreeSet::new(),
    };
    parser.parse()?;
    if !parser.groups.is_empty() {
        return Err(error("missing closing )", expression));
    }
    let item = parser.current.close();
    Ok(Translated {
        pattern: item.text,
        names: parser.names,
        weight: item.weight,
    })
}

impl Group {
    fn end_alternative(&mut self) {
        for item in self.items.drain(..) {
            self.done.text.push_str(&item.text);
            self.done.weight += item.weight;
            self.done.repeats = self.done.repeats.max(item.repeats);
        }
    }

    fn close(mut self) -> Item {
        self.end_alternative();
        self.done
    }
}

impl<'a> Parser<'a> {
    fn parse(&mut self) -> Result<(), String> {
        let mut text = self.whole;
        let mut last_repeat = "";
        while let Some(first) = text.chars().next() {
            let mut repeat = "";
            text = match first {
                '(' if text.starts_with("(?") => self.parse_flags(text)?,
                '(' => {
                    self.names.push(String::new());
                    self.open("(")?;
                    after(text, 1)
                }
                '|' => {
                    self.current.end_alternative();
                    self.current.done.text.push('|');
                    after(text, 1)
                }
                ')' => {
                    let outer = self
                        .groups
                        .pop()
                        .ok_or_else(|| error("unexpected )", self.whole))?;
                    let group = std::mem::replace(&mut self.current, outer);
                    self.flags = group.flags_outside;
                    let opening = group.opening;
                    let mut item = group.close();
                    item.text = format!("{opening}{})", item.text);
                    self.current.items.push(item);
                    after(text, 1)
                }
                '^' => self.push(
                    if self.flags.is_multi_line { "(?m:^)" } else { r"\A" },
                    after(text, 1),
                )?,
                '$' => self.push(
                    if self.flags.is_multi_line { "(?m:$)" } else { r"\z" },
                    after(text, 1),
                )?,
                '.' => {
                    self.add_weight(8)?;
                    self.push(
                        if self.flags.dot_is_any { "(?s:.)" } else { r"[^\n]" },
                        after(text, 1),
                    )?
                }
                '[' => self.parse_class(text)?,
                '*' | '+' | '?' => {
                    repeat = text;
                    let (min, max) = match first {
                        '*' => (0, None),
                        '+' => (1, None),
                        _ => (0, Some(1)),
                    };
                    self.repeat(min, max, text, after(text, 1), last_repeat)?
                }
                '{' => match parse_repeat(text) {
                    None => self.literal('{', after(text, 1))?,
                    Some((min, max, rest)) => {
                        let is_valid =
                            min <= MAX_REPEAT && max.is_none_or(|max| max <= MAX_REPEAT && min <= max);
                        if !is_valid {
                            return Err(error("invalid repeat count", before(text, rest)));
                        }
                        repeat = text;
                        self.repeat(min, max, text, rest, last_repeat)?
                    }
                },
                '\\' => self.parse_backslash(text)?,
                _ => self.literal(first, after(text, first.len_utf8()))?,
            };
            last_repeat = repeat;
        }
        Ok(())
    }

    fn add_weight(&mut self, weight: u64) -> Result<(), String> {
        self.weight = self.weight.saturating_add(weight);
        if self.weight > MAX_WEIGHT {
            return Err(error("expression too large", self.whole));
        }
        Ok(())
    }

    fn push<'t>(&mut self, text: &str, rest: &'t str) -> Result<&'t str, String> {
        self.add_weight(1)?;
        self.current.items.push(Item {
            text: text.to_owned(),
            weight: 1,
            ..Item::default()
        });
        Ok(rest)
    }

    fn literal<'t>(&mut self, character: char, rest: &'t str) -> Result<&'t str, String> {
        let escaped = regex::escape(character.encode_utf8(&mut [0; 4]));
        if self.flags.folds_case && (character.is_ascii_alphabetic() || !character.is_ascii()) {
            return self.push(&format!("(?i:{escaped})"), rest);
        }
        self.push(&escaped, rest)
    }

    fn open(&mut self, opening: &'static str) -> Result<(), String> {
        if self.groups.len() >= MAX_DEPTH {
            return Err(error("expression nests too deeply", self.whole));
        }
        let group = Group {
            opening,
            flags_outside: self.flags,
            ..Group::default()
        };
        self.groups.push(std::mem::replace(&mut self.current, group));
        self.add_weight(1)
    }

    /// Parses `(?P<name>`, `(?i)`, `(?i:` and their like.
    fn parse_flags<'t>(&mut self, text: &'t str) -> Result<&'t str, String> {
        let name_start = match text.as_bytes() {
            [b'(', b'?', b'P', b'<', _, ..] => Some(4),
            [b'(', b'?', b'<', _, ..] => Some(3),
            _ => None,
        };
        if let Some(start) = name_start {
            let invalid = |text| error("invalid named capture", text);
            let end = text.find('>').ok_or_else(|| invalid(text))?;
            let name = text.get(start..end).unwrap_or_default();
            let is_valid = |character: char| character.is_ascii_alphanumeric() || character == '_';
            let rest = after(text, end + 1);
            if name.is_empty() || !name.chars().all(is_valid) {
                return Err(invalid(before(text, rest)));
            }
            self.names.push(name.to_owned());
            self.open("(")?;
            return Ok(rest);
        }
        let (mut flags, mut is_set, mut saw_flag) = (self.flags, true, false);
        let mut rest = after(text, 2);
        while let Some(character) = rest.chars().next() {
            rest = after(rest, character.len_utf8());
            let flag = match character {
                'i' => &mut flags.folds_case,
                'm' => &mut flags.is_multi_line,
                's' => &mut flags.dot_is_any,
                'U' => &mut flags.is_lazy,
                '-' if is_set => {
                    (is_set, saw_flag) = (false, false);
                    continue;
                }
                ':' | ')' if is_set || saw_flag => {
                    if character == ':' {
                        self.open("(?:")?;
                    }
                    self.flags = flags;
                    return Ok(rest);
                }
                _ => break,
            };
            *flag = is_set;
            saw_flag = true;
        }
        Err(error("invalid or unsupported Perl syntax", before(text, rest)))
    }

    /// Repeats the last item. `text` starts with the operator, and `rest` is what follows it.
    fn repeat<'t>(
        &mut self,
        min: u64,
        max: Option<u64>,
        text: &str,
        rest: &'t str,
        last_repeat: &str,
    ) -> Result<&'t str, String> {
        let (is_lazy, rest) = match rest.strip_prefix('?') {
            Some(rest) => (!self.flags.is_lazy, rest),
            None => (self.flags.is_lazy, rest),
        };
        if !last_repeat.is_empty() {
            return Err(error(
                "invalid nested repetition operator",
                before(last_repeat, rest),
            ));
        }
        let operator = before(text, rest);
        let missing = || error("missing argument to repetition operator", operator);
        let item = self.current.items.last_mut().ok_or_else(missing)?;
        let count = max.unwrap_or(min);
        let is_counted = operator.starts_with('{');
        if is_counted && count > 0 {
            item.repeats = item.repeats.max(1).saturating_mul(count);
            if count >= 2 && item.repeats > MAX_REPEAT {
                return Err(error("invalid repeat count", operator));
            }
        }
        let bounds = match max {
            _ if !is_counted => operator.get(..1).unwrap_or_default().to_owned(),
            None => format!("{{{min},}}"),
            Some(max) => format!("{{{min},{max}}}"),
        };
        let lazy = if is_lazy { "?" } else { "" };
        item.text = match std::mem::replace(&mut item.is_repeated, true) {
            true => format!("(?:{}){bounds}{lazy}", item.text),
            false => format!("{}{bounds}{lazy}", item.text),
        };
        let weight = item.weight.saturating_mul(count.saturating_sub(1));
        item.weight = item.weight.saturating_add(weight);
        self.add_weight(weight)?;
        Ok(rest)
    }

    fn parse_backslash<'t>(&mut self, text: &'t str) -> Result<&'t str, String> {
        let rest = after(text, 2);
        match text.as_bytes().get(1) {
            Some(b'A') => return self.push(r"\A", rest),
            Some(b'z') => return self.push(r"\z", rest),
            Some(b'b') => return self.push(r"(?-u:\b)", rest),
            Some(b'B') => return self.push(r"(?-u:\B)", rest),
            Some(b'C') => return Err(error("invalid escape sequence", before(text, rest))),
            Some(b'Q') => {
                let (literals, rest) = rest.split_once(r"\E").unwrap_or((rest, ""));
                for character in literals.chars() {
                    self.literal(character, "")?;
                }
                return Ok(rest);
            }
            _ => {}
        }
        if let Some((class, rest)) = self.parse_class_escape(text)? {
            let class = if self.flags.folds_case {
                format!("(?i:[{class}])")
            } else {
                format!("[{class}]")
            };
            return self.push(&class, rest);
        }
        let (character, rest) = parse_escape(text)?;
        self.literal(character, rest)
    }

    /// Parses `\d`, `\pL` and their like, and returns their notation within brackets.
    fn parse_class_escape<'t>(&mut self, text: &'t str) -> Result<Option<(String, &'t str)>, String> {
        let class = match text.as_bytes() {
            [b'\\', b'd', ..] => "0-9",
            [b'\\', b'D', ..] => "[^0-9]",
            [b'\\', b's', ..] => r"\t\n\x0C\r\x20",
            [b'\\', b'S', ..] => r"[^\t\n\x0C\r\x20]",
            [b'\\', b'w', ..] => "0-9A-Za-z_",
            [b'\\', b'W', ..] => "[^0-9A-Za-z_]",
            [b'\\', b'p' | b'P', ..] => return self.parse_unicode_class(text).map(Some),
            _ => return Ok(None),
        };
        Ok(Some((class.to_owned(), after(text, 2))))
    }

    fn parse_unicode_class<'t>(&mut self, text: &'t str) -> Result<(String, &'t str), String> {
        let mut is_negated = text.starts_with(r"\P");
        let rest = after(text, 2);
        let (name, rest) = match rest.strip_prefix('{') {
            Some(named) => named
                .split_once('}')
                .ok_or_else(|| error("invalid character class range", text))?,
            None => rest
                .split_at_checked(rest.chars().next().map_or(0, char::len_utf8))
                .unwrap_or((rest, "")),
        };
        let written = before(text, rest);
        let name = match name.strip_prefix('^') {
            Some(name) => {
                is_negated = !is_negated;
                name
            }
            None => name,
        };
        let is_name =
            |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | ' ');
        let class = format!("\\{}{{{name}}}", if is_negated { 'P' } else { 'p' });
        let is_known = self.unicode_classes.contains(&class)
            || !name.is_empty() && name.chars().all(is_name) && regex::Regex::new(&class).is_ok();
        if !is_known {
            return Err(error("invalid character class range", written));
        }
        self.unicode_classes.insert(class.clone());
        self.add_weight(300)?;
        Ok((class, rest))
    }

    fn parse_class<'t>(&mut self, whole: &'t str) -> Result<&'t str, String> {
        let mut text = after(whole, 1);
        let mut class = "[".to_owned();
        if let Some(rest) = text.strip_prefix('^') {
            class.push('^');
            self.add_weight(8)?;
            text = rest;
        }
        let mut is_first = true;
        while is_first || !text.starts_with(']') {
            is_first = false;
            if let Some((name, rest)) = parse_posix_class(text)? {
                class.push_str(name);
                text = rest;
                continue;
            }
            if let Some((part, rest)) = self.parse_class_escape(text)? {
                class.push_str(&part);
                text = rest;
                continue;
            }
            let (low, rest) = parse_class_character(text, whole)?;
            let (high, rest) = match rest.as_bytes() {
                [b'-', next, ..] if *next != b']' => parse_class_character(after(rest, 1), whole)?,
                _ => (low, rest),
            };
            if high < low {
                return Err(error("invalid character class range", before(text, rest)));
            }
            let _ = write!(class, r"\x{{{:X}}}-\x{{{:X}}}", u32::from(low), u32::from(high));
            self.add_weight(2)?;
            text = rest;
        }
        class.push(']');
        let class = if self.flags.folds_case {
            format!("(?i:{class})")
        } else {
            class
        };
        self.push(&class, after(text, 1))
    }
}
