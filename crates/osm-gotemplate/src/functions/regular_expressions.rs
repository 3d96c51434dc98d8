//! Regular expressions, by the crate `regex`. Each call compiles its expression, whose size is limited and
//! charged.
//!
//! As in Go, `\d`, `\w`, `\s` and `\b` only know ASCII, and a class has no operators.

use regex::{Regex, RegexBuilder};

use super::table::table;
use super::{Call, Problem, at_most};
use crate::value::Value;

/// Longest expression.
const MAX_BYTES: usize = 1024;
/// Bytes that a compiled expression may take. The first size that suffices tells how long searching takes.
const SIZES: [usize; 5] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of a compiled expression for which reading one byte of a text is charged as one byte of input.
const BYTES_OF_FACTOR: usize = 16;
/// Bytes that a search may use to be fast.
const CACHE: usize = 1 << 20;
/// Steps of a part of an expression that may stand for all characters there are, and with `(?i)` for all
/// their variants.
const STEPS_OF_LARGE_CLASS: [u64; 2] = [1_000, 50_000];

table! {
    "regexMatch": (String, String) -> "bool", "Returns whether the expression matches within the text.", r#""^a+$" "aaa""# => "true",
        |call| Ok(Expression::compile(call)?.regex.is_match(call.text(1)).into());
    "regexFind": (String, String) -> "string", "Returns the first match in the text, or an empty text.", r#""[a-z]+" "1 ab 2""# => "ab",
        |call| call.made(Expression::compile(call)?.regex.find(call.text(1)).map_or("", |found| found.as_str()));
    "regexReplaceAll": (String, String, String) -> "string", "Returns the text with each match replaced by the last text, in which `$1` or `${name}` is a group.",
        r#""a(x*)b" "-ab-axxb-" "${1}W""# => "-W-xxW-", replace;
}

struct Expression {
    regex: Regex,
    /// As how many bytes of input one byte of a text is charged.
    factor: usize,
}

impl Expression {
    /// Compiles the first argument, and charges a search in the second.
    fn compile(call: &Call<'_>) -> Result<Self, Problem> {
        let text = at_most(call.text(0), MAX_BYTES, "a regular expression")?;
        call.budget.step(text.len() as u64)?;
        let is_large = !text.is_ascii() || ["\\x", "\\p", "\\P"].iter().any(|part| text.contains(part));
        let large_classes = if is_large {
            text.matches(['-', 'p', 'P']).count()
        } else {
            0
        };
        let [steps, steps_of_variants] = STEPS_OF_LARGE_CLASS;
        let steps = if text.contains("(?") {
            steps_of_variants
        } else {
            steps
        };
        let pattern = as_in_go(text);
        for size in SIZES {
            call.budget.step(steps.saturating_mul(large_classes as u64))?;
            call.budget.copy(size)?;
            let built = RegexBuilder::new(&pattern)
                .size_limit(size)
                .dfa_size_limit(CACHE)
                .build();
            match built {
                Ok(regex) => {
                    let factor = size / BYTES_OF_FACTOR;
                    let expression = Self { regex, factor };
                    expression.charge(call, call.text(1).len(), 1)?;
                    return Ok(expression);
                }
                Err(regex::Error::CompiledTooBig(_)) => {}
                Err(error) => {
                    // The last line of the message says what is wrong; those before show where.
                    let message = error.to_string();
                    let reason = message.lines().next_back().unwrap_or_default();
                    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
                    return Err(Problem::new(format!(
                        "the regular expression is not valid: {reason}"
                    )));
                }
            }
        }
        Err(Problem::new("the regular expression is too large"))
    }

    /// Charges a search. At worst, each character takes a step for each part of the expression. `nth` is how
    /// seldom that is.
    fn charge(&self, call: &Call<'_>, bytes: usize, nth: usize) -> Result<(), Problem> {
        call.budget.step(1)?;
        call.budget.read(bytes.saturating_mul(self.factor / nth))?;
        Ok(())
    }
}

/// The expression in the syntax of the crate, where it has another meaning than in Go.
fn as_in_go(expression: &str) -> String {
    let mut pattern = String::with_capacity(expression.len().saturating_mul(2));
    let mut in_class = false;
    let mut rest = expression.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some('d') => pattern.push_str("[0-9]"),
                Some('D') => pattern.push_str("[^0-9]"),
                Some('w') => pattern.push_str("[0-9A-Za-z_]"),
                Some('W') => pattern.push_str("[^0-9A-Za-z_]"),
                Some('s') => pattern.push_str(r"[\t\n\f\r\x20]"),
                Some('S') => pattern.push_str(r"[^\t\n\f\r\x20]"),
                Some('b') => pattern.push_str(r"(?-u:\b)"),
                Some('B') => pattern.push_str(r"(?-u:\B)"),
                other => {
                    pattern.push(c);
                    pattern.extend(other);
                }
            },
            '[' if !in_class => {
                in_class = true;
                pattern.push(c);
                // A bracket that comes first does not end the class.
                for first in ["^", "]"] {
                    if let Some(after) = rest.as_str().strip_prefix(first) {
                        pattern.push_str(first);
                        rest = after.chars();
                    }
                }
            }
            '[' => match rest.as_str().split_once(":]") {
                Some((name, after)) if name.starts_with(':') => {
                    pattern.extend(["[", name, ":]"]);
                    rest = after.chars();
                }
                _ => pattern.push_str("\\["),
            },
            '&' | '~' if in_class => pattern.extend(['\\', c]),
            ']' => {
                in_class = false;
                pattern.push(c);
            }
            c => pattern.push(c),
        }
    }
    pattern
}

fn replace(call: &Call<'_>) -> Result<Value, Problem> {
    let expression = Expression::compile(call)?;
    let (text, replacement) = (call.text(1), call.text(2));
    let groups = replacement.matches('$').count();
    let mut replaced = String::new();
    let mut end_of_last = 0;
    for captures in expression.regex.captures_iter(text) {
        let Some(whole) = captures.get(0) else { continue };
        // Most searches end at the next match.
        expression.charge(call, text.len().saturating_sub(whole.end()), 16)?;
        call.budget.step(groups as u64)?;
        // No group is longer than the match.
        let most = replacement
            .len()
            .saturating_add(groups.saturating_mul(whole.len()));
        call.budget
            .copy(whole.start().saturating_sub(end_of_last).saturating_add(most))?;
        replaced.push_str(text.get(end_of_last..whole.start()).unwrap_or_default());
        captures.expand(replacement, &mut replaced);
        end_of_last = whole.end();
    }
    let rest = text.get(end_of_last..).unwrap_or_default();
    call.budget.copy(rest.len())?;
    replaced.push_str(rest);
    Ok(Value::string(replaced))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_mean_what_they_mean_in_go() {
        let matches = |expression: &str, text: &str| {
            let regex = Regex::new(&as_in_go(expression));
            regex.is_ok_and(|regex| regex.find(text).is_some_and(|found| found.as_str() == text))
        };
        for (expression, same, others) in [
            (r"\d+", "19", ["٣", "a"]),
            (r"\D", "٣", ["1", "ab"]),
            (r"\w+", "aZ_0", ["ä", "-"]),
            (r"[^\W\d]+", "ab", ["1", "ä"]),
            (r"\s+", " \t\n", ["\u{a0}", "\u{b}"]),
            (r"[\S]", "\u{a0}", [" ", "\n"]),
            (r".\b.", "aä", ["ab", "äö"]),
            (r".\B.", "äö", ["aä", "a "]),
            (r"[[a]", "[", ["b", "]"]),
            (r"[a&&b]", "&", ["c", "\\"]),
            (r"[]a]", "]", ["[", "b"]),
            (r"[^]a]", "b", ["]", "a"]),
            (r"[[:alpha:]~-]+", "a~-", [":", "1"]),
            (r"\[\]]", "[]]", ["[", "]"]),
        ] {
            assert!(matches(expression, same), "{expression} {same}");
            for other in others {
                assert!(!matches(expression, other), "{expression} {other}");
            }
        }
    }
}
