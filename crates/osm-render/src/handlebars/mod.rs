//! The Handlebars engine: strict, without HTML escaping, bounded in time, memory and stack.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use ::handlebars::{
    Context, Handlebars, Output, RenderContext, RenderError, RenderErrorReason, Renderable, Template,
    TemplateErrorReason, no_escape,
};
use osm_api::config::LateBound;
use osm_api::profile::MAX_CONTENT_BYTES;
use serde_json::Value;

use crate::downloads::Catalogue;
use crate::late::{self, Marker};
use crate::text::{Inputs, Memo, Text};

mod blocks;
mod include;
mod lint;
mod parse;
pub(crate) mod reads;
mod scan;
mod tag;
#[cfg(test)]
mod tests;
mod values;

pub(crate) use blocks::Budget;
pub(crate) use lint::IncludeError;
pub(crate) use reads::Reads;

/// Something wrong at a place in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    pub(crate) line: Option<usize>,
    pub(crate) column: Option<usize>,
    pub(crate) problem: String,
}

impl Located {
    fn nowhere(problem: String) -> Self {
        Self { line: None, column: None, problem }
    }
}

/// A failed rendering.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Name of the template that failed: the one asked for, or one that it includes.
    pub(crate) template: String,
    pub(crate) at: Located,
}

/// The parsed templates of one stage.
pub(crate) struct Templates {
    registry: Handlebars<'static>,
    /// Those that are not linked yet.
    added: BTreeMap<String, Template>,
    costs: BTreeMap<String, lint::Cost>,
    memos: BTreeMap<String, Memo>,
}

impl Templates {
    pub(crate) fn new() -> Self {
        let mut registry = Handlebars::new();
        registry.set_strict_mode(true);
        registry.register_escape_fn(no_escape);
        for name in ["log", "raw"].iter().chain(&lint::BLOCK_HELPERS) {
            registry.unregister_helper(name);
        }
        registry.register_helper(include::INCLUDE, Box::new(include::Include));
        values::register(&mut registry);
        Self { registry, added: BTreeMap::new(), costs: BTreeMap::new(), memos: BTreeMap::new() }
    }

    /// Parses a template.
    pub(crate) fn add(&mut self, name: &str, source: &str) -> Result<(), Located> {
        let scanned = scan::check(source)?;
        let parsed = catch_unwind(|| parse::parse(name, source, &scanned.tags));
        let parsed = parsed.map_err(|_| Located::nowhere("can't be parsed".to_owned()))?;
        let template = parsed.map_err(|error| {
            let (line, column) = error.pos().unzip();
            let problem = match error.reason() {
                // The parser lists the names of its rules, which help nobody.
                TemplateErrorReason::InvalidSyntax(_) => {
                    "syntax error here, or in the tag before: check its names, quotes and parentheses"
                        .to_owned()
                }
                other => other.to_string(),
            };
            Located { line, column, problem }
        })?;
        lint::check(&template)?;
        self.added.insert(name.to_owned(), template);
        Ok(())
    }

    /// Checks how the templates include each other. To be called when all are added, with the names of those that are
    /// rendered by themselves.
    pub(crate) fn link(&mut self, rendered: &[String]) -> Result<(), IncludeError> {
        let mut templates = std::mem::take(&mut self.added);
        self.costs = lint::costs(&templates)?;
        include::in_place(&mut templates);
        let memo =
            |name: &String| Some((name.clone(), Memo::new(reads::of(templates.get(name)?, &templates))));
        self.memos = rendered.iter().filter_map(memo).collect();
        for (name, template) in templates {
            self.registry.register_template(&name, template);
        }
        Ok(())
    }

    /// Renders a template, or finds what it gave for the same before.
    pub(crate) fn render(
        &self,
        name: &str,
        inputs: &Inputs<'_>,
        known: &BTreeMap<String, LateBound>,
        budget: &Budget,
    ) -> Result<Arc<Text>, Failure> {
        let here = |problem: String| Failure { template: name.to_owned(), at: Located::nowhere(problem) };
        let memo = self.memos.get(name).ok_or_else(|| here("was not compiled".to_owned()))?;
        if let Some(text) = memo.find(inputs, known) {
            // So that whether a profile is too expensive does not depend on what was rendered before.
            budget.spend(text.steps).map_err(|error| here(explain(&error)))?;
            return Ok(text);
        }
        let text = Arc::new(self.render_anew(name, inputs, known, budget)?);
        memo.keep(&text, inputs);
        Ok(text)
    }

    fn render_anew(
        &self,
        name: &str,
        inputs: &Inputs<'_>,
        known: &BTreeMap<String, LateBound>,
        budget: &Budget,
    ) -> Result<Text, Failure> {
        let here = |problem: String| Failure { template: name.to_owned(), at: Located::nowhere(problem) };
        let template = self.registry.get_template(name).ok_or_else(|| here("was not compiled".to_owned()))?;
        let catalogue = Catalogue::new(inputs.downloads, inputs.kubelet);
        let before = budget.left();
        let session = blocks::Session {
            budget,
            costs: &self.costs,
            known,
            catalogue: &catalogue,
            placed: Mutex::default(),
        };
        let mut out = Limited(String::new());
        let rendered = catch_unwind(AssertUnwindSafe(|| {
            let mut rc = RenderContext::new(template.name.as_ref());
            blocks::register(&mut rc, &session);
            session.enter(template)?;
            template.render(&self.registry, &inputs.context, &mut rc, &mut out)
        }));
        rendered.map_err(|_| here("can't be rendered".to_owned()))?.map_err(|error| {
            let template = error.template_name.clone().unwrap_or_else(|| name.to_owned());
            let at = Located { line: error.line_no, column: error.column_no, problem: explain(&error) };
            Failure { at, template }
        })?;
        let placed = session.placed.into_inner().unwrap_or_else(PoisonError::into_inner);
        let markers = intact(&out.0, placed).map_err(here)?;
        let steps = before.saturating_sub(budget.left());
        Ok(Text::new(out.0, markers, catalogue.asked(), steps))
    }
}

/// Names of the templates that `source` includes itself; `None` where it can't be parsed.
pub(crate) fn included(source: &str) -> Option<BTreeSet<String>> {
    let names = scan::check(source).ok()?.partials;
    Some(names.into_iter().map(str::to_owned).collect())
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

/// The markers in the output, if every marker that was placed is among them as often as it was placed, and nothing else
/// that looks like one.
fn intact(output: &str, placed: Vec<Marker>) -> Result<Vec<Marker>, String> {
    let destroyed = || {
        "a late-bound value went through something that changes it: write {{late …}} alone, with as=\"…\" for its encoding"
            .to_owned()
    };
    let found = late::markers(output).map_err(|_| destroyed())?;
    let mut missing: BTreeMap<&Marker, usize> = BTreeMap::new();
    for marker in &placed {
        *missing.entry(marker).or_default() += 1;
    }
    for marker in &found {
        let left = missing.get_mut(marker).ok_or_else(destroyed)?;
        *left = left.saturating_sub(1);
    }
    if missing.values().all(|left| *left == 0) { Ok(found) } else { Err(destroyed()) }
}

/// Text that may not become larger than the content of a configuration.
struct Limited(String);

impl Output for Limited {
    fn write(&mut self, text: &str) -> std::io::Result<()> {
        if self.0.len().saturating_add(text.len()) > MAX_CONTENT_BYTES {
            return Err(std::io::Error::other(format!(
                "the output is larger than {MAX_CONTENT_BYTES} bytes"
            )));
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// The data of a rendering.
pub(crate) fn context(data: Value) -> Context {
    Context::from(data)
}
