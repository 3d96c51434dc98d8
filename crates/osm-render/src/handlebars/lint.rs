//! Checks a stage's parsed templates: they call only known helpers, and include only templates that exist.

use std::collections::{BTreeSet, HashMap};

use ::handlebars::template::{HelperTemplate, Parameter, TemplateElement};
use ::handlebars::{Path, Template};

use crate::engine::Failure;

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
pub(super) fn name(parameter: &Parameter) -> Result<&str, Failure> {
    match parameter {
        Parameter::Name(name) => Ok(name),
        Parameter::Path(Path::Relative((_, raw)) | Path::Local((_, _, raw))) => Ok(raw),
        _ => Err("the name of a helper or partial can't be computed".into()),
    }
}

/// Adds the place of an element of a template to a failure.
pub(super) fn inside(failure: Failure, template: &Template, element: usize) -> Failure {
    match template.mapping.get(element) {
        Some(at) => failure.at(at.0, at.1),
        None => failure,
    }
}

/// Checks a template of a stage that has named templates with these names. Returns the number of elements in
/// it and its blocks, with the values in their tags.
pub(super) fn check(template: &Template, names: &BTreeSet<&str>) -> Result<u64, Failure> {
    let mut elements = 1;
    for (i, element) in template.elements.iter().enumerate() {
        let of_element = check_element(element, names);
        let of_element = of_element.map_err(|failure| inside(failure, template, i))?;
        elements += 1 + of_element;
    }
    Ok(elements)
}

fn check_element(element: &TemplateElement, names: &BTreeSet<&str>) -> Result<u64, Failure> {
    match element {
        TemplateElement::RawString(_) | TemplateElement::Comment(_) => Ok(0),
        TemplateElement::Expression(helper) | TemplateElement::HtmlExpression(helper) => {
            check_expression(helper)
        }
        TemplateElement::HelperBlock(helper) => {
            let name = name(&helper.name)?;
            if !BLOCK_HELPERS.contains(&name) {
                return Err(format!(
                    "{{{{#{name}}}}} is not a block: use if, unless, each or with, such as {{{{#if ({name} …)}}}}"
                ).into());
            }
            if helper.params.len() != 1 {
                return Err(format!("{{{{#{name}}}}} takes one value").into());
            }
            let mut elements = check_values(&helper.params, &helper.hash)?;
            for branch in helper.template.iter().chain(&helper.inverse) {
                elements += check(branch, names)?;
            }
            Ok(elements)
        }
        TemplateElement::PartialExpression(partial) => {
            let name = name(&partial.name)?;
            if partial.params.len() > 1 {
                return Err("an included template takes at most one value without a name".into());
            }
            if !names.contains(name) {
                return Err(format!("there is no template {name:?} in this stage's templates").into());
            }
            check_values(&partial.params, &partial.hash)
        }
        _ => Err(
            "decorators, inline partials and partial blocks are not supported: use a named template".into(),
        ),
    }
}

fn check_expression(helper: &HelperTemplate) -> Result<u64, Failure> {
    let name = name(&helper.name)?;
    let plain = helper.params.is_empty() && helper.hash.is_empty();
    if BLOCK_HELPERS.contains(&name) {
        return Err(format!("{{{{{name} …}}}} must open a block: {{{{#{name} …}}}}").into());
    }
    if !plain && !is_helper(name) {
        return Err(format!(
            "there is no helper {name:?}: the helpers are {}, {}, and the blocks {}",
            VALUE_HELPERS.join(", "),
            SESSION_HELPERS.join(", "),
            BLOCK_HELPERS.join(", ")
        )
        .into());
    }
    check_values(&helper.params, &helper.hash)
}

/// Checks the values in a tag.
fn check_values(params: &[Parameter], hash: &HashMap<String, Parameter>) -> Result<u64, Failure> {
    let mut elements = 0;
    for value in params.iter().chain(hash.values()) {
        elements += 1;
        if let Parameter::Subexpression(sub) = value {
            let TemplateElement::Expression(helper) = sub.as_element() else {
                return Err("is not an expression".into());
            };
            if name(&helper.name)? == LATE {
                return Err("a late-bound value would go through something that could change it: write {{late …}} alone, with as=\"…\" for its encoding".into());
            }
            elements += check_expression(helper)?;
        }
    }
    Ok(elements)
}
