//! Words of a text and their case, as Go's `strings.Title`, `github.com/Masterminds/goutils` and `github.com/huandu/xstrings` see them.

use super::letters::{
    is_letter, is_lower, is_punctuation, is_titlecase, is_upper, to_lower, to_title, to_upper,
};

/// Go's `strings.Title`: letters after what separates words in title case.
pub(super) fn title(text: &str) -> String {
    let mut previous = ' ';
    let mut convert = |character| {
        let converted = if separates(previous) {
            to_title(character)
        } else {
            character
        };
        previous = character;
        converted
    };
    text.chars().map(&mut convert).collect()
}

fn separates(character: char) -> bool {
    if character.is_ascii() {
        !character.is_ascii_alphanumeric() && character != '_'
    } else {
        character.is_whitespace()
    }
}

/// The first character of each word in lower case.
pub(super) fn untitle(text: &str) -> String {
    let mut is_start = true;
    let mut convert = |character: char| {
        if character.is_whitespace() {
            is_start = true;
            return character;
        }
        if std::mem::take(&mut is_start) {
            to_lower(character)
        } else {
            character
        }
    };
    text.chars().map(&mut convert).collect()
}

pub(super) fn swap_case(text: &str) -> String {
    let mut after_space = true;
    let mut convert = |character: char| {
        if is_upper(character) || is_titlecase(character) {
            after_space = false;
            to_lower(character)
        } else if is_lower(character) {
            if std::mem::take(&mut after_space) {
                to_title(character)
            } else {
                to_upper(character)
            }
        } else {
            after_space = character.is_whitespace();
            character
        }
    };
    text.chars().map(&mut convert).collect()
}

/// Each byte as the character with that number: sprig's `initials` and `nospace` take bytes for characters.
fn bytes_as_characters(text: &str) -> impl Iterator<Item = char> {
    text.bytes().map(char::from)
}

pub(super) fn initials(text: &str) -> String {
    let mut after_space = true;
    let mut is_initial = |character: &char| {
        if character.is_whitespace() {
            after_space = true;
            return false;
        }
        std::mem::take(&mut after_space)
    };
    bytes_as_characters(text).filter(&mut is_initial).collect()
}

pub(super) fn without_space(text: &str) -> String {
    if !bytes_as_characters(text).any(char::is_whitespace) {
        return text.to_owned();
    }
    bytes_as_characters(text)
        .filter(|character| !character.is_whitespace())
        .collect()
}

fn connects(character: char) -> bool {
    matches!(character, '-' | '_') || character.is_whitespace()
}

/// `xstrings.ToPascalCase`
pub(super) fn pascal_case(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut characters = text.chars();
    let mut was_upper = false;
    let mut last = None;
    for character in characters.by_ref() {
        last = Some(character);
        if !connects(character) {
            was_upper = is_upper(character);
            last = Some(to_upper(character));
            break;
        }
        result.push(character);
    }
    let Some(mut last) = last else { return result };
    for character in characters {
        let (previous, mut next) = (last, character);
        last = next;
        if connects(next) && connects(previous) {
            result.push(previous);
            continue;
        }
        if connects(previous) {
            was_upper = is_upper(next);
            next = to_upper(next);
        } else {
            if was_upper && is_upper(next) {
                next = to_lower(next);
            } else if was_upper {
                was_upper = false;
            }
            result.push(previous);
        }
        last = next;
    }
    result.push(last);
    result
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Only characters that mark invalid UTF-8, or nothing.
    Invalid,
    Number,
    /// Starts with an upper-case letter.
    Upper,
    Alphabet,
    Connector,
    Punctuation,
    Other,
}

/// `xstrings.ToSnakeCase` and `xstrings.ToKebabCase`.
pub(super) fn separated(text: &str, connector: char) -> String {
    let mut result = String::with_capacity(text.len() + text.len() / 2);
    let (mut kind, mut word, mut rest) = next_word(text);
    while !rest.is_empty() {
        if kind != Kind::Connector {
            push_lower(&mut result, kind, word, connector);
        }
        let (before, last) = (kind, word);
        (kind, word, rest) = next_word(rest);
        match before {
            Kind::Number => {
                (kind, word, rest) = push_while_alphanumeric(&mut result, (kind, word, rest), connector);
                if !matches!(kind, Kind::Invalid | Kind::Punctuation | Kind::Connector) {
                    result.push(connector);
                }
            }
            Kind::Connector => push_lower(&mut result, before, last, connector),
            Kind::Punctuation => {}
            _ if kind != Kind::Number => {
                if !matches!(kind, Kind::Connector | Kind::Punctuation) {
                    result.push(connector);
                }
            }
            _ if rest.is_empty() => {}
            _ => {
                let number = word;
                (kind, word, rest) = next_word(rest);
                if kind == Kind::Alphabet {
                    // Lower-case letters follow the number, so it starts a word: `HTTP2xx` is `http_2xx`.
                    result.push(connector);
                    push_lower(&mut result, Kind::Number, number, connector);
                    (kind, word, rest) = push_while_alphanumeric(&mut result, (kind, word, rest), connector);
                    if !matches!(kind, Kind::Invalid | Kind::Connector | Kind::Punctuation) {
                        result.push(connector);
                    }
                } else {
                    // The number ends a word: `Bld4Floor` is `bld4_floor`.
                    push_lower(&mut result, Kind::Number, number, connector);
                    if !matches!(kind, Kind::Connector | Kind::Punctuation) {
                        result.push(connector);
                    }
                }
            }
        }
    }
    push_lower(&mut result, kind, word, connector);
    result
}

type Word<'a> = (Kind, &'a str, &'a str);

fn push_while_alphanumeric<'a>(result: &mut String, mut word: Word<'a>, connector: char) -> Word<'a> {
    while matches!(word.0, Kind::Alphabet | Kind::Number) {
        push_lower(result, word.0, word.1, connector);
        word = next_word(word.2);
    }
    word
}

fn push_lower(result: &mut String, kind: Kind, word: &str, connector: char) {
    if !matches!(kind, Kind::Upper | Kind::Connector) {
        result.push_str(word);
        return;
    }
    result.extend(word.chars().map(|character| match character {
        character if connects(character) => connector,
        character if is_upper(character) => to_lower(character),
        character => character,
    }));
}

/// A letter that is not one of the common Chinese, Japanese or Korean ones.
fn is_alphabet(character: char) -> bool {
    is_letter(character)
        && !matches!(character, '\u{4E00}'..='\u{9FCC}' | '\u{3400}'..='\u{4D85}' | '\u{20000}'..='\u{2B81D}')
}

/// Reads characters, as long as they are of a kind, from a text. Replacement characters belong to the character after them.
struct Reader<'a> {
    text: &'a str,
    offset: usize,
    last: char,
}

impl Reader<'_> {
    /// The next character and where it ends. At the end, the last character is seen once more.
    fn peek(&self) -> Option<(char, usize)> {
        let rest = self.text.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let valid = rest
            .char_indices()
            .find(|(_, character)| *character != char::REPLACEMENT_CHARACTER);
        Some(match valid {
            Some((start, character)) => (character, self.offset + start + character.len_utf8()),
            None => (self.last, self.text.len()),
        })
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) {
        while let Some((character, end)) = self.peek() {
            self.last = character;
            if !belongs(character) {
                break;
            }
            self.offset = end;
        }
    }
}

fn next_word(text: &str) -> Word<'_> {
    let mut reader = Reader {
        text,
        offset: 0,
        last: char::REPLACEMENT_CHARACTER,
    };
    let Some((first, end)) = reader.peek() else {
        return (Kind::Invalid, "", "");
    };
    (reader.last, reader.offset) = (first, end);
    let kind = match first {
        char::REPLACEMENT_CHARACTER => Kind::Invalid,
        _ if connects(first) => {
            reader.take_while(connects);
            Kind::Connector
        }
        _ if is_punctuation(first) => {
            reader.take_while(is_punctuation);
            Kind::Punctuation
        }
        _ if is_upper(first) => {
            take_capitalized(&mut reader);
            Kind::Upper
        }
        _ if is_alphabet(first) => {
            reader.take_while(|character| is_alphabet(character) && !is_upper(character));
            Kind::Alphabet
        }
        _ if first.is_numeric() => {
            reader.take_while(char::is_numeric);
            Kind::Number
        }
        _ => {
            reader.take_while(|character| {
                !connects(character)
                    && !is_alphabet(character)
                    && !character.is_numeric()
                    && !is_punctuation(character)
            });
            Kind::Other
        }
    };
    let (word, rest) = text.split_at_checked(reader.offset).unwrap_or((text, ""));
    (kind, word, rest)
}

/// `HTTP` of `HTTPStatus`, or `Status`.
fn take_capitalized(reader: &mut Reader<'_>) {
    match reader.peek() {
        Some((second, end)) if is_upper(second) => {
            let mut before_last = reader.offset;
            (reader.last, reader.offset) = (second, end);
            while let Some((character, end)) = reader.peek() {
                reader.last = character;
                if !is_upper(character) {
                    break;
                }
                before_last = reader.offset;
                reader.offset = end;
            }
            if reader.offset < reader.text.len() && is_alphabet(reader.last) {
                reader.offset = before_last;
            }
        }
        Some((second, _)) if is_alphabet(second) => {
            reader.take_while(|character| is_alphabet(character) && !is_upper(character));
        }
        _ => {}
    }
}
