//! Implements the engine `Handlebars`: strict, without HTML escaping, bounded in time, memory and stack.
//!
//! The handlebars crate parses the templates, and `render.rs` renders them. Types of the crate are seen in
//! this folder only.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::catch_unwind;

use ::handlebars::{Template, TemplateErrorReason};

use self::render::Renderer;
use crate::budget::Budget;
use crate::engine::{Compiled, Engine, Failure, Inputs, Sources};
use crate::rendered_text::RenderedText;

mod lint;
mod render;
mod scan;
#[cfg(test)]
mod tests;
mod values;

pub(crate) struct HandlebarsEngine;

impl Engine for HandlebarsEngine {
    fn compile(&self, sources: &Sources<'_>, budget: &Budget<'_>) -> Result<Box<dyn Compiled>, Failure> {
        let names: BTreeSet<&str> = sources.partials.iter().map(|(name, _)| *name).collect();
        let named = sources.partials.iter().map(|&(name, source)| {
            let template = parse(Some(name), source, &names, budget);
            let template = template.map_err(|failure| failure.in_template(name))?;
            Ok((name.to_owned(), template))
        });
        let texts = sources.texts.iter().enumerate();
        let texts = texts.map(|(n, source)| {
            parse(None, source.text, &names, budget).map_err(|failure| failure.in_text(n))
        });
        Ok(Box::new(Templates {
            named: named.collect::<Result<_, Failure>>()?,
            texts: texts.collect::<Result<_, Failure>>()?,
        }))
    }
}

/// Parses a template, and checks it. It can include the templates with `names`.
fn parse(
    name: Option<&str>,
    source: &str,
    names: &BTreeSet<&str>,
    budget: &Budget<'_>,
) -> Result<Template, Failure> {
    budget.read(source.len())?;
    scan::check(source)?;
    let parsed = catch_unwind(|| match name {
        Some(name) => Template::compile_with_name(source, name.to_owned()),
        None => Template::compile(source),
    });
    let parsed = parsed.map_err(|_| Failure::from("can't be parsed"))?;
    let template = parsed.map_err(|error| {
        let failure = Failure::from(match error.reason() {
            // The crate lists the names of its grammar's rules, which no author of a template knows.
            TemplateErrorReason::InvalidSyntax(_) => {
                "syntax error here, or in the tag before: check its names, quotes and parentheses".to_owned()
            }
            other => other.to_string(),
        });
        match error.pos() {
            Some((line, column)) => failure.at(line, column),
            None => failure,
        }
    })?;
    budget.hold(lint::check(&template, names)?)?;
    Ok(template)
}

/// The parsed templates of one stage.
struct Templates {
    /// Those that others can include.
    named: BTreeMap<String, Template>,
    /// Those that are rendered by themselves.
    texts: Vec<Template>,
}

impl Compiled for Templates {
    fn render(&self, inputs: &Inputs<'_>, budget: &Budget<'_>) -> Result<Vec<RenderedText>, Failure> {
        let renderer = Renderer {
            named: &self.named,
            inputs,
            budget,
            depth: Cell::new(0),
        };
        let render = |(number, template)| {
            let content = renderer.text(template);
            let text = content.and_then(|content| Ok(inputs.late_bound_values.text(content)?));
            text.map_err(|failure| failure.in_text(number))
        };
        self.texts.iter().enumerate().map(render).collect()
    }
}
