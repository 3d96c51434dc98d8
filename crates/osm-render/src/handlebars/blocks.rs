//! Helpers that know what is being rendered: the blocks, which charge what they render to a budget and take no
//! missing field for false, `late`, and the URLs of downloads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use ::handlebars::{
    BlockContext, BlockParams, Context, Handlebars, Helper, HelperDef, HelperResult, JsonTruthy, Output,
    PathAndJson, RenderContext, RenderError, RenderErrorReason, Renderable, ScopedJson, Template,
};
use osm_api::config::LateBound;
use serde_json::Value;

use super::lint::{self, Cost};
use crate::downloads::{Catalogue, Part};
use crate::late::{Encoding, Marker};

/// Elements that rendering one profile may take, loops counted as often as they run.
pub(crate) const MAX_STEPS: u64 = 1_000_000;

/// What is left to spend.
pub(crate) struct Budget(AtomicU64);

impl Default for Budget {
    fn default() -> Self {
        Self(AtomicU64::new(MAX_STEPS))
    }
}

impl Budget {
    /// What is left.
    pub(crate) fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn spend(&self, steps: u64) -> Result<(), RenderError> {
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(steps));
        left.map(|_| ()).map_err(|_| {
            RenderErrorReason::Other(format!("rendering takes more than {MAX_STEPS} steps: too many loops"))
                .into()
        })
    }
}

/// What one template is rendered with.
pub(crate) struct Session<'a> {
    pub(crate) budget: &'a Budget,
    pub(crate) costs: &'a BTreeMap<String, Cost>,
    /// Late-bound values that the stage may refer to.
    pub(crate) known: &'a BTreeMap<String, LateBound>,
    pub(crate) catalogue: &'a Catalogue<'a>,
    /// Every marker that was placed, as often as it was.
    pub(crate) placed: Mutex<Vec<Marker>>,
}

impl Session<'_> {
    pub(crate) fn enter(&self, template: &Template) -> Result<(), RenderError> {
        self.budget.spend(lint::own_weight(template, self.costs))
    }

    fn render<'reg: 'rc, 'rc>(
        &self,
        template: Option<&'rc Template>,
        registry: &'reg Handlebars<'reg>,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let Some(template) = template else { return Ok(()) };
        self.enter(template)?;
        template.render(registry, context, rc, out)
    }
}

/// Registers them for one rendering.
pub(crate) fn register<'reg: 'rc, 'rc>(rc: &mut RenderContext<'reg, 'rc>, session: &'rc Session<'rc>) {
    rc.register_local_helper("if", Box::new(Condition { session, name: "if", when: true }));
    rc.register_local_helper("unless", Box::new(Condition { session, name: "unless", when: false }));
    rc.register_local_helper("each", Box::new(Each { session }));
    rc.register_local_helper("with", Box::new(With { session }));
    rc.register_local_helper(lint::LATE, Box::new(Late { session }));
    for (name, part) in [(lint::DOWNLOAD_URL, Part::Artefact), (lint::CHECKSUM_URL, Part::Checksum)] {
        rc.register_local_helper(name, Box::new(Url { session, name, part }));
    }
}

fn argument<'h, 'rc>(
    helper: &'h Helper<'rc>,
    name: &'static str,
) -> Result<&'h PathAndJson<'rc>, RenderError> {
    let value = helper.param(0).ok_or(RenderErrorReason::ParamNotFoundForIndex(name, 0))?;
    if value.is_value_missing() { Err(RenderError::strict_error(value.relative_path())) } else { Ok(value) }
}

struct Condition<'a> {
    session: &'a Session<'a>,
    name: &'static str,
    when: bool,
}

impl HelperDef for Condition<'_> {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        registry: &'reg Handlebars<'reg>,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let zero = helper.hash_get("includeZero").is_some_and(|zero| zero.value().is_truthy(false));
        let holds = argument(helper, self.name)?.value().is_truthy(zero) == self.when;
        let branch = if holds { helper.template() } else { helper.inverse() };
        self.session.render(branch, registry, context, rc, out)
    }
}

/// A block whose paths start at `base`, or at `key` in it.
fn scope<'rc>(base: &PathAndJson<'rc>, key: Option<(&str, &Value)>) -> BlockContext<'rc> {
    let mut block = BlockContext::new();
    match (base.context_path(), key) {
        (Some(path), key) => {
            block.base_path_mut().clone_from(path);
            block.base_path_mut().extend(key.map(|(key, _)| key.to_owned()));
        }
        (None, Some((_, value))) => block.set_base_value(value.clone()),
        (None, None) => block.set_base_value(base.value().clone()),
    }
    block
}

struct With<'a> {
    session: &'a Session<'a>,
}

impl HelperDef for With<'_> {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        registry: &'reg Handlebars<'reg>,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let value = argument(helper, "with")?;
        if !value.value().is_truthy(false) {
            return self.session.render(helper.inverse(), registry, context, rc, out);
        }
        let mut block = scope(value, None);
        if let Some(parent) = rc.block() {
            block.local_variables_mut().clone_from(parent.local_variables());
        }
        if let Some(name) = helper.block_param() {
            let mut params = BlockParams::new();
            params.add_value(name, value.value().clone())?;
            block.set_block_params(params);
        }
        rc.push_block(block);
        self.session.render(helper.template(), registry, context, rc, out)?;
        rc.pop_block();
        Ok(())
    }
}

struct Each<'a> {
    session: &'a Session<'a>,
}

impl HelperDef for Each<'_> {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        registry: &'reg Handlebars<'reg>,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let list = argument(helper, "each")?;
        let items: Vec<(Value, &Value)> = match list.value() {
            Value::Null => Vec::new(),
            Value::Array(items) => items.iter().enumerate().map(|(i, item)| (Value::from(i), item)).collect(),
            Value::Object(map) => map.iter().map(|(key, item)| (Value::from(key.as_str()), item)).collect(),
            _ => return Err(RenderErrorReason::Other("each: takes a list or a map".to_owned()).into()),
        };
        if items.is_empty() {
            return self.session.render(helper.inverse(), registry, context, rc, out);
        }
        let last = items.len() - 1;
        for (i, (key, item)) in items.into_iter().enumerate() {
            let segment = key.as_str().map_or_else(|| i.to_string(), str::to_owned);
            let mut block = scope(list, Some((&segment, item)));
            block.set_local_var("index", Value::from(i));
            block.set_local_var("first", Value::from(i == 0));
            block.set_local_var("last", Value::from(i == last));
            if list.value().is_object() {
                block.set_local_var("key", key.clone());
            }
            let mut params = BlockParams::new();
            if let Some(name) = helper.block_param() {
                params.add_value(name, item.clone())?;
            } else if let Some((name, of_key)) = helper.block_param_pair() {
                params.add_value(name, item.clone())?;
                params.add_value(of_key, key)?;
            }
            block.set_block_params(params);
            rc.push_block(block);
            self.session.render(helper.template(), registry, context, rc, out)?;
            rc.pop_block();
        }
        Ok(())
    }
}

struct Late<'a> {
    session: &'a Session<'a>,
}

impl HelperDef for Late<'_> {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        let fail = |problem: &str| RenderError::from(RenderErrorReason::Other(format!("late: {problem}")));
        let id = argument(helper, lint::LATE)?.value().as_str().ok_or_else(|| fail("the id must be text"))?;
        if !self.session.known.contains_key(id) {
            let known: Vec<&str> = self.session.known.keys().map(String::as_str).collect();
            let known = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
            return Err(fail(&format!("there is no such value in this stage; here it can be {known}")));
        }
        let encoding = helper.hash_get("as").and_then(|name| Encoding::of_template(name.value().as_str()?));
        let encoding = encoding
            .ok_or_else(|| fail("say as=\"raw\", \"toml\", \"yaml\", \"json\", \"shell\" or \"b64\""))?;
        let marker = Marker { id: id.to_owned(), encoding };
        let text = marker.to_string();
        self.session.placed.lock().unwrap_or_else(PoisonError::into_inner).push(marker);
        Ok(ScopedJson::Derived(Value::String(text)))
    }
}

struct Url<'a> {
    session: &'a Session<'a>,
    name: &'static str,
    part: Part,
}

impl HelperDef for Url<'_> {
    fn call_inner<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
    ) -> Result<ScopedJson<'rc>, RenderError> {
        let name = argument(helper, self.name)?.value().as_str().unwrap_or_default();
        let architecture = helper.hash_get("arch").and_then(|architecture| architecture.value().as_str());
        match self.session.catalogue.url(name, architecture, self.part) {
            Ok(url) => Ok(ScopedJson::Derived(Value::String(url))),
            Err(problem) => Err(RenderErrorReason::Other(format!("{}: {problem}", self.name)).into()),
        }
    }
}
