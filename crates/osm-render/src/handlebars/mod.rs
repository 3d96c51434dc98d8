//! Implements the engine `Handlebars`: strict, without HTML escaping, bounded in time, memory and stack.
//!
//! The handlebars crate parses the templates, and `render.rs` renders them. Types of the crate are seen in this folder only.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use ::handlebars::{Template, TemplateErrorReason};

use self::render::{Fault, Renderer};
use crate::budget::Budget;
use crate::engine::{Compiled, Engine, Failure, Inputs, Located, Parts, Sources};
use crate::library;
use crate::rendered_text::RenderedText;

mod lint;
mod render;
mod scan;
#[cfg(test)]
mod tests;
mod values;

pub(crate) struct HandlebarsEngine;

impl Engine for HandlebarsEngine {
    fn library(&self) -> &'static Parts {
        &library::HANDLEBARS
    }

    fn check<'s>(&self, source: &'s str) -> Result<Vec<&'s str>, Located> {
        scan::check(source)
    }

    fn compile(&self, sources: &Sources<'_>, budget: &Budget<'_>) -> Result<Box<dyn Compiled>, Failure> {
        let parse = |name: &str, source| {
            parse(name, source, budget).map_err(|at| Failure {
                template: name.to_owned(),
                text: None,
                at,
            })
        };
        let named = sources.partials.iter();
        let named = named.map(|(name, source)| Ok(((*name).to_owned(), parse(name, source)?)));
        let named = named.collect::<Result<BTreeMap<_, _>, Failure>>()?;
        let texts = sources.texts.iter();
        let texts = texts.map(|text| Ok((text.place.clone(), parse(&text.place, text.text)?)));
        let texts = texts.collect::<Result<Vec<_>, Failure>>()?;
        lint::check_inclusions(&named, &texts)?;
        Ok(Box::new(Templates { named, texts }))
    }
}

fn parse(name: &str, source: &str, budget: &Budget<'_>) -> Result<Template, Located> {
    budget
        .read(source.len())
        .map_err(|exhausted| Located::nowhere(exhausted.to_string()))?;
    scan::check(source)?;
    let parsed = catch_unwind(|| Template::compile_with_name(source, name.to_owned()));
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
    lint::check(&template)?;
    let held = budget.hold(lint::elements(&template));
    held.map_err(|exhausted| Located::nowhere(exhausted.to_string()))?;
    Ok(template)
}

/// The parsed templates of one stage.
struct Templates {
    /// Those that others can include.
    named: BTreeMap<String, Template>,
    /// Those that are rendered by themselves, with their places. Two can have the same place.
    texts: Vec<(String, Template)>,
}

impl Compiled for Templates {
    fn render(&self, inputs: &Inputs<'_>, budget: &Budget<'_>) -> Result<Vec<RenderedText>, Failure> {
        let renderer = Renderer {
            named: &self.named,
            inputs,
            budget,
        };
        let render = |(place, template): &(String, Template)| {
            let failure = |Fault { template, at }| Failure {
                template: template.unwrap_or_else(|| place.clone()),
                text: Some(place.clone()),
                at,
            };
            let content = renderer.text(template).map_err(failure)?;
            let text = inputs.late_bound.text(content);
            text.map_err(|problem| failure(Fault::from(problem)))
        };
        self.texts.iter().map(render).collect()
    }
}
