//! Implements the engine `Handlebars`: strict, without HTML escaping, bounded in time, memory and stack.
//!
//! The handlebars crate parses the templates, and `render.rs` renders them. Types of the crate are seen in this folder only.

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::atomic::AtomicBool;

use ::handlebars::{Template, TemplateErrorReason};

use self::render::{Fault, Renderer};
use crate::budget::Budget;
use crate::engine::{Compiled, Engine, Failure, Inputs, Located, Part, Parts, Source, Sources};
use crate::library;
use crate::rendered_text::RenderedText;

mod lint;
mod render;
mod scan;
#[cfg(test)]
mod tests;
mod unknown;
mod values;

pub(crate) struct HandlebarsEngine;

impl Engine for HandlebarsEngine {
    fn library(&self) -> &'static Parts {
        &library::HANDLEBARS
    }

    fn check<'s>(&self, source: &'s str) -> Result<Vec<&'s str>, Located> {
        scan::check(source)
    }

    fn unknown_names(&self, source: &str, part: Part, plain: &Inputs<'_>) -> Vec<Located> {
        let never = AtomicBool::new(false);
        let parsed = parse("template", source, &Budget::new(&never));
        parsed.map_or_else(
            |_| Vec::new(),
            |template| unknown::names(&template, plain.data, part != Part::Named),
        )
    }

    fn compile(&self, sources: &Sources<'_>, budget: &Budget<'_>) -> Result<Box<dyn Compiled>, Failure> {
        let mut templates = BTreeMap::new();
        let texts: Vec<Text> = sources.texts.iter().enumerate().map(Text::of).collect();
        let partials = sources
            .partials
            .iter()
            .map(|(name, source)| (*name, *name, *source));
        let sources = texts.iter().zip(&sources.texts);
        let sources = sources.map(|(text, source)| (text.key.as_str(), text.place.as_str(), source.text));
        for (key, name, source) in partials.chain(sources) {
            let failure = |at| Failure {
                template: name.to_owned(),
                text: None,
                at,
            };
            templates.insert(key.to_owned(), parse(name, source, budget).map_err(failure)?);
        }
        lint::check_inclusions(&templates).map_err(|failure| {
            let text = texts.iter().find(|text| text.key == failure.template);
            let template = text.map_or(failure.template, |text| text.place.clone());
            Failure { template, ..failure }
        })?;
        Ok(Box::new(Templates { templates, texts }))
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
    templates: BTreeMap<String, Template>,
    /// Those that are rendered by themselves.
    texts: Vec<Text>,
}

/// A template that is rendered by itself.
struct Text {
    /// Its key among the templates. Two texts can have the same place.
    key: String,
    place: String,
}

impl Text {
    fn of((index, source): (usize, &Source<'_>)) -> Self {
        // No name of a partial has a space. The digits keep the order of the texts.
        Self {
            key: format!("text {index:09}"),
            place: source.place.clone(),
        }
    }
}

impl Compiled for Templates {
    fn render(&self, inputs: &Inputs<'_>, budget: &Budget<'_>) -> Result<Vec<RenderedText>, Failure> {
        let renderer = Renderer {
            templates: &self.templates,
            inputs,
            budget,
        };
        let render = |Text { key, place }: &Text| {
            let failure = |Fault { template, at }| Failure {
                template: template.unwrap_or_else(|| place.clone()),
                text: Some(place.clone()),
                at,
            };
            let template = self.templates.get(key);
            let template = template.ok_or_else(|| failure(Fault::from("was not compiled".to_owned())))?;
            let content = renderer.text(template).map_err(failure)?;
            let text = inputs.late_bound.text(content);
            text.map_err(|problem| failure(Fault::from(problem)))
        };
        self.texts.iter().map(render).collect()
    }
}
