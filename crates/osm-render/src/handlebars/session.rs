//! What helpers share while one stage is rendered.

use std::collections::BTreeMap;

use ::handlebars::{
    Context, Handlebars, HelperResult, Output, RenderContext, RenderError, RenderErrorReason, Renderable,
    ScopedJson, Template,
};
use serde_json::Value;

use super::lint::{self, Cost};
use crate::budget::{Budget, Exhausted};
use crate::downloads::Catalogue;
use crate::rendered_text::Placements;

pub(super) struct Session<'a> {
    pub(super) budget: &'a Budget<'a>,
    pub(super) costs: &'a BTreeMap<String, Cost>,
    pub(super) late_bound: &'a Placements<'a>,
    pub(super) downloads: &'a Catalogue<'a>,
}

impl Session<'_> {
    /// Renders a template or a branch of a block, and charges its elements before. `None` renders nothing.
    pub(super) fn render<'reg: 'rc, 'rc>(
        &self,
        template: Option<&'rc Template>,
        registry: &'reg Handlebars<'reg>,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let Some(template) = template else { return Ok(()) };
        let _level = self.budget.descend().map_err(exhausted)?;
        self.budget
            .step(lint::own_weight(template, self.costs))
            .map_err(exhausted)?;
        template.render(registry, context, rc, out)
    }

    /// Charges a value that a helper looks at.
    pub(super) fn reads(&self, value: &Value) -> Result<(), RenderError> {
        self.budget.read(size(value)).map_err(exhausted)
    }

    /// The result of a helper, which is charged.
    pub(super) fn made<'rc>(&self, value: Value) -> Result<ScopedJson<'rc>, RenderError> {
        self.copies(&value)?;
        Ok(ScopedJson::Derived(value))
    }

    /// Charges a value that is cloned.
    pub(super) fn copies(&self, value: &Value) -> Result<(), RenderError> {
        self.budget.copy(size(value)).map_err(exhausted)
    }
}

fn exhausted(exhausted: Exhausted) -> RenderError {
    RenderErrorReason::Other(exhausted.to_string()).into()
}

/// About the bytes of a value: its texts and keys, and a word for everything else.
fn size(value: &Value) -> usize {
    const WORD: usize = size_of::<usize>();
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => WORD,
    }
}
