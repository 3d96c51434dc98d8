//! Including templates, without a copy of all data.
//!
//! Handlebars gives an included template a copy of the data, which takes longer than everything else in rendering. Where
//! all that a stage's templates include is included plainly (no parameters, and nothing before it on its line, by which
//! its lines would be indented), it gives the same when rendered in place, and that is what is done. It may even say
//! `../` of where it is included, which a copy does not have.

use ::handlebars::template::{DecoratorTemplate, HelperTemplate, Parameter, TemplateElement};
use ::handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, Output, RenderContext, RenderErrorReason,
    Renderable, Template,
};
use serde_json::Value;

use super::lint;

/// Name of the helper. Templates can't use it: [`super::lint`] does not know it.
pub(crate) const INCLUDE: &str = "include in place";

/// Renders the template that it names.
pub(crate) struct Include;

impl HelperDef for Include {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        registry: &'reg Handlebars<'reg>,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let name = helper.param(0).and_then(|name| name.value().as_str()).unwrap_or_default();
        let template = registry.get_template(name);
        let template = template.ok_or_else(|| RenderErrorReason::PartialNotFound(name.to_owned()))?;
        template.render(registry, context, rc, out)
    }
}

/// `templates` of a stage with every inclusion replaced by [`Include`]; `None` where that would change what they give.
pub(crate) fn in_place(registry: &Handlebars<'_>) -> Option<Vec<(String, Template)>> {
    let replace = |(name, template): (&String, &Template)| {
        let mut template = template.clone();
        replace(&mut template).then(|| (name.clone(), template))
    };
    registry.get_templates().iter().map(replace).collect()
}

/// Whether all could be replaced.
fn replace(template: &mut Template) -> bool {
    template.elements.iter_mut().all(|element| match element {
        TemplateElement::PartialExpression(partial) => match plain(partial) {
            Some(include) => {
                *element = include;
                true
            }
            None => false,
        },
        TemplateElement::HelperBlock(helper) => {
            helper.template.iter_mut().chain(&mut helper.inverse).all(replace)
        }
        _ => true,
    })
}

/// What includes the same in place, if it is plain.
fn plain(partial: &DecoratorTemplate) -> Option<TemplateElement> {
    let plain = partial.params.is_empty()
        && partial.hash.is_empty()
        && partial.template.is_none()
        && partial.indent.as_deref().unwrap_or_default().is_empty();
    let name = lint::name(&partial.name).ok().filter(|_| plain)?;
    // The parser builds what has no public constructor.
    let mut expression = Template::compile("{{x \"\"}}").ok()?.elements.pop()?;
    if let TemplateElement::Expression(helper) = &mut expression {
        helper.name = Parameter::Name(INCLUDE.to_owned());
        helper.params = vec![Parameter::Literal(Value::String(name.to_owned()))];
    }
    Some(expression)
}

/// The template that an element includes in place.
pub(crate) fn included(helper: &HelperTemplate) -> Option<&str> {
    match (&helper.name, helper.params.first()) {
        (Parameter::Name(name), Some(Parameter::Literal(Value::String(included)))) if name == INCLUDE => {
            Some(included)
        }
        _ => None,
    }
}
