//! Including templates, without a copy of all data.
//!
//! Handlebars copies all data for an included template, which takes longer than everything else in rendering. An inclusion is plain
//! if it has no parameters, and nothing before it on its line by which its lines would be indented. If every inclusion of a stage is
//! plain, rendering in place gives the same text without the copy. An included template can then also use `../` of the place where it
//! is included, which a copy does not have.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ::handlebars::template::{DecoratorTemplate, HelperTemplate, Parameter, TemplateElement};
use ::handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, Output, Path, RenderContext, RenderErrorReason,
    Renderable, Template,
};
use serde_json::Value;

use crate::engine::Located;

/// Name of the helper. Templates can't use it: `lint` does not know it.
pub(super) const INCLUDE: &str = "include in place";

/// Renders the template that it names.
pub(super) struct Include;

impl HelperDef for Include {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        registry: &'reg Handlebars<'reg>,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let name = helper
            .param(0)
            .and_then(|name| name.value().as_str())
            .unwrap_or_default();
        let template = registry.get_template(name);
        let template = template.ok_or_else(|| RenderErrorReason::PartialNotFound(name.to_owned()))?;
        template.render(registry, context, rc, out)
    }
}

/// Replaces every inclusion in the templates of a stage by [`Include`], where that does not change what any of them gives.
pub(super) fn in_place(templates: &mut BTreeMap<String, Template>) {
    if templates.values().all(all_plain) {
        templates.values_mut().for_each(replace);
    }
}

fn all_plain(template: &Template) -> bool {
    template.elements.iter().all(|element| match element {
        TemplateElement::PartialExpression(partial) => plain(partial).is_some(),
        TemplateElement::HelperBlock(helper) => helper.template.iter().chain(&helper.inverse).all(all_plain),
        _ => true,
    })
}

fn replace(template: &mut Template) {
    for element in &mut template.elements {
        match element {
            TemplateElement::PartialExpression(partial) => {
                if let Some(include) = plain(partial).and_then(include) {
                    *element = include;
                }
            }
            TemplateElement::HelperBlock(helper) => {
                helper
                    .template
                    .iter_mut()
                    .chain(&mut helper.inverse)
                    .for_each(replace);
            }
            _ => {}
        }
    }
}

/// The name of what is included, if it is included plainly.
fn plain(partial: &DecoratorTemplate) -> Option<&str> {
    let plain = partial.params.is_empty()
        && partial.hash.is_empty()
        && partial.template.is_none()
        && partial.indent.as_deref().unwrap_or_default().is_empty();
    name(&partial.name).ok().filter(|_| plain)
}

/// What includes a template in place.
fn include(name: &str) -> Option<TemplateElement> {
    // The parser builds what has no public constructor.
    static INCLUSION: LazyLock<Option<TemplateElement>> =
        LazyLock::new(|| Template::compile("{{x \"\"}}").ok()?.elements.pop());
    let mut expression = INCLUSION.clone()?;
    if let TemplateElement::Expression(helper) = &mut expression {
        helper.name = Parameter::Name(INCLUDE.to_owned());
        helper.params = vec![Parameter::Literal(Value::String(name.to_owned()))];
    }
    Some(expression)
}

/// The template that an element includes in place.
pub(super) fn included(helper: &HelperTemplate) -> Option<&str> {
    match (&helper.name, helper.params.first()) {
        (Parameter::Name(name), Some(Parameter::Literal(Value::String(included)))) if name == INCLUDE => {
            Some(included)
        }
        _ => None,
    }
}

/// The name of a helper or partial.
pub(super) fn name(parameter: &Parameter) -> Result<&str, Located> {
    match parameter {
        Parameter::Name(name) => Ok(name),
        Parameter::Path(Path::Relative((_, raw)) | Path::Local((_, _, raw))) => Ok(raw),
        _ => Err(Located::nowhere(
            "the name of a helper or partial can't be computed".to_owned(),
        )),
    }
}
