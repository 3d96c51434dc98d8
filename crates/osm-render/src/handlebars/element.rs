//! Elements of parsed templates: their names, and the calls that replace some of them.

use std::collections::HashMap;
use std::sync::LazyLock;

use ::handlebars::template::{HelperTemplate, Parameter, TemplateElement};
use ::handlebars::{Path, Template};
use serde_json::Value;

use crate::engine::Located;

/// Name of the helper that includes a template. Templates can't use it: `lint` does not know it.
pub(super) const INCLUDE: &str = "include in place";

/// Name of the helper that prints a field. Templates can't use it: `lint` does not know it.
pub(super) const PRINT: &str = "print in place";

/// A call of the helper of this name.
pub(super) fn call(
    name: &str,
    params: Vec<Parameter>,
    hash: HashMap<String, Parameter>,
) -> Option<HelperTemplate> {
    // The parser builds what has no public constructor.
    static CALL: LazyLock<Option<TemplateElement>> =
        LazyLock::new(|| Template::compile("{{x \"\"}}").ok()?.elements.pop());
    let TemplateElement::Expression(mut call) = CALL.clone()? else {
        return None;
    };
    call.name = Parameter::Name(name.to_owned());
    call.params = params;
    call.hash = hash;
    Some(*call)
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
