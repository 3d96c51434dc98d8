//! Bounds on template text, checked before it is parsed: the parser and its result recurse, and an
//! overflowing stack can't be caught. The parser has a guard of its own, but what makes a template of its
//! result has none.
//!
//! The scanner follows the grammar exactly where that decides what is a tag, and refuses the rare syntax (raw
//! blocks, `[` and `{` inside a tag) that would make it guess.

use crate::engine::Failure;

/// Largest template, in bytes. Parsing may read all of them again for each of the [`MAX_TAGS`].
pub(super) const MAX_BYTES: usize = 128 * 1024;
/// Most tags in one template; positions are counted from its start for each, so parsing takes longer than
/// linear.
pub(super) const MAX_TAGS: usize = 2000;
/// Deepest nesting of blocks, into which the parser recurses. Each `else` counts as one level, because that
/// is how it is stored.
pub(super) const MAX_BLOCK_DEPTH: usize = 24;
/// Deepest nesting of parentheses in a tag: the parser recurses into each, and an overflowing stack can't be
/// caught.
pub(super) const MAX_PARENTHESES: usize = 12;

/// Checks `source`.
pub(super) fn check(source: &str) -> Result<(), Failure> {
    if source.len() > MAX_BYTES {
        return Err(format!("is longer than {MAX_BYTES} bytes: split it").into());
    }
    let mut scanner = Scanner {
        source,
        at: 0,
        tags: 0,
        blocks: Vec::new(),
    };
    let scanned = scanner.run();
    scanned.map_err(|problem| {
        let before = source.get(..scanner.at).unwrap_or(source);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Failure::from(problem).at(line, column)
    })
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    /// How many were read, comments among them.
    tags: usize,
    blocks: Vec<Block>,
}

struct Block {
    at: usize,
    /// The levels that it takes: its own and one for each `else`.
    levels: usize,
}

impl<'a> Scanner<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some(skip) = self.rest().find("{{") {
            let text = self.rest().get(..skip).unwrap_or_default();
            let backslashes = text.len() - text.trim_end_matches('\\').len();
            self.at += skip;
            if backslashes == 1 {
                // Escaped; a second pair of braces right behind is escaped with it.
                self.at += if self.rest().starts_with("{{{{") { 4 } else { 2 };
                continue;
            }
            self.tag()?;
            self.tags += 1;
        }
        match self.blocks.last() {
            Some(open) => {
                self.at = open.at;
                Err("this block is never closed".to_owned())
            }
            None => Ok(()),
        }
    }

    /// At `{{`: moves behind the tag.
    fn tag(&mut self) -> Result<(), String> {
        if self.tags >= MAX_TAGS {
            return Err(format!("has more than {MAX_TAGS} tags: split it"));
        }
        let rest = self.rest();
        if rest.starts_with("{{{{") {
            return Err("raw blocks are not supported: write \\{{ for two literal braces".to_owned());
        }
        if let Some(comment) = rest.strip_prefix("{{!") {
            let spaces = comment.len() - comment.trim_start_matches(BLANKS).len();
            let dashed = comment
                .get(spaces..)
                .is_some_and(|comment| comment.starts_with("--"));
            let end = dashed
                .then(|| {
                    comment
                        .get(spaces + 2..)?
                        .find("--}}")
                        .map(|end| spaces + 2 + end + 4)
                })
                .flatten()
                .or_else(|| comment.find("}}").map(|end| end + 2));
            self.at += 3 + end.ok_or("the comment is not closed")?;
            return Ok(());
        }
        let inner = rest.get(2..).unwrap_or_default();
        let inner = inner.trim_start_matches(BLANKS);
        let inner = inner
            .strip_prefix('~')
            .unwrap_or(inner)
            .trim_start_matches(BLANKS);
        self.block(inner)?;
        // The brace of `{{{`.
        let body = inner.strip_prefix('{').unwrap_or(inner);
        let end = tag_end(body)?;
        self.at = self.source.len() - body.len() + end;
        Ok(())
    }

    fn block(&mut self, inner: &str) -> Result<(), String> {
        // After other names than plain ones, the parser finds another end of the tag than `tag_end`.
        let is_plain = |name: &str| {
            let name = name.trim_start_matches(BLANKS);
            name.starts_with(|c: char| c.is_alphanumeric() || "-_./".contains(c))
        };
        if let Some(name) = inner.strip_prefix('>') {
            if !is_plain(name) {
                return Err("a partial is included by its plain name, {{> name}}".to_owned());
            }
        } else if let Some(name) = inner.strip_prefix('#') {
            if !is_plain(name) {
                return Err(
                    "partial blocks and inline partials are not supported: use a named template".to_owned(),
                );
            }
            self.blocks.push(Block {
                at: self.at,
                levels: 1,
            });
        } else if inner.starts_with('*') {
            return Err("decorators are not supported: use a named template".to_owned());
        } else if inner.starts_with('/') {
            if self.blocks.pop().is_none() {
                return Err("closes a block that is not open".to_owned());
            }
        } else if inner.starts_with('^') || inner.starts_with("else") {
            // Also any name that starts so: too deep by one at worst.
            if let Some(open) = self.blocks.last_mut() {
                open.levels += 1;
            }
        }
        if self.blocks.iter().map(|open| open.levels).sum::<usize>() > MAX_BLOCK_DEPTH {
            return Err(format!(
                "blocks are nested more than {MAX_BLOCK_DEPTH} deep (each else counts as one)"
            ));
        }
        Ok(())
    }
}

const BLANKS: [char; 4] = [' ', '\t', '\n', '\r'];

/// Where the tag ends whose inside starts `body`.
fn tag_end(body: &str) -> Result<usize, String> {
    let mut depth = 0_usize;
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' | '\'' => loop {
                match chars.next() {
                    Some((_, '\\')) => _ = chars.next(),
                    Some((_, end)) if end == c => break,
                    Some(_) => {}
                    None => return Err("a string in the tag is not closed".to_owned()),
                }
            },
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '[' => return Err("square brackets are not supported in a tag: use lookup".to_owned()),
            '{' => {
                return Err("a brace in a tag: write \\{{ where the text has two literal braces".to_owned());
            }
            '}' if body.get(at..).is_some_and(|rest| rest.starts_with("}}")) => {
                let braces = body
                    .get(at..)
                    .map_or(0, |rest| rest.len() - rest.trim_start_matches('}').len());
                // `}}}` closes `{{{`; more braces are text.
                return Ok(at + braces.min(2));
            }
            _ => {}
        }
        if depth > MAX_PARENTHESES {
            return Err(format!("parentheses are nested more than {MAX_PARENTHESES} deep"));
        }
    }
    Err("the tag is not closed: write \\{{ where the text has two literal braces".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(source: &str) -> String {
        check(source).unwrap_err().problem
    }

    #[test]
    fn ordinary_templates_pass() {
        for source in [
            "",
            "plain ${x} $(( 1 )) ${#x} }} {% [ ]",
            "{{a.b}} {{{a}}} {{~a~}} {{#if (eq a \"}}\")}}x{{else if b}}y{{else}}z{{/if}}",
            "{{! {{#if x}}{{!-- }} {{#if}} --}}",
            "\\{{not a tag (((((((((((((((((((((( \\{{{{ also not",
            "{{> name.with-all/chars_1 key=(concat \"a\" 'b')}}",
            "{{#each a as |v k|}}{{v}}{{/each}}",
        ] {
            assert!(check(source).is_ok(), "{source}");
        }
    }

    #[test]
    fn what_would_overflow_is_refused_where_it_stands() {
        assert!(problem(&"{{#if a}}".repeat(100_000)).contains("longer than"));
        assert!(problem(&"{{#if a}}".repeat(1000)).contains("nested more than"));
        assert!(problem(&"{{a}}".repeat(MAX_TAGS + 1)).contains("tags"));
        assert!(
            problem(&format!("{{{{#if a}}}}{}", "{{else if b}}".repeat(1000))).contains("nested more than")
        );
        assert!(problem(&format!("{{{{a {}", "(b ".repeat(1000))).contains("parentheses"));
        assert!(problem(&"{{ ~ # if a}}".repeat(1000)).contains("nested more than"));
        // The parser would see a string that goes on.
        let parentheses = "(not ".repeat(1000);
        for tag in ["> 'a\\\\'", "#> 'a\\\\'", "#* 'a\\\\'", "* 'a\\\\'"] {
            let source = format!("{{{{{tag}}}}}{{{{!-- ' }}}}{{{{not {parentheses}yes --}}}}");
            assert!(
                problem(&source).contains("partial") || problem(&source).contains("decorators"),
                "{tag}"
            );
        }
        // A comment or a string does not hide blocks from the count.
        assert!(problem(&"{{#if a}}{{!-- {{/if}} --}}".repeat(1000)).contains("nested more than"));
        assert!(problem(&"{{#if a}}{{concat \"{{/if}}\"}}".repeat(1000)).contains("nested more than"));
        assert!(problem(&"{{#if a}}\\{{/if}}".repeat(1000)).contains("nested more than"));
        let at = check("one\ntwo {{a [b]}}").unwrap_err();
        assert_eq!((at.line, at.column), (Some(2), Some(5)));
    }

    #[test]
    fn what_is_not_supported_says_so() {
        for source in [
            "{{{{raw}}}}x{{{{/raw}}}}",
            "{{> [a]}}",
            "{{a [b]}}",
            "{{a {\"b\":1}}}",
            "{{a",
            "{{a \"}}",
            "{{! a",
            "{{#if a}}",
            "{{/if}}",
            "{{#if a}}{{/if}}{{/if}}",
        ] {
            assert!(check(source).is_err(), "{source}");
        }
    }
}
