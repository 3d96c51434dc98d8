//! Parsing templates: into what Handlebars' own parser makes of them, which takes hundreds of instructions for each
//! character, and counts the lines from the start for each tag. That one is left what is unusual, and what is wrong.

use std::ops::Range;
use std::sync::LazyLock;

use ::handlebars::template::{DecoratorTemplate, HelperTemplate, TemplateElement, TemplateMapping};
use ::handlebars::{Template, TemplateError};

use super::tag::{self, Kind, Tag};

const SPACES: [char; 2] = [' ', '\t'];
const LINE_ENDS: [char; 2] = ['\n', '\r'];

/// Parses a template whose tags are at `tags`. The result is that of Handlebars' own parser.
///
/// # Errors
/// That of Handlebars' own parser.
pub(crate) fn parse(name: &str, source: &str, tags: &[Range<usize>]) -> Result<Template, TemplateError> {
    match usual(source, tags) {
        Some(template) => Ok(named(name, template)),
        None => Template::compile_with_name(source, name.to_owned()),
    }
}

fn named(name: &str, mut template: Template) -> Template {
    template.name = Some(name.to_owned());
    template
}

/// Parses a template all of whose tags are of the usual shapes.
fn usual(source: &str, tags: &[Range<usize>]) -> Option<Template> {
    let mut parser = Parser {
        source,
        template: Template::new(),
        blocks: Vec::new(),
        place: Place { offset: 0, line: 1, column: 1 },
        trims_line: false,
        trims_blanks: false,
    };
    let mut done = 0;
    for range in tags {
        parser.text(done..range.start)?;
        parser.tag(range)?;
        done = range.end;
    }
    parser.text(done..source.len())?;
    parser.blocks.is_empty().then_some(parser.template)
}

struct Parser<'a> {
    source: &'a str,
    /// What is being read: the template itself, or a part of the innermost block.
    template: Template,
    /// Open blocks, innermost last.
    blocks: Vec<Block>,
    place: Place,
    /// Whether the next text loses the rest of its first line: the tag before stands alone on it.
    trims_line: bool,
    /// Whether the next text loses its blanks: the tag before has a `~`.
    trims_blanks: bool,
}

/// An open block.
struct Block {
    /// What it stands in, as far as that goes.
    outer: Template,
    /// What opens it, and then each `else if`. The last one's template is being read.
    heads: Vec<HelperTemplate>,
    /// Whether it is the `else` that is being read: all have their templates.
    otherwise: bool,
}

impl Parser<'_> {
    /// The text before a tag, or at the end.
    fn text(&mut self, range: Range<usize>) -> Option<()> {
        let text = self.source.get(range.clone())?;
        // Escaped braces, and backslashes before a tag.
        if text.contains("{{") || (text.ends_with('\\') && range.end < self.source.len()) {
            return None;
        }
        let body = text.trim_start_matches([' ', '\t', '\n', '\r']);
        let start = if range.start == 0 { 0 } else { range.end - body.len() };
        if text.is_empty() || (start == range.end && self.trims_blanks) {
            return Some(());
        }
        let text = if self.trims_blanks {
            text.trim_start()
        } else if self.trims_line {
            let rest = text.trim_start_matches(SPACES);
            rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n')).unwrap_or(rest)
        } else {
            text
        };
        self.trims_line = false;
        self.push(TemplateElement::RawString(text.to_owned()), start)
    }

    fn tag(&mut self, range: &Range<usize>) -> Option<()> {
        let Tag { kind, trims_before, trims_after } = tag::read(self.source.get(range.clone())?)?;
        if trims_before && let Some(TemplateElement::RawString(text)) = self.template.elements.last_mut() {
            text.truncate(text.trim_end().len());
        }
        if !matches!(kind, Kind::Comment(_)) {
            self.trims_blanks = trims_after;
        }
        if !matches!(kind, Kind::Expression(_)) {
            self.trims_line = self.stands_alone(range)?;
        }
        let indents = self.trims_line && !trims_before;
        match kind {
            Kind::Expression(expression) => {
                let expression = Box::new(HelperTemplate::new(expression, false, false));
                self.push(TemplateElement::Expression(expression), range.start)
            }
            Kind::Comment(text) => self.push(TemplateElement::Comment(text.to_owned()), range.start),
            Kind::Include(include) => {
                let mut include = DecoratorTemplate::new(include, indents);
                let before = self.source.get(..range.start)?;
                let spaces = before.get(before.trim_end_matches(SPACES).len()..)?;
                include.indent = (!spaces.is_empty() && !trims_before).then(|| spaces.to_owned());
                self.push(TemplateElement::PartialExpression(Box::new(include)), range.start)
            }
            Kind::Open(head) => {
                let mapping = self.mapping(range.start)?;
                self.template.mapping.push(mapping);
                let outer = std::mem::take(&mut self.template);
                let heads = vec![HelperTemplate::new(head, true, indents)];
                self.blocks.push(Block { outer, heads, otherwise: false });
                Some(())
            }
            Kind::ElseIf(head) => {
                let block = self.end_of_branch()?;
                block.heads.push(HelperTemplate::new_chain(head, true, indents));
                Some(())
            }
            Kind::Else => {
                self.end_of_branch()?.otherwise = true;
                Some(())
            }
            Kind::Close(name) => self.close(name),
        }
    }

    /// What was read is the template of the innermost block's last head.
    fn end_of_branch(&mut self) -> Option<&mut Block> {
        let block = self.blocks.last_mut().filter(|block| !block.otherwise)?;
        block.heads.last_mut()?.template = Some(std::mem::take(&mut self.template));
        Some(block)
    }

    /// Puts a block together: each `else if` is the `else` of the one before.
    fn close(&mut self, name: &str) -> Option<()> {
        if !self.blocks.last()?.otherwise {
            self.end_of_branch()?;
        }
        let Block { outer, mut heads, otherwise } = self.blocks.pop()?;
        let last = std::mem::replace(&mut self.template, outer);
        let mut inverse = otherwise.then_some(last);
        let chained = heads.len() > 1;
        while let Some(mut head) = heads.pop() {
            head.inverse = inverse.take();
            if heads.is_empty() {
                head.chain = chained;
                let fits = head.name.as_name() == Some(name);
                self.template.elements.push(TemplateElement::HelperBlock(Box::new(head)));
                return fits.then_some(());
            }
            let mut of_chain = Template::new();
            of_chain.elements.push(TemplateElement::HelperBlock(Box::new(head)));
            inverse = Some(of_chain);
        }
        None
    }

    /// Whether a tag stands alone on its line, or lines. Then it loses what it is indented by.
    fn stands_alone(&mut self, tag: &Range<usize>) -> Option<bool> {
        let before = self.source.get(..tag.start)?.trim_end_matches(SPACES);
        let after = self.source.get(tag.end..)?;
        let alone = (after.is_empty() || after.trim_start_matches(SPACES).starts_with(LINE_ENDS))
            && (before.is_empty() || before.ends_with(LINE_ENDS));
        if alone && let Some(TemplateElement::RawString(text)) = self.template.elements.last_mut() {
            text.truncate(text.trim_end_matches(SPACES).len());
        }
        Some(alone)
    }

    fn push(&mut self, element: TemplateElement, offset: usize) -> Option<()> {
        let mapping = self.mapping(offset)?;
        self.template.elements.push(element);
        self.template.mapping.push(mapping);
        Some(())
    }

    /// The place of what stands at `offset`. To be asked in order.
    fn mapping(&mut self, offset: usize) -> Option<TemplateMapping> {
        // It has no public constructor.
        static ANY: LazyLock<Option<TemplateMapping>> =
            LazyLock::new(|| Template::compile("x").ok()?.mapping.pop());
        self.place = self.place.advance(self.source, offset)?;
        let mut mapping = ANY.clone()?;
        (mapping.0, mapping.1) = (self.place.line, self.place.column);
        Some(mapping)
    }
}

/// A place in a source: line and column from 1; columns count characters.
#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    line: usize,
    column: usize,
}

impl Place {
    fn advance(self, source: &str, offset: usize) -> Option<Self> {
        let text = source.get(self.offset..offset)?;
        Some(match text.rsplit_once('\n') {
            Some((lines, last)) => Self {
                offset,
                line: self.line + 1 + lines.matches('\n').count(),
                column: 1 + last.chars().count(),
            },
            None => Self { offset, column: self.column + text.chars().count(), ..self },
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::scan;
    use super::*;

    fn same(source: &str) {
        let Ok(scanned) = scan::check(source) else { return };
        let plain = Template::compile_with_name(source, "x".to_owned());
        match parse("x", source, &scanned.tags) {
            Ok(template) => assert_eq!(Ok(template), plain.map_err(|_| ()), "{source:?}"),
            Err(error) => assert_eq!(error.pos(), plain.unwrap_err().pos(), "{source:?}"),
        }
    }

    #[test]
    fn built_in_templates_are_parsed_as_they_stand() {
        for (_, spec) in crate::defaults() {
            let spec = crate::resolve(&spec).unwrap().spec.0;
            for config in [&spec.bootstrap_config, &spec.provisioning_config] {
                let files = config.files.iter().filter_map(|file| file.content.inline.as_ref());
                for text in config.templates.values().chain(files.map(|inline| &inline.data)) {
                    same(text);
                    assert!(usual(text, &scan::check(text).unwrap().tags).is_some(), "{text}");
                }
            }
        }
    }

    #[test]
    fn usual_tags_are_read_here_and_others_left_to_handlebars() {
        let is_usual = |source: &str| {
            same(source);
            usual(source, &scan::check(source).unwrap().tags).is_some()
        };
        for source in [
            "",
            " \n",
            "text {{a}}\n  {{~ a.b/c ~}}  \n{{this}}{{this.a}}{{@key}}{{@../key}}{{../a}}{{@root.a}}{{./a}}",
            "{{concat \"a\" 'b' 12 true null a.b \"\\n \\\" {\" (eq (len a) this) as=\"c d\" e=(not f)}}",
            "{{#if a}}\n  x\n{{else if (eq a b)}}\ny{{else if c}} z {{else}}\n0\n  {{/if}}\nend",
            "{{#each a as |b c|}}{{#with b as |d|}}{{/with}} {{/each}}\n",
            "  {{> lib/a.b-c}}\nx {{>d e=f}}\n{{~> g}}\n",
            "{{! a }}\n {{!-- {{b}} --}}\n\n{{! }} {{!----}}",
            "${x} {x} \\ \\\n}} {",
            "éü {{é}} \r\n{{#if a~}}\r\n {{! b }} c {{~/if}}\r\n",
        ] {
            assert!(is_usual(source), "{source:?}");
        }
        for source in
            ["\\{{a", "\\\\{{a}}", "{{{a}}}", "{{&a}}", "{{(a)}}", "{{concat '\\n'}}", "{{len 1.5}}"]
        {
            assert!(!is_usual(source), "{source:?}");
        }
    }

    proptest! {
        #[test]
        fn any_template_is_parsed_as_it_stands(lines in prop::collection::vec(prop_oneof![
            4 => Just("text"), 1 => Just(""), 1 => Just("  "), 1 => Just(" \t x"), 1 => Just("{{a}}"), 1 => Just(" {{#if a}}"), 1 => Just("{{/if}}"),
            1 => Just("{{~else~}}"), 1 => Just("{{> p}}"), 1 => Just("  {{> p}} "), 1 => Just("{{!-- c"), 1 => Just("--}}"), 1 => Just("\\{{x"),
            1 => Just("{{concat"), 1 => Just("\"a"), 1 => Just("\"}}"), 1 => Just("{{~#each a~}} b {{~/each~}}"), 1 => Just("x\r"), 1 => Just("{{"),
            1 => Just("\u{100000}"), 2 => Just("some longer text"), 1 => Just("éü a longer text {{a}} with more of it"), 3 => Just("${x}\\"), 1 => Just("\\"), 1 => Just("}} { }"), 1 => Just("{"), 1 => Just("\\{{{{a}}"), 1 => Just("\\\\{{a}}"),
        ], 0..40)) {
            same(&lines.join("\n"));
        }

        #[test]
        fn any_tag_is_read_as_it_stands(
            words in prop::collection::vec(prop::sample::select(WORDS.as_slice()), 0..8),
            more in prop::collection::vec(prop::sample::select(WORDS.as_slice()), 0..4),
        ) {
            let (words, more) = (words.concat(), more.concat());
            same(&format!("a {{{{{words}}}}} b {{{{{more}}}}}"));
            same(&format!(" {{{{#if {words}}}}} \n{{{{else {more}}}}}b{{{{/if}}}}"));
        }
    }

    const WORDS: [&str; 48] = [
        " ", " ", " ", "\n", "a", "b", "c.d", "if", "else", "as", "as ", "this", "this.", "./", "../", "@",
        "@root.", "/", ".", "-", "$", ":", "é", "true", "false", "null", "12", "1.5", "01", "-3", "\"x\"",
        "\"\\n\"", "'y'", "'\"'", "(", "(a b)", ")", "(eq a ", "=", "as=", "k=\"v\"", "|", "|e|", "|e f|",
        "~", "#", "> ", "! ",
    ];
}
