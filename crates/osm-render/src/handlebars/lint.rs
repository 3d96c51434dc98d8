//! Checks a stage's parsed templates: they call only known helpers, and include only templates that exist, in no circle and not
//! too deep.

use std::collections::{BTreeMap, HashMap};

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

/// What checking a template found out about it.
#[derive(Default)]
pub(super) struct Outline {
    /// Elements of the template and of its blocks, and the values in their tags.
    pub(super) elements: u64,
    /// Levels of blocks.
    depth: usize,
    /// Names of the templates that it includes, and the levels of blocks around each.
    included: BTreeMap<String, usize>,
}

impl Outline {
    /// Checks one parsed template on its own.
    pub(super) fn of(template: &Template) -> Result<Self, Located> {
        let mut outline = Self::default();
        outline.template(template, 1)?;
        Ok(outline)
    }

    fn enter(&mut self, level: usize) -> Result<(), Located> {
        self.elements += 1;
        self.depth = self.depth.max(level);
        match level > MAX_DEPTH {
            true => Err(Located::nowhere(too_deep())),
            false => Ok(()),
        }
    }

    fn template(&mut self, template: &Template, level: usize) -> Result<(), Located> {
        self.enter(level)?;
        for (i, element) in template.elements.iter().enumerate() {
            self.elements += 1;
            self.element(element, level).map_err(|error| {
                let position = template.mapping.get(i).filter(|_| error.line.is_none());
                Located {
                    line: position.map(|at| at.0).or(error.line),
                    column: position.map(|at| at.1).or(error.column),
                    ..error
                }
            })?;
        }
        Ok(())
    }

    fn element(&mut self, element: &TemplateElement, level: usize) -> Result<(), Located> {
        match element {
            TemplateElement::RawString(_) | TemplateElement::Comment(_) => Ok(()),
            TemplateElement::Expression(helper) | TemplateElement::HtmlExpression(helper) => {
                self.expression(helper, level)
            }
            TemplateElement::HelperBlock(helper) => {
                let name = name(&helper.name)?;
                if !BLOCK_HELPERS.contains(&name) {
                    return Err(Located::nowhere(format!(
                        "{{{{#{name}}}}} is not a block: use if, unless, each or with, such as {{{{#if ({name} …)}}}}"
                    )));
                }
                if helper.params.len() != 1 {
                    return Err(Located::nowhere(format!("{{{{#{name}}}}} takes one value")));
                }
                self.values(&helper.params, &helper.hash, level)?;
                let mut branches = helper.template.iter().chain(&helper.inverse);
                branches.try_for_each(|branch| self.template(branch, level + 1))
            }
            TemplateElement::PartialExpression(partial) => {
                let around = self.included.entry(name(&partial.name)?.to_owned()).or_default();
                *around = level.max(*around);
                if partial.params.len() > 1 {
                    return Err(Located::nowhere(
                        "an included template takes at most one value without a name",
                    ));
                }
                self.values(&partial.params, &partial.hash, level)
            }
            _ => Err(Located::nowhere(
                "decorators, inline partials and partial blocks are not supported",
            )),
        }
    }

    fn expression(&mut self, helper: &HelperTemplate, level: usize) -> Result<(), Located> {
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
        self.values(&helper.params, &helper.hash, level)
    }

    /// Checks the values in a tag.
    fn values(
        &mut self,
        params: &[Parameter],
        hash: &HashMap<String, Parameter>,
        level: usize,
    ) -> Result<(), Located> {
        for value in params.iter().chain(hash.values()) {
            self.enter(level)?;
            if let Parameter::Subexpression(sub) = value {
                let TemplateElement::Expression(helper) = sub.as_element() else {
                    return Err(Located::nowhere("is not an expression"));
                };
                self.expression(helper, level)?;
            }
        }
        Ok(())
    }
}

fn too_deep() -> String {
    format!("blocks and included templates are nested more than {MAX_DEPTH} deep")
}

/// Checks how the templates of a stage include each other.
pub(super) struct Inclusions<'r> {
    /// The templates with names.
    named: &'r BTreeMap<String, Outline>,
    /// The levels of those that were visited, with all that they include.
    depths: BTreeMap<&'r str, usize>,
    /// The templates that lead to the one that is visited. It never gets longer than [`MAX_DEPTH`].
    trail: Vec<&'r str>,
}

impl<'r> Inclusions<'r> {
    pub(super) fn of(named: &'r BTreeMap<String, Outline>) -> Self {
        Self {
            named,
            depths: BTreeMap::new(),
            trail: Vec::new(),
        }
    }

    /// The levels of a named template with all that it includes, depth first.
    pub(super) fn check_named(&mut self, name: &str) -> Result<usize, Failure> {
        let Some((name, outline)) = self.named.get_key_value(name) else {
            return Err(self.failed(format!("there is no template {name:?} in this stage's templates")));
        };
        if let Some(known) = self.depths.get(name.as_str()) {
            return Ok(*known);
        }
        let start = self.trail.iter().position(|above| above == name);
        self.trail.push(name);
        if let Some(start) = start {
            let cycle: Vec<&str> = self.trail.iter().skip(start).copied().collect();
            let cycle = cycle.join(" → ");
            return Err(self.failed(format!("templates include each other in a circle: {cycle}")));
        }
        if self.trail.len() > MAX_DEPTH {
            return Err(self.failed(too_deep()));
        }
        let depth = self.check(outline)?;
        self.trail.pop();
        self.depths.insert(name, depth);
        Ok(depth)
    }

    /// As [`Self::check_named`], for a template that may have no name.
    pub(super) fn check(&mut self, outline: &Outline) -> Result<usize, Failure> {
        let mut depth = outline.depth;
        for (name, around) in &outline.included {
            depth = depth.max(around + self.check_named(name)?);
        }
        match depth > MAX_DEPTH {
            true => Err(self.failed(too_deep())),
            false => Ok(depth),
        }
    }

    fn failed(&self, problem: String) -> Failure {
        Failure {
            template: self.trail.last().map(|name| (*name).to_owned()),
            ..problem.into()
        }
    }
}
