//! The engine `Handlebars`: strict, without HTML escaping, bounded in time, memory and stack.
//!
//! Types of the handlebars crate are seen in this folder only.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;

use ::handlebars::{
    Context, Handlebars, Output, RenderContext, RenderError, RenderErrorReason, Template,
    TemplateErrorReason, no_escape,
};
use osm_api::profile::MAX_CONTENT_BYTES;

use self::include::Include;
use self::print::Print;
use self::session::Session;
use crate::budget::Budget;
use crate::engine::{Compiled, Engine, Failure, Inputs, Located, Part, Parts, Source, Sources};
use crate::library;
use crate::rendered_text::RenderedText;

mod blocks;
mod element;
mod include;
mod lint;
mod print;
mod rewrite;
mod scan;
mod session;
#[cfg(test)]
mod tests;
mod unknown;
mod values;

#[cfg(test)]
pub(crate) fn helper_names() -> Vec<&'static str> {
    let names = lint::BLOCK_HELPERS.into_iter().chain(lint::VALUE_HELPERS);
    names.chain(lint::SESSION_HELPERS).collect()
}

pub(crate) struct HandlebarsEngine;

impl Engine for HandlebarsEngine {
    fn library(&self) -> &'static Parts {
        &library::HANDLEBARS
    }

    fn check<'s>(&self, source: &'s str) -> Result<Vec<&'s str>, Located> {
        scan::check(source)
    }

    fn unknown_names(&self, source: &str, part: Part) -> Vec<Located> {
        let never = AtomicBool::new(false);
        let parsed = parse("template", source, &Budget::new(&never));
        parsed.map_or_else(
            |_| Vec::new(),
            |template| unknown::names(&template, part != Part::Named),
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
        let costs = lint::costs(&templates).map_err(|failure| {
            let text = texts.iter().find(|text| text.key == failure.template);
            let template = text.map_or(failure.template, |text| text.place.clone());
            Failure { template, ..failure }
        })?;
        rewrite::rewrite(&mut templates);
        let mut registry = registry();
        for (name, template) in templates {
            registry.register_template(&name, template);
        }
        Ok(Box::new(Templates {
            registry,
            costs,
            texts,
        }))
    }
}

fn registry() -> Handlebars<'static> {
    let mut registry = Handlebars::new();
    registry.set_strict_mode(true);
    registry.register_escape_fn(no_escape);
    let built_in = ["log", "raw"].iter().chain(&lint::BLOCK_HELPERS);
    for name in built_in.chain(&lint::VALUE_HELPERS) {
        registry.unregister_helper(name);
    }
    registry
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
    registry: Handlebars<'static>,
    costs: BTreeMap<String, lint::Cost>,
    /// Those that are rendered by themselves.
    texts: Vec<Text>,
}

/// A template that is rendered by itself.
struct Text {
    /// Its name in the registry. Two texts can have the same place.
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
        let session = Session {
            budget,
            costs: &self.costs,
            late_bound: inputs.late_bound,
            downloads: inputs.downloads,
        };
        let context = Context::from(inputs.data.clone());
        let mut rc = RenderContext::new(None);
        blocks::register(&mut rc, &session);
        rc.register_local_helper(element::INCLUDE, Box::new(Include { session: &session }));
        rc.register_local_helper(element::PRINT, Box::new(Print { session: &session }));
        values::register(&mut rc, &session);
        self.texts
            .iter()
            .map(|text| self.text(text, &context, &mut rc, &session))
            .collect()
    }
}

impl Templates {
    /// Renders one text. Only after a failure, `rc` is in a state in which no other text can be rendered with it.
    fn text<'reg: 'rc, 'rc>(
        &'reg self,
        text: &Text,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        session: &Session<'_>,
    ) -> Result<RenderedText, Failure> {
        let failure = |template: Option<&String>, at| Failure {
            template: template.unwrap_or(&text.place).clone(),
            text: Some(text.place.clone()),
            at,
        };
        let here = |problem: &str| failure(None, Located::nowhere(problem));
        let template = self
            .registry
            .get_template(&text.key)
            .ok_or_else(|| here("was not compiled"))?;
        let mut out = Limited::new(session.budget);
        // The crate's code is not ours: a panic in it fails this template, and not the service.
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            rc.set_trailing_newline(false);
            rc.set_indent_before_write(false);
            session.render(Some(template), &self.registry, context, rc, &mut out)
        }));
        rendered
            .map_err(|_| here("can't be rendered"))?
            .map_err(|error| {
                let at = Located {
                    line: error.line_no,
                    column: error.column_no,
                    problem: explain(&error),
                };
                failure(error.template_name.as_ref(), at)
            })?;
        session
            .late_bound
            .text(out.text)
            .map_err(|problem| here(&problem))
    }
}

/// What failed, without repeating data.
fn explain(error: &RenderError) -> String {
    match error.reason() {
        RenderErrorReason::MissingVariable(Some(path)) => format!("there is no field {path:?} here"),
        RenderErrorReason::MissingVariable(None) => "a field does not exist here".to_owned(),
        RenderErrorReason::ParamNotFoundForIndex(helper, _) => {
            format!("{helper}: an argument is missing, or is a field that does not exist here")
        }
        RenderErrorReason::IOError(error) => error.to_string(),
        RenderErrorReason::SerdeError(_) | RenderErrorReason::NestedError(_) => {
            "a value can't be used here".to_owned()
        }
        other => other.to_string(),
    }
}

/// Text that may not become larger than the content of a configuration.
struct Limited<'b> {
    text: String,
    budget: &'b Budget<'b>,
}

impl<'b> Limited<'b> {
    fn new(budget: &'b Budget<'b>) -> Self {
        Self {
            text: String::new(),
            budget,
        }
    }
}

impl Output for Limited<'_> {
    fn write(&mut self, text: &str) -> std::io::Result<()> {
        if self.text.len().saturating_add(text.len()) > MAX_CONTENT_BYTES {
            return Err(std::io::Error::other(format!(
                "the output is larger than {MAX_CONTENT_BYTES} bytes"
            )));
        }
        self.budget.write(text.len()).map_err(std::io::Error::other)?;
        self.text.push_str(text);
        Ok(())
    }
}
