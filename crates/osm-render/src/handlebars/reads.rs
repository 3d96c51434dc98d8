//! What of the data a template reads: where that is the same, so is the text that it gives.

use std::collections::{BTreeMap, BTreeSet};

use ::handlebars::template::{HelperTemplate, Parameter, TemplateElement};
use ::handlebars::{Path, Template};
use serde_json::Value;

use super::{include, lint};

/// Paths into the data, none of them below another. The empty one: it may read anything.
pub(crate) type Reads = Vec<Vec<String>>;

/// What a template reads, with everything that it includes; rather too much than too little. Inside a block all paths
/// are below what the block was given, or below its parents: taken for paths from the top they do no harm, as what the
/// block was given is read itself.
pub(crate) fn of(template: &Template, templates: &BTreeMap<String, Template>) -> Reads {
    let mut reads = Collected { templates, paths: BTreeSet::new() };
    reads.template(template, false);
    let mut outermost = Reads::new();
    // Sorted: a path stands right behind what it is below.
    for path in reads.paths {
        if !outermost.last().is_some_and(|above| path.starts_with(above)) {
            outermost.push(path);
        }
    }
    outermost
}

struct Collected<'r> {
    templates: &'r BTreeMap<String, Template>,
    paths: BTreeSet<Vec<String>>,
}

impl Collected<'_> {
    fn anything(&mut self) {
        self.paths.insert(Vec::new());
    }

    /// `scoped`: in a block that was given something.
    fn template(&mut self, template: &Template, scoped: bool) {
        for element in &template.elements {
            match element {
                TemplateElement::RawString(_) | TemplateElement::Comment(_) => {}
                TemplateElement::Expression(helper) | TemplateElement::HtmlExpression(helper) => {
                    match include::included(helper) {
                        Some(name) => self.included(name),
                        None => self.helper(helper, scoped),
                    }
                }
                TemplateElement::HelperBlock(helper) => {
                    self.helper(helper, scoped);
                    let inner = scoped || matches!(helper.name.as_name(), Some("each" | "with"));
                    helper.template.iter().for_each(|template| self.template(template, inner));
                    helper.inverse.iter().for_each(|template| self.template(template, scoped));
                }
                TemplateElement::PartialExpression(partial) => {
                    partial
                        .params
                        .iter()
                        .chain(partial.hash.values())
                        .for_each(|p| self.parameter(p, scoped));
                    match lint::name(&partial.name) {
                        Ok(name) => self.included(name),
                        Err(_) => self.anything(),
                    }
                }
                _ => self.anything(),
            }
        }
    }

    fn included(&mut self, name: &str) {
        // Included in a block it sees the block's value as everything: what it says of that is of the block.
        match self.templates.get(name) {
            Some(template) => self.template(template, false),
            None => self.anything(),
        }
    }

    fn helper(&mut self, helper: &HelperTemplate, scoped: bool) {
        self.parameter(&helper.name, scoped);
        helper.params.iter().chain(helper.hash.values()).for_each(|p| self.parameter(p, scoped));
    }

    fn parameter(&mut self, parameter: &Parameter, scoped: bool) {
        match parameter {
            Parameter::Name(_) | Parameter::Literal(_) | Parameter::Path(Path::Local(_)) => {}
            Parameter::Path(Path::Relative((segments, _))) => {
                let named: Vec<String> = segments
                    .iter()
                    .filter_map(|segment| match segment {
                        ::handlebars::PathSeg::Named(name) => Some(name.clone()),
                        _ => None,
                    })
                    .collect();
                if !named.is_empty() {
                    self.paths.insert(named);
                } else if !scoped || !segments.is_empty() {
                    self.anything();
                }
            }
            Parameter::Subexpression(sub) => match sub.as_element() {
                TemplateElement::Expression(helper) => self.helper(helper, scoped),
                _ => self.anything(),
            },
            _ => self.anything(),
        }
    }
}

/// What stands at a path.
pub(crate) fn at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, segment| match value {
        Value::Array(items) => items.get(segment.parse::<usize>().ok()?),
        other => other.get(segment),
    })
}

/// Equal, and with the same order of keys, in which a template may list them.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|((key, value), (other_key, other_value))| {
                    key == other_key && same(value, other_value)
                })
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        // Two zeros are equal and don't read the same.
        (Value::Number(one), Value::Number(other)) => {
            one == other && one.as_f64().map(f64::to_bits) == other.as_f64().map(f64::to_bits)
        }
        _ => one == other,
    }
}
