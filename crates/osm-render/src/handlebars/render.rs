//! Renders parsed templates: walks the crate's syntax tree, and charges the budget before each piece of work.
//!
//! Only the parser of the crate is used, because helpers of ours can't bound its renderer. It copies the
//! values of a tag before it calls the tag's helper, and the data for every included template before anything
//! in that template runs. So a few bytes, such as two templates that include each other with `x=this y=this`,
//! take memory that no budget sees. It also gives included templates null for a missing field, prints lists,
//! and reports one of two mistakes in a tag by chance. Here, values are borrowed from the data, and only
//! results of helpers are new.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;

use ::handlebars::template::{BlockParam, DecoratorTemplate, HelperTemplate, Parameter, TemplateElement};
use ::handlebars::{JsonRender, JsonTruthy, Path, Template};
use osm_api::profile::MAX_CONTENT_BYTES;
use serde_json::Value;

use super::lint::{self, name};
use super::values;
use crate::budget::Budget;
use crate::engine::{Failure, Inputs};

/// Renders the templates of one stage for one pool.
pub(super) struct Renderer<'a> {
    /// Templates that others can include.
    pub(super) named: &'a BTreeMap<String, Template>,
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) budget: &'a Budget<'a>,
    /// How many templates and branches of blocks are being rendered, one inside the other.
    pub(super) depth: Cell<usize>,
}

/// Deepest nesting of blocks and included templates together. Rendering recurses, and an overflowing stack
/// can't be caught.
const MAX_DEPTH: usize = 48;

/// A path costs one more step for each time that it has this many bytes, because following it takes time for
/// each segment.
const BYTES_PER_STEP: usize = 64;

/// What a path in a template can lead to.
#[derive(Clone, Copy)]
struct Scope<'s> {
    /// The scope around it, to which `../` leads.
    around: Option<&'s Scope<'s>>,
    /// The value that paths start at.
    base: &'s Value,
    /// Values with names of their own: `as |name|` of a block, and the fields that an included template is
    /// given.
    names: &'s BTreeMap<&'s str, &'s Value>,
    /// `@index`, `@first`, `@last` and `@key`, without the `@`.
    locals: &'s [(&'static str, Value)],
}

impl<'s> Scope<'s> {
    fn outwards(&'s self) -> impl Iterator<Item = &'s Scope<'s>> {
        std::iter::successors(Some(self), |scope| scope.around)
    }

    /// The value at a path; `None` where there is no such field.
    fn find(&'s self, path: &Path) -> Option<&'s Value> {
        match path {
            Path::Local((levels, name, _)) => {
                let mut locals = self.outwards().nth(*levels)?.locals.iter();
                locals.find(|(local, _)| local == name).map(|(_, value)| value)
            }
            Path::Relative((_, path)) => self.find_field(path),
        }
    }

    fn find_field(&'s self, path: &str) -> Option<&'s Value> {
        const SEPARATORS: [char; 2] = ['.', '/'];
        let path = path.strip_prefix("./").unwrap_or(path);
        let (mut path, is_absolute) = match path.strip_prefix("@root") {
            Some(rest) => (rest, true),
            None => (path, false),
        };
        let mut levels = 0;
        while let Some(above) = path.strip_prefix("..") {
            levels += 1;
            path = above.strip_prefix(SEPARATORS).unwrap_or(above);
        }
        let mut fields = path
            .split(SEPARATORS)
            .filter(|field| !matches!(*field, "" | "this"))
            .peekable();
        let named = fields
            .peek()
            .filter(|_| !is_absolute)
            .and_then(|first| self.outwards().find_map(|scope| scope.names.get(first).copied()));
        let start = if named.is_some() {
            fields.next();
            named
        } else if is_absolute {
            self.outwards().last().map(|scope| scope.base)
        } else {
            // As in the crate, `../` at the top leads nowhere else.
            let scope = self.outwards().nth(levels).unwrap_or(self);
            Some(scope.base)
        };
        fields.try_fold(start?, |value, field| match value {
            Value::Array(items) => items.get(field.parse::<usize>().ok()?),
            Value::Object(map) => map.get(field),
            _ => None,
        })
    }
}

impl Renderer<'_> {
    /// Renders a template that is not part of another one.
    pub(super) fn text(&self, template: &Template) -> Result<String, Failure> {
        let scope = Scope {
            around: None,
            base: self.inputs.data,
            names: &BTreeMap::new(),
            locals: &[],
        };
        let mut out = String::new();
        self.template(Some(template), &scope, &mut out)?;
        Ok(out)
    }

    /// Renders a template or a branch of a block. `None` renders nothing.
    fn template(
        &self,
        template: Option<&Template>,
        scope: &Scope<'_>,
        out: &mut String,
    ) -> Result<(), Failure> {
        let Some(template) = template else { return Ok(()) };
        self.budget.step(1)?;
        let depth = self.depth.get();
        if depth >= MAX_DEPTH {
            let problem = format!("blocks and included templates are nested more than {MAX_DEPTH} deep");
            return Err(problem.into());
        }
        self.depth.set(depth + 1);
        // The parser removes the blanks before an inclusion that is alone on its line.
        let mut after_blank = false;
        for (index, element) in template.elements.iter().enumerate() {
            self.budget.step(1)?;
            let is_alone = !std::mem::replace(&mut after_blank, ends_with_blank(element));
            let rendered = match element {
                TemplateElement::RawString(text) => self.write(text, out),
                TemplateElement::Expression(call) | TemplateElement::HtmlExpression(call) => {
                    self.print(call, scope, out)
                }
                TemplateElement::HelperBlock(block) => self.block(block, scope, out),
                TemplateElement::PartialExpression(partial) => self.include(partial, is_alone, scope, out),
                _ => Ok(()),
            };
            rendered.map_err(|failure| {
                let failure = lint::inside(failure, template, index);
                match &template.name {
                    Some(name) => failure.in_template(name),
                    None => failure,
                }
            })?;
        }
        self.depth.set(depth);
        Ok(())
    }

    fn write(&self, text: &str, out: &mut String) -> Result<(), Failure> {
        if out.len().saturating_add(text.len()) > MAX_CONTENT_BYTES {
            return Err(format!("the output is larger than {MAX_CONTENT_BYTES} bytes").into());
        }
        self.budget.write(text.len())?;
        out.push_str(text);
        Ok(())
    }

    /// Prints a field, or the result of a helper.
    fn print(&self, call: &HelperTemplate, scope: &Scope<'_>, out: &mut String) -> Result<(), Failure> {
        let value = self.called(call, scope)?;
        match &*value {
            Value::Array(_) | Value::Object(_) => {
                let problem = "a list or a map can't be printed: use json, yaml, toml or join, or a loop";
                Err(problem.to_owned().into())
            }
            Value::String(text) => self.write(text, out),
            other => self.write(&other.render(), out),
        }
    }

    fn block(&self, block: &HelperTemplate, scope: &Scope<'_>, out: &mut String) -> Result<(), Failure> {
        let (name, inverse) = (name(&block.name)?, block.inverse.as_ref());
        let value = block.params.first().map(|value| self.value(value, scope));
        let value = value.ok_or_else(|| missing_argument(name))??;
        let (first, second) = match &block.block_param {
            Some(BlockParam::Single(first)) => (self::name(first).ok(), None),
            Some(BlockParam::Pair((first, second))) => (self::name(first).ok(), self::name(second).ok()),
            _ => (None, None),
        };
        match name {
            "if" | "unless" => {
                let zero = self.option(block, "includeZero", scope)?;
                let zero = zero.is_some_and(|zero| zero.is_truthy(false));
                let holds = value.is_truthy(zero) == (name == "if");
                let branch = if holds { block.template.as_ref() } else { inverse };
                self.template(branch, scope, out)
            }
            "with" if value.is_truthy(false) => {
                let names = first.map(|name| (name, &*value)).into_iter().collect();
                let inner = Scope {
                    around: Some(scope),
                    base: &value,
                    names: &names,
                    locals: scope.locals,
                };
                self.template(block.template.as_ref(), &inner, out)
            }
            "each" => {
                let items: Vec<(Value, &Value)> = match &*value {
                    Value::Null => Vec::new(),
                    Value::Array(items) => items
                        .iter()
                        .enumerate()
                        .map(|(i, item)| (Value::from(i), item))
                        .collect(),
                    Value::Object(map) => map
                        .iter()
                        .map(|(key, item)| (Value::from(key.as_str()), item))
                        .collect(),
                    _ => return Err("each: takes a list or a map".to_owned().into()),
                };
                if items.is_empty() {
                    return self.template(inverse, scope, out);
                }
                let last = items.len() - 1;
                for (i, (key, item)) in items.iter().enumerate() {
                    let mut locals = vec![
                        ("index", Value::from(i)),
                        ("first", Value::from(i == 0)),
                        ("last", Value::from(i == last)),
                    ];
                    locals.extend(value.is_object().then(|| ("key", key.clone())));
                    let names = [second.map(|name| (name, key)), first.map(|name| (name, *item))];
                    let names = names.into_iter().flatten().collect();
                    let inner = Scope {
                        around: Some(scope),
                        base: item,
                        names: &names,
                        locals: &locals,
                    };
                    self.template(block.template.as_ref(), &inner, out)?;
                }
                Ok(())
            }
            _ => self.template(inverse, scope, out),
        }
    }

    /// Renders another template in the place of an inclusion. If that `is_alone` on its line, each line is
    /// indented as it is.
    fn include(
        &self,
        partial: &DecoratorTemplate,
        is_alone: bool,
        scope: &Scope<'_>,
        out: &mut String,
    ) -> Result<(), Failure> {
        let template = self.named.get(name(&partial.name)?);
        let base = partial.params.first();
        let base = base.map(|base| self.value(base, scope)).transpose()?;
        // In the order of their names, so that of two mistakes the same one is reported each time.
        let fields: BTreeMap<&String, &Parameter> = partial.hash.iter().collect();
        let fields = fields
            .into_iter()
            .map(|(name, value)| Ok((name.as_str(), self.value(value, scope)?)));
        let fields = fields.collect::<Result<Vec<(&str, Cow<'_, Value>)>, Failure>>()?;
        let names: BTreeMap<&str, &Value> = fields.iter().map(|(name, value)| (*name, &**value)).collect();
        let inner = Scope {
            around: Some(scope),
            base: base.as_deref().unwrap_or(scope.base),
            names: &names,
            locals: scope.locals,
        };
        let is_same = base.is_none() && names.is_empty();
        let scope = if is_same { scope } else { &inner };
        match partial.indent.as_deref().filter(|_| is_alone) {
            None | Some("") => self.template(template, scope, out),
            Some(indent) => {
                let mut included = String::new();
                self.template(template, scope, &mut included)?;
                // Written line by line, so that the indentation of many lines is never larger than the output
                // may be.
                for line in included.split_inclusive('\n') {
                    if !line.trim_end_matches(['\r', '\n']).is_empty() {
                        self.write(indent, out)?;
                    }
                    self.write(line, out)?;
                }
                Ok(())
            }
        }
    }

    /// The value of a parameter, which must exist; null is a value.
    fn value<'s>(&self, parameter: &'s Parameter, scope: &'s Scope<'s>) -> Result<Cow<'s, Value>, Failure> {
        self.budget.step(1)?;
        let missing = |path: &str| Failure::from(format!("there is no field {path:?} here"));
        match parameter {
            Parameter::Literal(value) => Ok(Cow::Borrowed(value)),
            Parameter::Name(name) => Err(missing(name)),
            Parameter::Path(path) => {
                let raw = name(parameter)?;
                // A path can be as long as a template, and a loop can follow it again and again.
                self.budget
                    .step(u64::try_from(raw.len() / BYTES_PER_STEP).unwrap_or(u64::MAX))?;
                let value = scope.find(path).ok_or_else(|| missing(raw))?;
                Ok(Cow::Borrowed(value))
            }
            Parameter::Subexpression(expression) => match expression.as_element() {
                TemplateElement::Expression(call) => self.called(call, scope),
                _ => Err("is not an expression".to_owned().into()),
            },
            _ => Err("isn't a value".to_owned().into()),
        }
    }

    /// The value of a named parameter.
    fn option<'s>(
        &self,
        call: &'s HelperTemplate,
        name: &str,
        scope: &'s Scope<'s>,
    ) -> Result<Option<Cow<'s, Value>>, Failure> {
        call.hash
            .get(name)
            .map(|value| self.value(value, scope))
            .transpose()
    }

    /// The result of a helper, or the field that an expression names. What a helper makes is charged.
    fn called<'s>(&self, call: &'s HelperTemplate, scope: &'s Scope<'s>) -> Result<Cow<'s, Value>, Failure> {
        let name = name(&call.name)?;
        if !lint::is_helper(name) {
            return self.value(&call.name, scope);
        }
        let arguments = call.params.iter().map(|argument| self.value(argument, scope));
        let arguments = arguments.collect::<Result<Vec<_>, Failure>>()?;
        let text =
            |value: &Option<Cow<'_, Value>>| value.as_deref().and_then(Value::as_str).map(str::to_owned);
        let first = || arguments.first().ok_or_else(|| missing_argument(name));
        let made = match name {
            lint::LATE => {
                let encoding = text(&self.option(call, "as", scope)?);
                let id = first()?.as_str().ok_or_else(|| "the id must be text".to_owned());
                id.and_then(|id| self.inputs.late_bound_values.place(id, encoding.as_deref()))
                    .map(Value::String)
            }
            lint::DOWNLOAD_URL | lint::CHECKSUM_URL => {
                let architecture = text(&self.option(call, "arch", scope)?);
                let artefact = first()?.as_str().unwrap_or_default();
                let urls = self.inputs.downloads.urls(artefact, architecture.as_deref());
                urls.map(|[url, of_checksum]| {
                    Value::String(if name == lint::DOWNLOAD_URL {
                        url
                    } else {
                        of_checksum
                    })
                })
            }
            _ => {
                let arguments: Vec<&Value> = arguments.iter().map(|argument| &**argument).collect();
                for argument in &arguments {
                    self.budget.read(size(argument))?;
                }
                values::call(name, &arguments)
            }
        };
        let made = made.map_err(|problem| format!("{name}: {problem}"))?;
        self.budget.copy(size(&made))?;
        Ok(Cow::Owned(made))
    }
}

fn missing_argument(helper: &str) -> Failure {
    format!("{helper}: an argument is missing").into()
}

fn ends_with_blank(element: &TemplateElement) -> bool {
    matches!(element, TemplateElement::RawString(text) if text.ends_with([' ', '\t']))
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
