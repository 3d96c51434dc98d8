//! Rewrites parsed templates, so that only helpers of ours read and copy data, and charge what they do.

use std::collections::{BTreeMap, HashMap};

use ::handlebars::Template;
use ::handlebars::template::{DecoratorTemplate, HelperTemplate, Parameter, TemplateElement};
use serde_json::Value;

use super::element::{self, INCLUDE, PRINT, name};
use super::lint;

/// Replaces every inclusion and every printed field in the templates of a stage by a call of a helper.
pub(super) fn rewrite(templates: &mut BTreeMap<String, Template>) {
    templates.values_mut().for_each(replace);
}

fn replace(template: &mut Template) {
    // The parser removes the blanks before an inclusion that is alone on its line.
    let mut after_blank = false;
    for element in &mut template.elements {
        let alone = !std::mem::replace(&mut after_blank, ends_with_blank(element));
        let call = match element {
            TemplateElement::PartialExpression(partial) => inclusion(partial, alone),
            TemplateElement::Expression(expression) | TemplateElement::HtmlExpression(expression) => {
                printing(expression)
            }
            TemplateElement::HelperBlock(helper) => {
                let branches = helper.template.iter_mut().chain(&mut helper.inverse);
                branches.for_each(replace);
                None
            }
            _ => None,
        };
        if let Some(call) = call {
            *element = TemplateElement::Expression(Box::new(call));
        }
    }
}

fn ends_with_blank(element: &TemplateElement) -> bool {
    matches!(element, TemplateElement::RawString(text) if text.ends_with([' ', '\t']))
}

/// The call of [`super::include::Include`] that stands for an inclusion, which is indented if it is `alone` on its line.
fn inclusion(partial: &DecoratorTemplate, alone: bool) -> Option<HelperTemplate> {
    let literal = |text: &str| Parameter::Literal(Value::String(text.to_owned()));
    let indent = partial.indent.as_deref().filter(|_| alone);
    let mut params = vec![
        literal(name(&partial.name).ok()?),
        literal(indent.unwrap_or_default()),
    ];
    params.extend(partial.params.iter().cloned());
    element::call(INCLUDE, params, partial.hash.clone())
}

/// The call of [`super::print::Print`] that stands for an expression, if that prints a field.
fn printing(expression: &HelperTemplate) -> Option<HelperTemplate> {
    let field = name(&expression.name).ok()?;
    let is_helper = lint::SESSION_HELPERS.contains(&field) || lint::VALUE_HELPERS.contains(&field);
    if is_helper || !expression.params.is_empty() || !expression.hash.is_empty() {
        return None;
    }
    element::call(PRINT, vec![expression.name.clone()], HashMap::new())
}
