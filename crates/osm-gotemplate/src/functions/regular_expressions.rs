//! Regular expressions, with Go's syntax and results. Each call compiles its expression, whose size is limited and charged.

use regex::{Captures, Regex, RegexBuilder};

use super::escapes::error;
use super::expressions::translate;
use super::letters::{is_digit, is_letter};
use super::table::table;
use super::{Call, Problem, at_most};
use crate::format::quote;
use crate::value::Value;

/// Longest expression. Compiling a class takes time for each of its characters.
const MAX_BYTES: usize = 1024;
/// Bytes that a compiled expression may take.
const SIZE_LIMIT: usize = 4 << 20;
/// Nesting of the translated expression, which has more groups than the original.
const NEST_LIMIT: u32 = 500;

table! {
    "regexMatch": (String, String) -> "bool", "Returns whether the expression matches within the text.", r#""^a+$" "aaa""# => "true",
        |call| Ok(is_match(call).or_else(unless_exhausted)?.into());
    "regexFind": (String, String) -> "string", "Returns the first match in the text, or an empty text.", r#""[a-z]+" "1 ab 2""# => "ab",
        |call| find(call, &Expression::compile_or_panic(call)?);
    "regexReplaceAll": (String, String, String) -> "string", "Returns the text with each match replaced by the last text, in which `$1` or `${name}` is a group.",
        r#""a(x*)b" "-ab-axxb-" "${1}W""# => "-W-xxW-", |call| replace(call, &Expression::compile_or_panic(call)?);
}

struct Expression {
    regex: Regex,
    names: Vec<String>,
    weight: u64,
}

impl Expression {
    /// Compiles the first argument.
    fn compile(call: &Call<'_>) -> Result<Self, Problem> {
        let text = at_most(call.text(0), MAX_BYTES, "a regular expression")?;
        call.budget.step(text.len() as u64)?;
        let translated = translate(text).map_err(Problem::new)?;
        call.budget.step(translated.weight.saturating_add(10))?;
        call.budget
            .copy(usize::try_from(translated.weight.saturating_mul(64)).unwrap_or(usize::MAX))?;
        let mut builder = RegexBuilder::new(&translated.pattern);
        builder
            .size_limit(SIZE_LIMIT)
            .dfa_size_limit(SIZE_LIMIT)
            .nest_limit(NEST_LIMIT);
        let regex = builder
            .build()
            .map_err(|_| Problem::new(error("expression too large", text)))?;
        Ok(Self {
            regex,
            names: translated.names,
            weight: translated.weight,
        })
    }

    /// Compiles the first argument, and fails as Go's `regexp.MustCompile` panics.
    fn compile_or_panic(call: &Call<'_>) -> Result<Self, Problem> {
        Self::compile(call).map_err(|problem| match problem {
            Problem::Failed(message) => {
                let text = call.text(0);
                let can_use_backquotes = !text.chars().any(|character| {
                    character == '`' || character == '\u{FEFF}' || character.is_control() && character != '\t'
                });
                let text = if can_use_backquotes {
                    format!("`{text}`")
                } else {
                    quote(text)
                };
                Problem::Failed(format!("regexp: Compile({text}): {message}"))
            }
            problem => problem,
        })
    }

    /// Charges a search in a text. Each character takes at most a step for each part of the expression, which is slower than copying.
    fn charge(&self, call: &Call<'_>, bytes: usize) -> Result<(), Problem> {
        let factor = usize::try_from(self.weight / 16 + 4).unwrap_or(usize::MAX);
        call.budget.step(1)?;
        call.budget.read(bytes.saturating_mul(factor))?;
        Ok(())
    }

    /// The matches in the text, each charged for the text that is left.
    fn matches<'t>(
        &self,
        call: &Call<'_>,
        text: &'t str,
        limit: usize,
    ) -> Result<Vec<Captures<'t>>, Problem> {
        let mut matches = Vec::new();
        if limit == 0 {
            return Ok(matches);
        }
        self.charge(call, text.len())?;
        for captures in self.regex.captures_iter(text) {
            let end = captures.get(0).map_or(0, |whole| whole.end());
            self.charge(call, text.len().saturating_sub(end))?;
            call.budget.copy(
                captures
                    .len()
                    .saturating_mul(size_of::<usize>() * 2)
                    .saturating_add(size_of::<Captures>()),
            )?;
            matches.push(captures);
            if matches.len() >= limit {
                break;
            }
        }
        Ok(matches)
    }

    fn group<'t>(&self, call: &Call<'_>, captures: &Captures<'t>, name: &str) -> Result<&'t str, Problem> {
        let is_number =
            name.bytes().all(|byte| byte.is_ascii_digit()) && (name.len() == 1 || !name.starts_with('0'));
        let group = if is_number {
            name.parse().ok().and_then(|number: usize| captures.get(number))
        } else {
            call.budget.step(self.names.len() as u64)?;
            let mut groups = self.names.iter().enumerate().filter(|(_, known)| *known == name);
            groups.find_map(|(number, _)| captures.get(number))
        };
        Ok(group.map_or("", |group| group.as_str()))
    }
}

/// sprig ignores what is wrong with the expression of `regexMatch`.
fn unless_exhausted(problem: Problem) -> Result<bool, Problem> {
    match problem {
        Problem::Failed(_) => Ok(false),
        exhausted => Err(exhausted),
    }
}

fn is_match(call: &Call<'_>) -> Result<bool, Problem> {
    let expression = Expression::compile(call)?;
    expression.charge(call, call.text(1).len())?;
    Ok(expression.regex.is_match(call.text(1)))
}

fn find(call: &Call<'_>, expression: &Expression) -> Result<Value, Problem> {
    expression.charge(call, call.text(1).len())?;
    let found = expression.regex.find(call.text(1));
    call.made(found.map_or("", |found| found.as_str()))
}

/// The whole match.
fn whole<'t>(captures: &Captures<'t>) -> (usize, usize, &'t str) {
    captures
        .get(0)
        .map_or((0, 0, ""), |whole| (whole.start(), whole.end(), whole.as_str()))
}

fn replace(call: &Call<'_>, expression: &Expression) -> Result<Value, Problem> {
    let (text, replacement) = (call.text(1), call.text(2));
    let mut replaced = String::new();
    let mut push = |part: &str| -> Result<(), Problem> {
        call.budget.copy(part.len())?;
        replaced.push_str(part);
        Ok(())
    };
    let mut end_of_last = 0;
    for captures in expression.matches(call, text, usize::MAX)? {
        let (start, end, _) = whole(&captures);
        push(text.get(end_of_last..start).unwrap_or_default())?;
        expand(call, expression, &captures, replacement, &mut push)?;
        end_of_last = end;
    }
    push(text.get(end_of_last..).unwrap_or_default())?;
    Ok(Value::string(replaced))
}

/// Go's `Regexp.Expand`: `$1`, `$name` and `${name}` are groups, and `$$` is a dollar sign.
fn expand(
    call: &Call<'_>,
    expression: &Expression,
    captures: &Captures<'_>,
    template: &str,
    push: &mut impl FnMut(&str) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut left = template;
    while let Some((before, after)) = left.split_once('$') {
        call.budget.step(1)?;
        push(before)?;
        left = match (after.strip_prefix('$'), group_name(after)) {
            (Some(rest), _) => {
                push("$")?;
                rest
            }
            (None, Some((name, rest))) => {
                push(expression.group(call, captures, name)?)?;
                rest
            }
            (None, None) => {
                push("$")?;
                after
            }
        };
    }
    push(left)
}

/// The name at the start of a text, which can be in braces, and what follows it.
fn group_name(text: &str) -> Option<(&str, &str)> {
    let braced = text.strip_prefix('{');
    let start = braced.unwrap_or(text);
    let is_part = |character: char| is_letter(character) || is_digit(character) || character == '_';
    let end = start.find(|character| !is_part(character)).unwrap_or(start.len());
    let (name, rest) = start.split_at_checked(end).filter(|(name, _)| !name.is_empty())?;
    let rest = if braced.is_some() {
        rest.strip_prefix('}')?
    } else {
        rest
    };
    Some((name, rest))
}
