//! The order in which `gopkg.in/yaml.v3` writes the keys of a map: `a2` goes before `a10`, and letters after other characters.

use std::rc::Rc;
use std::sync::OnceLock;

use regex::Regex;

use crate::budget::{Budget, Exhausted};

/// Sorts entries by key. It never relies on the order being total, since that of yaml.v3 is not for all keys.
pub(super) fn sort<T: Clone>(
    entries: Vec<(Rc<str>, T)>,
    budget: &dyn Budget,
) -> Result<Vec<(Rc<str>, T)>, Exhausted> {
    let rounds = usize::try_from(entries.len().checked_ilog2().unwrap_or(0))
        .unwrap_or(0)
        .saturating_add(1);
    let mut order: Vec<(Rc<[char]>, usize)> = Vec::with_capacity(entries.len());
    for (index, (key, _)) in entries.iter().enumerate() {
        budget.copy(key.len().saturating_mul(4))?;
        budget.read(key.len().saturating_mul(rounds))?;
        order.push((key.chars().collect(), index));
    }
    let mut width = 1;
    while width < order.len() {
        let mut merged = Vec::with_capacity(order.len());
        for pair in order.chunks(width.saturating_mul(2)) {
            let (left, right) = pair.split_at_checked(width).unwrap_or((pair, &[]));
            let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
            while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
                let next = if is_less(&b.0, &a.0) {
                    right.next()
                } else {
                    left.next()
                };
                merged.extend(next.cloned());
            }
            merged.extend(left.cloned());
            merged.extend(right.cloned());
        }
        order = merged;
        width = width.saturating_mul(2);
    }
    Ok(order
        .into_iter()
        .filter_map(|(_, index)| entries.get(index).cloned())
        .collect())
}

/// `keyList.Less` of yaml.v3's `sorter.go`.
fn is_less(a: &[char], b: &[char]) -> bool {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (Some(first), Some(second)) = (a.get(common), b.get(common)) else {
        return a.len() < b.len();
    };
    let same = a.get(..common).unwrap_or_default();
    let after_digit = same.last().is_some_and(|c| is_digit(*c));
    match (is_letter(*first), is_letter(*second)) {
        (true, true) => return first < second,
        (true, false) => return after_digit,
        (false, true) => return !after_digit,
        (false, false) => {}
    }
    // A zero after other digits counts as one.
    let has_zero = *first == '0' || *second == '0';
    let digits_before = same.iter().rev().take_while(|c| is_digit(**c));
    let start = i64::from(has_zero && digits_before.into_iter().any(|c| *c != '0'));
    let (first_number, first_length) = number(a.get(common..).unwrap_or_default(), start);
    let (second_number, second_length) = number(b.get(common..).unwrap_or_default(), start);
    if first_number != second_number {
        return first_number < second_number;
    }
    if first_length != second_length {
        return first_length < second_length;
    }
    first < second
}

fn number(chars: &[char], start: i64) -> (i64, usize) {
    let digits = chars.iter().take_while(|c| is_digit(**c));
    let mut number = start;
    let mut length: usize = 0;
    for digit in digits {
        let value = i64::from(u32::from(*digit)).wrapping_sub(i64::from(u32::from('0')));
        number = number.wrapping_mul(10).wrapping_add(value);
        length = length.saturating_add(1);
    }
    (number, length)
}

fn is_digit(c: char) -> bool {
    static DIGIT: OnceLock<Option<Regex>> = OnceLock::new();
    if c.is_ascii() {
        c.is_ascii_digit()
    } else {
        is_in(c, &DIGIT, r"\p{Nd}")
    }
}

fn is_letter(c: char) -> bool {
    static LETTER: OnceLock<Option<Regex>> = OnceLock::new();
    if c.is_ascii() {
        c.is_ascii_alphabetic()
    } else {
        is_in(c, &LETTER, r"\p{L}")
    }
}

/// Whether a character is in a category of Unicode.
fn is_in(c: char, cell: &'static OnceLock<Option<Regex>>, category: &str) -> bool {
    let regex = cell.get_or_init(|| Regex::new(category).ok());
    regex
        .as_ref()
        .is_some_and(|regex| regex.is_match(c.encode_utf8(&mut [0; 4])))
}
