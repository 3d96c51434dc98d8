//! Parsing templates, with long text between tags taken out meanwhile: the parser takes hundreds of instructions for each
//! character, and a script is mostly text.

use std::ops::Range;

use ::handlebars::template::TemplateElement;
use ::handlebars::{Template, TemplateError};

/// Stands, twice and with a number between, in a line for what was taken out.
const MARK: char = '\u{10fffe}';

/// Parses a template whose tags are at `tags`. The result is that of Handlebars' own parser, and so are errors but for
/// their lines, which [`Lines::line`] gives.
pub(crate) fn parse(
    name: &str,
    source: &str,
    tags: &[Range<usize>],
) -> Result<Template, (TemplateError, Lines)> {
    let short = shorten(source, tags);
    let mut template = Template::compile_with_name(&short.text, name.to_owned())
        .map_err(|error| (error, Lines(short.taken.iter().map(Taken::lines).collect())))?;
    if !short.taken.is_empty() {
        restore(&mut template, &short.taken);
    }
    Ok(template)
}

/// Where lines were taken out: the line that stands for them, and how many they were.
pub(crate) struct Lines(Vec<(usize, usize)>);

impl Lines {
    /// The line in the source.
    pub(crate) fn line(&self, line: usize) -> usize {
        self.0.iter().filter(|(at, _)| *at < line).fold(line, |line, (_, lines)| line + lines - 1)
    }
}

struct Short<'a> {
    text: String,
    taken: Vec<Taken<'a>>,
}

/// Whole lines, and the line, from 1, that stands for them.
struct Taken<'a> {
    text: &'a str,
    line: usize,
}

impl Taken<'_> {
    fn lines(&self) -> (usize, usize) {
        (self.line, self.text.matches('\n').count())
    }
}

/// Takes out lines that are text alone, between two others that are and have more than blanks: what the parser does
/// with blanks and ends of lines around a tag does not reach beyond those.
fn shorten<'a>(source: &'a str, tags: &[Range<usize>]) -> Short<'a> {
    let mut short = Short { text: String::with_capacity(source.len()), taken: Vec::new() };
    if source.contains(MARK) {
        short.text.push_str(source);
        return short;
    }
    let mut tags = tags.iter().peekable();
    let (mut at, mut line) = (0, 1);
    // The run of lines that are text alone: where the first and the last one with more than blanks start, and end.
    let mut run: Option<(Range<usize>, Range<usize>)> = None;
    let mut copied = 0;
    let mut take = |short: &mut Short<'a>, run: Option<(Range<usize>, Range<usize>)>, line: &mut usize| {
        let Some((first, last)) = run else { return };
        let text = source.get(first.end..last.start).unwrap_or_default();
        if text.matches('\n').count() < 2 {
            return;
        }
        let before = source.get(copied..first.end).unwrap_or_default();
        *line += before.matches('\n').count();
        short.text.push_str(before);
        short.text.push_str(&format!("{MARK}{}{MARK}\n", short.taken.len()));
        short.taken.push(Taken { text, line: *line });
        *line += 1;
        copied = last.start;
    };
    for piece in source.split_inclusive('\n') {
        let range = at..at + piece.len();
        at = range.end;
        while tags.next_if(|tag| tag.end <= range.start).is_some() {}
        let in_tag = tags.peek().is_some_and(|tag| tag.start < range.end);
        if in_tag || !piece.ends_with('\n') || piece.contains("{{") || piece.contains('\r') {
            take(&mut short, run.take(), &mut line);
        } else if !piece.trim().is_empty() {
            run = match run {
                Some((first, _)) => Some((first, range)),
                None => Some((range.clone(), range)),
            };
        }
    }
    take(&mut short, run.take(), &mut line);
    short.text.push_str(source.get(copied..).unwrap_or_default());
    short
}

fn restore(template: &mut Template, taken: &[Taken<'_>]) {
    let lines = Lines(taken.iter().map(Taken::lines).collect());
    for mapping in &mut template.mapping {
        mapping.0 = lines.line(mapping.0);
    }
    for element in &mut template.elements {
        match element {
            TemplateElement::RawString(text) if text.contains(MARK) => *text = restored(text, taken),
            TemplateElement::HelperBlock(helper) => {
                helper.template.iter_mut().chain(&mut helper.inverse).for_each(|inner| restore(inner, taken));
            }
            _ => {}
        }
    }
}

fn restored(text: &str, taken: &[Taken<'_>]) -> String {
    let mut whole = String::new();
    for (i, piece) in text.split(MARK).enumerate() {
        // Every second piece is a number, and the line ends behind it.
        match piece.parse::<usize>().ok().filter(|_| i % 2 == 1).and_then(|number| taken.get(number)) {
            Some(taken) => whole.push_str(taken.text),
            None if i == 0 => whole.push_str(piece),
            None => whole.push_str(piece.strip_prefix('\n').unwrap_or(piece)),
        }
    }
    whole
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
            Err((error, lines)) => {
                let plain = plain.unwrap_err().pos();
                assert_eq!(error.pos().map(|(line, column)| (lines.line(line), column)), plain, "{source:?}");
            }
        }
    }

    #[test]
    fn built_in_templates_are_parsed_as_they_stand() {
        for (_, spec) in crate::defaults() {
            let spec = crate::resolve(&spec).unwrap().spec.0;
            for config in [&spec.bootstrap_config, &spec.provisioning_config] {
                config.templates.values().for_each(|text| same(text));
                let texts = config.files.iter().filter_map(|file| file.content.inline.as_ref());
                texts.for_each(|inline| same(&inline.data));
            }
        }
    }

    #[test]
    fn most_of_a_script_is_taken_out() {
        let source = "#!/bin/sh\n\na\nb\nc\n\nlast\n{{#if x}}\n  d\n  e\n  f\n  g\n{{/if}}\nend";
        let short = shorten(source, &scan::check(source).unwrap().tags);
        assert_eq!(short.text.matches('\n').count(), 8, "{}", short.text);
        same(source);
    }

    proptest! {
        #[test]
        fn any_template_is_parsed_as_it_stands(lines in prop::collection::vec(prop_oneof![
            4 => Just("text"), 1 => Just(""), 1 => Just("  "), 1 => Just(" \t x"), 1 => Just("{{a}}"), 1 => Just(" {{#if a}}"), 1 => Just("{{/if}}"),
            1 => Just("{{~else~}}"), 1 => Just("{{> p}}"), 1 => Just("  {{> p}} "), 1 => Just("{{!-- c"), 1 => Just("--}}"), 1 => Just("\\{{x"),
            1 => Just("{{concat"), 1 => Just("\"a"), 1 => Just("\"}}"), 1 => Just("{{~#each a~}} b {{~/each~}}"), 1 => Just("x\r"), 1 => Just("{{"),
            1 => Just("\u{10fffe}0\u{10fffe}"), 3 => Just("${x}\\"), 1 => Just("\\"), 1 => Just("}} { }"), 1 => Just("{"), 1 => Just("\\{{{{a}}"), 1 => Just("\\\\{{a}}"),
        ], 0..40)) {
            same(&lines.join("\n"));
        }
    }
}
