//! Characters as Go's package `unicode` sees them: simple case mappings, which keep the number of characters, and categories.

use std::sync::LazyLock;

use regex::Regex;

/// `unicode.ToUpper`
pub(super) fn to_upper(character: char) -> char {
    match character {
        '\u{1F80}'..='\u{1F87}' | '\u{1F90}'..='\u{1F97}' | '\u{1FA0}'..='\u{1FA7}' => shifted(character, 8),
        '\u{1FB3}' | '\u{1FC3}' | '\u{1FF3}' => shifted(character, 9),
        _ => single(character.to_uppercase(), character),
    }
}

/// `unicode.ToLower`
pub(super) fn to_lower(character: char) -> char {
    match character {
        '\u{130}' => 'i',
        _ => single(character.to_lowercase(), character),
    }
}

fn shifted(character: char, by: u32) -> char {
    char::from_u32(u32::from(character) + by).unwrap_or(character)
}

/// The only character of a mapping. A mapping to more characters is no simple one.
fn single(mut mapping: impl Iterator<Item = char>, character: char) -> char {
    match (mapping.next(), mapping.next()) {
        (Some(mapped), None) => mapped,
        _ => character,
    }
}

/// Characters of a general category. Rust's own predicates are of derived properties, which have more characters.
macro_rules! categories {
    ($($name:ident, $category:literal, $ascii:expr;)*) => {
        $(pub(crate) fn $name(character: char) -> bool {
            static CATEGORY: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(concat!("^\\p{", $category, "}$")).ok());
            if character.is_ascii() {
                let is_one: fn(char) -> bool = $ascii;
                return is_one(character);
            }
            let category = CATEGORY.as_ref();
            category.is_some_and(|category| category.is_match(character.encode_utf8(&mut [0; 4])))
        })*
    };
}

categories! {
    is_letter, "L", |character| character.is_ascii_alphabetic();
    is_digit, "Nd", |character| character.is_ascii_digit();
}
