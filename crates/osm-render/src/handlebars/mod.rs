//! Implements the engine `Handlebars`: strict, without HTML escaping, bounded in time, memory and stack.
//!
//! The handlebars crate parses the templates, and `render.rs` renders them. Types of the crate are seen in this folder only.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use ::handlebars::{Template, TemplateErrorReason};

use self::lint::{Inclusions, Outline};
use self::render::Renderer;
use crate::budget::{Budget, Exhausted};
use crate::engine::{Compiled, Engine, Failure, Inputs, Located, Sources};
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
        let (mut named, mut outlines) = (BTreeMap::new(), BTreeMap::new());
        for &(name, source) in &sources.partials {
            let parsed = parse(Some(name), source, budget);
            let (template, outline) = parsed.map_err(|at| Failure::of_template(name, at))?;
            named.insert(name.to_owned(), template);
            outlines.insert(name.to_owned(), outline);
        }
        let mut inclusions = Inclusions::of(&outlines);
        for name in outlines.keys() {
            inclusions.check_named(name)?;
        }
        let mut text = |source| {
            let (template, outline) = parse(None, source, budget)?;
            inclusions.check(&outline)?;
            Ok(template)
        };
        let texts = sources.texts.iter().enumerate();
        let texts = texts.map(|(n, source)| text(source.text).map_err(|failure: Failure| failure.in_text(n)));
        let texts = texts.collect::<Result<_, Failure>>()?;
        Ok(Box::new(Templates { named, texts }))
    }
}

fn parse(name: Option<&str>, source: &str, budget: &Budget<'_>) -> Result<(Template, Outline), Located> {
    let exhausted = |exhausted: Exhausted| Located::nowhere(exhausted.to_string());
    budget.read(source.len()).map_err(exhausted)?;
    scan::check(source)?;
    let parsed = catch_unwind(|| match name {
        Some(name) => Template::compile_with_name(source, name.to_owned()),
        None => Template::compile(source),
    });
    let parsed = parsed.map_err(|_| Located::nowhere("can't be parsed"))?;
    let template = parsed.map_err(|error| {
        let (line, column) = error.pos().unzip();
        let problem = match error.reason() {
            // The crate lists the names of its grammar's rules, which no author of a template knows.
            TemplateErrorReason::InvalidSyntax(_) => {
                "syntax error here, or in the tag before: check its names, quotes and parentheses".to_owned()
            }
            other => other.to_string(),
        };
        Located {
            line,
            column,
            problem,
        }
    })?;
    let outline = Outline::of(&template)?;
    budget.hold(outline.elements).map_err(exhausted)?;
    Ok((template, outline))
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
        };
        let render = |(number, template)| {
            let content = renderer.text(template);
            let text = content.and_then(|content| Ok(inputs.late_bound.text(content)?));
            text.map_err(|failure| failure.in_text(number))
        };
        self.texts.iter().enumerate().map(render).collect()
    }
}
