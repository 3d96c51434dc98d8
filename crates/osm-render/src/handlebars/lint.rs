//! Checks on a stage's parsed templates: only known helpers, only existing partials, no cycle, and a bound on what
//! including them can grow to.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ::handlebars::Template;
use ::handlebars::template::{HelperTemplate, Parameter, TemplateElement};

use super::element::{self, name};
use crate::budget::MAX_DEPTH;
use crate::engine::{Failure, Located};

/// Most elements that a template may have with everything included that it includes.
pub(super) const MAX_WEIGHT: u64 = 50_000;

/// Most values that an expression may have, with those of the expressions in it. Each can be a text of the largest size that a helper
/// gives, and all of them are in memory together.
pub(super) const MAX_VALUES: u64 = 32;

/// Helpers that open a block.
pub(super) const BLOCK_HELPERS: [&str; 4] = ["if", "unless", "each", "with"];
/// Helpers that give a value.
pub(super) const VALUE_HELPERS: [&str; 22] = [
    "eq", "ne", "gt", "gte", "lt", "lte", "not", "len", "lookup", "and", "or", "semver", "indent", "json",
    "toml", "yaml", "shell", "b64", "join", "trim", "lit", "concat",
];
/// The helper that places a late-bound value.
pub(super) const LATE: &str = "late";
/// The helpers that give a download's URL, and the URL of its checksum.
pub(super) const DOWNLOAD_URL: &str = "download-url";
pub(super) const CHECKSUM_URL: &str = "checksum-url";
/// Helpers that know what is being rendered.
pub(super) const SESSION_HELPERS: [&str; 3] = [LATE, DOWNLOAD_URL, CHECKSUM_URL];

/// What including a template costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Elements, with those of included templates.
    pub(super) weight: u64,
    depth: usize,
}

/// Checks one parsed template on its own.
pub(super) fn check(template: &Template) -> Result<(), Located> {
    for (i, element) in template.elements.iter().enumerate() {
        let position = template.mapping.get(i).map(|at| (at.0, at.1));
        element_is_known(element).map_err(|error| match (error.line, position) {
            (None, Some((line, column))) => Located {
                line: Some(line),
                column: Some(column),
                ..error
            },
            _ => error,
        })?;
    }
    Ok(())
}

/// Elements of a template, with those of its blocks, and the values in its tags.
pub(super) fn elements(template: &Template) -> u64 {
    let of = |element: &TemplateElement| match element {
        TemplateElement::Expression(helper) | TemplateElement::HtmlExpression(helper) => {
            parameters_weight(helper)
        }
        TemplateElement::HelperBlock(helper) => {
            let branches = helper.template.iter().chain(&helper.inverse);
            parameters_weight(helper) + branches.map(elements).sum::<u64>()
        }
        TemplateElement::PartialExpression(partial) => partial
            .params
            .iter()
            .chain(partial.hash.values())
            .map(weigh)
            .sum(),
        _ => 0,
    };
    1 + template
        .elements
        .iter()
        .map(|element| 1 + of(element))
        .sum::<u64>()
}

fn element_is_known(element: &TemplateElement) -> Result<(), Located> {
    match element {
        TemplateElement::RawString(_) | TemplateElement::Comment(_) => Ok(()),
        TemplateElement::Expression(helper) | TemplateElement::HtmlExpression(helper) => expression(helper),
        TemplateElement::HelperBlock(helper) => {
            let name = name(&helper.name)?;
            if !BLOCK_HELPERS.contains(&name) {
                return Err(Located::nowhere(format!(
                    "{{{{#{name}}}}} is no block: use if, unless, each or with, such as {{{{#if ({name} …)}}}}"
                )));
            }
            if helper.params.len() != 1 {
                return Err(Located::nowhere(format!("{{{{#{name}}}}} takes one value")));
            }
            parameters(helper)?;
            helper.template.iter().chain(&helper.inverse).try_for_each(check)
        }
        TemplateElement::PartialExpression(partial) => {
            name(&partial.name)?;
            if partial.params.len() > 1 {
                return Err(Located::nowhere(
                    "an included template takes at most one value without a name".to_owned(),
                ));
            }
            values(&partial.params, &partial.hash)
        }
        _ => Err(Located::nowhere(
            "decorators, inline partials and partial blocks are not supported".to_owned(),
        )),
    }
}

fn expression(helper: &HelperTemplate) -> Result<(), Located> {
    let name = name(&helper.name)?;
    let plain = helper.params.is_empty() && helper.hash.is_empty();
    if BLOCK_HELPERS.contains(&name) {
        return Err(Located::nowhere(format!(
            "{{{{{name} …}}}} must open a block: {{{{#{name} …}}}}"
        )));
    }
    if !plain && !SESSION_HELPERS.contains(&name) && !VALUE_HELPERS.contains(&name) {
        return Err(Located::nowhere(format!(
            "there is no helper {name:?}: the helpers are {}, {}, and the blocks {}",
            VALUE_HELPERS.join(", "),
            SESSION_HELPERS.join(", "),
            BLOCK_HELPERS.join(", ")
        )));
    }
    parameters(helper)
}

fn parameters(helper: &HelperTemplate) -> Result<(), Located> {
    values(&helper.params, &helper.hash)
}

/// Checks the values of an expression.
fn values(params: &[Parameter], hash: &HashMap<String, Parameter>) -> Result<(), Located> {
    let values = || params.iter().chain(hash.values());
    if values().map(weigh).sum::<u64>() > MAX_VALUES {
        return Err(Located::nowhere(format!(
            "an expression has more than {MAX_VALUES} values: split it"
        )));
    }
    values().try_for_each(parameter)
}

fn parameter(parameter: &Parameter) -> Result<(), Located> {
    match parameter {
        Parameter::Subexpression(sub) => match sub.as_element() {
            TemplateElement::Expression(helper) => expression(helper),
            _ => Err(Located::nowhere("is not an expression".to_owned())),
        },
        _ => Ok(()),
    }
}

/// The partials that `template` includes.
pub(super) fn partials<'t>(template: &'t Template, found: &mut BTreeSet<&'t str>) {
    for element in &template.elements {
        match element {
            TemplateElement::PartialExpression(partial) => found.extend(name(&partial.name).ok()),
            TemplateElement::HelperBlock(helper) => {
                helper
                    .template
                    .iter()
                    .chain(&helper.inverse)
                    .for_each(|inner| partials(inner, found));
            }
            _ => {}
        }
    }
}

/// The cost of every template of a stage.
pub(super) fn costs(templates: &BTreeMap<String, Template>) -> Result<BTreeMap<String, Cost>, Failure> {
    let mut costs = BTreeMap::new();
    for name in templates.keys() {
        visit(templates, name, &mut Vec::new(), &mut costs)?;
    }
    Ok(costs)
}

/// Depth first. `trail` never gets longer than [`MAX_DEPTH`].
fn visit<'r>(
    templates: &'r BTreeMap<String, Template>,
    template_name: &'r str,
    trail: &mut Vec<&'r str>,
    costs: &mut BTreeMap<String, Cost>,
) -> Result<(), Failure> {
    let fail = |problem: String| {
        Err(Failure {
            template: template_name.to_owned(),
            text: None,
            at: Located::nowhere(problem),
        })
    };
    if costs.contains_key(template_name) {
        return Ok(());
    }
    if let Some(start) = trail.iter().position(|name| *name == template_name) {
        let cycle: Vec<&str> = trail.iter().skip(start).copied().chain([template_name]).collect();
        return fail(format!(
            "templates include each other in a circle: {}",
            cycle.join(" → ")
        ));
    }
    if trail.len() >= MAX_DEPTH {
        return fail(format!("templates are included more than {MAX_DEPTH} deep"));
    }
    let Some(template) = templates.get(template_name) else {
        return Ok(());
    };
    let mut included = BTreeSet::new();
    partials(template, &mut included);
    trail.push(template_name);
    for name in included {
        if !templates.contains_key(name) {
            return fail(format!("there is no template {name:?} in this stage's templates"));
        }
        visit(templates, name, trail, costs)?;
    }
    trail.pop();
    let cost = cost(template, costs);
    if cost.weight > MAX_WEIGHT {
        return fail(format!(
            "with all that it includes it has more than {MAX_WEIGHT} elements"
        ));
    }
    if cost.depth > MAX_DEPTH {
        return fail(format!(
            "blocks and included templates are nested more than {MAX_DEPTH} deep"
        ));
    }
    costs.insert(template_name.to_owned(), cost);
    Ok(())
}

fn cost(template: &Template, costs: &BTreeMap<String, Cost>) -> Cost {
    let mut total = Cost {
        weight: own_weight(template, costs),
        depth: 1,
    };
    for element in &template.elements {
        let inner: Vec<Cost> = match element {
            TemplateElement::HelperBlock(helper) => helper
                .template
                .iter()
                .chain(&helper.inverse)
                .map(|inner| cost(inner, costs))
                .collect(),
            TemplateElement::PartialExpression(partial) => {
                let known = name(&partial.name)
                    .ok()
                    .and_then(|name| costs.get(name))
                    .copied()
                    .unwrap_or_default();
                // Its weight is counted with the template's own.
                vec![Cost { weight: 0, ..known }]
            }
            _ => Vec::new(),
        };
        for cost in inner {
            total.weight = total.weight.saturating_add(cost.weight);
            total.depth = total.depth.max(cost.depth + 1);
        }
    }
    total
}

/// Elements of `template` itself, its blocks left out, with all that its partials bring.
pub(super) fn own_weight(template: &Template, costs: &BTreeMap<String, Cost>) -> u64 {
    template.elements.iter().fold(1, |sum: u64, element| {
        let brought = match element {
            TemplateElement::PartialExpression(partial) => name(&partial.name)
                .ok()
                .and_then(|name| costs.get(name))
                .map_or(0, |cost| cost.weight),
            TemplateElement::Expression(helper)
            | TemplateElement::HtmlExpression(helper)
            | TemplateElement::HelperBlock(helper) => match element::included(helper) {
                Some(name) => costs.get(name).map_or(0, |cost| cost.weight),
                None => parameters_weight(helper),
            },
            _ => 0,
        };
        sum.saturating_add(1).saturating_add(brought)
    })
}

fn parameters_weight(helper: &HelperTemplate) -> u64 {
    helper.params.iter().chain(helper.hash.values()).map(weigh).sum()
}

/// A value, with those of the expressions in it.
fn weigh(parameter: &Parameter) -> u64 {
    match parameter {
        Parameter::Subexpression(sub) => match sub.as_element() {
            TemplateElement::Expression(helper) => 1 + parameters_weight(helper),
            _ => 1,
        },
        _ => 1,
    }
}
