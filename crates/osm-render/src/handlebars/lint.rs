//! Checks a stage's parsed templates: they call only known helpers, and include only templates that exist, in no circle and not
//! too deep.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ::handlebars::template::{HelperTemplate, Parameter, TemplateElement};
use ::handlebars::{Path, Template};

use crate::engine::{Failure, Located};

/// Deepest nesting of blocks and included templates together. Rendering recurses, and an overflowing stack can't be caught.
const MAX_DEPTH: usize = 48;

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

/// Whether a name is that of a helper that gives a value.
pub(super) fn is_helper(name: &str) -> bool {
    SESSION_HELPERS.contains(&name) || VALUE_HELPERS.contains(&name)
}

/// The name of a helper or partial, or the path of a field.
pub(super) fn name(parameter: &Parameter) -> Result<&str, Located> {
    match parameter {
        Parameter::Name(name) => Ok(name),
        Parameter::Path(Path::Relative((_, raw)) | Path::Local((_, _, raw))) => Ok(raw),
        _ => Err(Located::nowhere(
            "the name of a helper or partial can't be computed",
        )),
    }
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
    let of_blocks = |element: &TemplateElement| match element {
        TemplateElement::HelperBlock(helper) => {
            let branches = helper.template.iter().chain(&helper.inverse);
            branches.map(elements).sum()
        }
        _ => 0,
    };
    own_weight(template) + template.elements.iter().map(of_blocks).sum::<u64>()
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
            values(&helper.params, &helper.hash)?;
            helper.template.iter().chain(&helper.inverse).try_for_each(check)
        }
        TemplateElement::PartialExpression(partial) => {
            name(&partial.name)?;
            if partial.params.len() > 1 {
                return Err(Located::nowhere(
                    "an included template takes at most one value without a name",
                ));
            }
            values(&partial.params, &partial.hash)
        }
        _ => Err(Located::nowhere(
            "decorators, inline partials and partial blocks are not supported",
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
    if !plain && !is_helper(name) {
        return Err(Located::nowhere(format!(
            "there is no helper {name:?}: the helpers are {}, {}, and the blocks {}",
            VALUE_HELPERS.join(", "),
            SESSION_HELPERS.join(", "),
            BLOCK_HELPERS.join(", ")
        )));
    }
    values(&helper.params, &helper.hash)
}

/// Checks the values of an expression.
fn values(params: &[Parameter], hash: &HashMap<String, Parameter>) -> Result<(), Located> {
    params.iter().chain(hash.values()).try_for_each(parameter)
}

fn parameter(parameter: &Parameter) -> Result<(), Located> {
    match parameter {
        Parameter::Subexpression(sub) => match sub.as_element() {
            TemplateElement::Expression(helper) => expression(helper),
            _ => Err(Located::nowhere("is not an expression")),
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

/// Checks how the templates of a stage include each other: those with names, and texts with their places.
pub(super) fn check_inclusions(
    named: &BTreeMap<String, Template>,
    texts: &[(String, Template)],
) -> Result<(), Failure> {
    let mut depths = BTreeMap::new();
    let texts = texts.iter().map(|(place, text)| (place, text));
    for (name, template) in named.iter().chain(texts) {
        visit(named, name, template, &mut Vec::new(), &mut depths)?;
    }
    Ok(())
}

/// The levels of a template with all that it includes, depth first. `trail` never gets longer than [`MAX_DEPTH`].
fn visit<'r>(
    named: &'r BTreeMap<String, Template>,
    template_name: &'r str,
    template: &'r Template,
    trail: &mut Vec<&'r str>,
    depths: &mut BTreeMap<&'r str, usize>,
) -> Result<usize, Failure> {
    let fail = |problem: String| {
        Err(Failure {
            template: template_name.to_owned(),
            text: None,
            at: Located::nowhere(problem),
        })
    };
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
    let mut included = BTreeSet::new();
    partials(template, &mut included);
    trail.push(template_name);
    for name in included {
        let Some(template) = named.get(name) else {
            return fail(format!("there is no template {name:?} in this stage's templates"));
        };
        if !depths.contains_key(name) {
            let depth = visit(named, name, template, trail, depths)?;
            depths.insert(name, depth);
        }
    }
    trail.pop();
    match depth(template, depths) {
        depth if depth > MAX_DEPTH => fail(format!(
            "blocks and included templates are nested more than {MAX_DEPTH} deep"
        )),
        depth => Ok(depth),
    }
}

/// Levels of a template: its own, and those of its blocks and of the templates that it includes.
fn depth(template: &Template, depths: &BTreeMap<&str, usize>) -> usize {
    let below = |element: &TemplateElement| match element {
        TemplateElement::HelperBlock(helper) => {
            let branches = helper.template.iter().chain(&helper.inverse);
            branches.map(|inner| depth(inner, depths)).max().unwrap_or(0)
        }
        TemplateElement::PartialExpression(partial) => {
            let name = name(&partial.name).ok();
            name.and_then(|name| depths.get(name)).copied().unwrap_or(0)
        }
        _ => 0,
    };
    1 + template.elements.iter().map(below).max().unwrap_or(0)
}

/// Elements of a template and the values in their tags, without those in its blocks.
pub(super) fn own_weight(template: &Template) -> u64 {
    let values = |element: &TemplateElement| match element {
        TemplateElement::PartialExpression(partial) => values_weight(&partial.params, &partial.hash),
        TemplateElement::Expression(helper)
        | TemplateElement::HtmlExpression(helper)
        | TemplateElement::HelperBlock(helper) => values_weight(&helper.params, &helper.hash),
        _ => 0,
    };
    1 + template
        .elements
        .iter()
        .map(|element| 1 + values(element))
        .sum::<u64>()
}

fn values_weight(params: &[Parameter], hash: &HashMap<String, Parameter>) -> u64 {
    params.iter().chain(hash.values()).map(weigh).sum()
}

/// A value, with those of the expressions in it.
fn weigh(parameter: &Parameter) -> u64 {
    match parameter {
        Parameter::Subexpression(sub) => match sub.as_element() {
            TemplateElement::Expression(helper) => 1 + values_weight(&helper.params, &helper.hash),
            _ => 1,
        },
        _ => 1,
    }
}
