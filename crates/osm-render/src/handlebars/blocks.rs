//! Helpers that know what is being rendered: the blocks, which charge what they render to the budget and refuse a missing field
//! instead of taking it for false, `late`, and the URLs of downloads.

use ::handlebars::{
    BlockContext, BlockParams, Context, Handlebars, Helper, HelperDef, HelperResult, JsonTruthy, Output,
    PathAndJson, RenderContext, RenderError, RenderErrorReason, ScopedJson,
};
use serde_json::Value;

use super::lint;
use super::session::Session;
use crate::downloads::Part;

/// Registers them for one stage.
pub(super) fn register<'reg: 'rc, 'rc>(rc: &mut RenderContext<'reg, 'rc>, session: &'rc Session<'rc>) {
    rc.register_local_helper(
        "if",
        Box::new(Condition {
            session,
            name: "if",
            when: true,
        }),
    );
    rc.register_local_helper(
        "unless",
        Box::new(Condition {
            session,
            name: "unless",
            when: false,
        }),
    );
    rc.register_local_helper("each", Box::new(Each { session }));
    rc.register_local_helper("with", Box::new(With { session }));
    rc.register_local_helper(lint::LATE, Box::new(Late { session }));
    for (name, part) in [
        (lint::DOWNLOAD_URL, Part::Artefact),
        (lint::CHECKSUM_URL, Part::Checksum),
    ] {
        rc.register_local_helper(name, Box::new(Url { session, name, part }));
    }
}

/// The first argument. All arguments that are not part of the data were copied for this call, and are charged.
pub(super) fn argument<'h, 'rc>(
    session: &Session<'_>,
    helper: &'h Helper<'rc>,
    name: &'static str,
) -> Result<&'h PathAndJson<'rc>, RenderError> {
    let value = helper
        .param(0)
        .ok_or(RenderErrorReason::ParamNotFoundForIndex(name, 0))?;
    if value.is_value_missing() {
        return Err(RenderError::strict_error(value.relative_path()));
    }
    let arguments = helper.params().iter().chain(helper.hash().values());
    arguments
        .filter(|argument| argument.context_path().is_none())
        .try_for_each(|copied| session.copies(copied.value()))?;
    Ok(value)
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
        let zero = helper
            .hash_get("includeZero")
            .is_some_and(|zero| zero.value().is_truthy(false));
        let holds = argument(self.session, helper, self.name)?.value().is_truthy(zero) == self.when;
        let branch = if holds {
            helper.template()
        } else {
            helper.inverse()
        };
        self.session.render(branch, registry, context, rc, out)
    }
}

/// A block whose paths start at `base`, or at `key` in it.
pub(super) fn scope<'rc>(
    session: &Session<'_>,
    base: &PathAndJson<'rc>,
    key: Option<(&str, &Value)>,
) -> Result<BlockContext<'rc>, RenderError> {
    let mut block = BlockContext::new();
    match (base.context_path(), key) {
        (Some(path), key) => {
            block.base_path_mut().clone_from(path);
            block.base_path_mut().extend(key.map(|(key, _)| key.to_owned()));
        }
        (None, key) => {
            let value = key.map_or(base.value(), |(_, value)| value);
            session.copies(value)?;
            block.set_base_value(value.clone());
        }
    }
    Ok(block)
}

/// Gives a name to the value that a block's paths start at. Only what is part of the data can be named without a copy.
fn name_value<'rc>(
    session: &Session<'_>,
    params: &mut BlockParams<'rc>,
    name: &'rc str,
    base: &PathAndJson<'rc>,
    value: &Value,
) -> HelperResult {
    if base.context_path().is_some() {
        return params.add_path(name, Vec::new());
    }
    session.copies(value)?;
    params.add_value(name, value.clone())
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
        let value = argument(self.session, helper, "with")?;
        if !value.value().is_truthy(false) {
            return self.session.render(helper.inverse(), registry, context, rc, out);
        }
        let mut block = scope(self.session, value, None)?;
        if let Some(parent) = rc.block() {
            block.local_variables_mut().clone_from(parent.local_variables());
        }
        if let Some(name) = helper.block_param() {
            let mut params = BlockParams::new();
            name_value(self.session, &mut params, name, value, value.value())?;
            block.set_block_params(params);
        }
        rc.push_block(block);
        self.session
            .render(helper.template(), registry, context, rc, out)?;
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
        let list = argument(self.session, helper, "each")?;
        let items: Vec<(Value, &Value)> = match list.value() {
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
            _ => return Err(RenderErrorReason::Other("each: takes a list or a map".to_owned()).into()),
        };
        if items.is_empty() {
            return self.session.render(helper.inverse(), registry, context, rc, out);
        }
        let last = items.len() - 1;
        for (i, (key, item)) in items.into_iter().enumerate() {
            let segment = key.as_str().map_or_else(|| i.to_string(), str::to_owned);
            let mut block = scope(self.session, list, Some((&segment, item)))?;
            block.set_local_var("index", Value::from(i));
            block.set_local_var("first", Value::from(i == 0));
            block.set_local_var("last", Value::from(i == last));
            if list.value().is_object() {
                block.set_local_var("key", key.clone());
            }
            let mut params = BlockParams::new();
            if let Some(name) = helper.block_param() {
                name_value(self.session, &mut params, name, list, item)?;
            } else if let Some((name, of_key)) = helper.block_param_pair() {
                name_value(self.session, &mut params, name, list, item)?;
                params.add_value(of_key, key)?;
            }
            block.set_block_params(params);
            rc.push_block(block);
            self.session
                .render(helper.template(), registry, context, rc, out)?;
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
        let id = argument(self.session, helper, lint::LATE)?
            .value()
            .as_str()
            .ok_or_else(|| fail("the id must be text"))?;
        let encoding = helper.hash_get("as").and_then(|name| name.value().as_str());
        let marker = self
            .session
            .late_bound
            .place(id, encoding)
            .map_err(|problem| fail(&problem))?;
        self.session.made(Value::String(marker))
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
        let name = argument(self.session, helper, self.name)?
            .value()
            .as_str()
            .unwrap_or_default();
        let architecture = helper
            .hash_get("arch")
            .and_then(|architecture| architecture.value().as_str());
        match self.session.downloads.url(name, architecture, self.part) {
            Ok(url) => self.session.made(Value::String(url)),
            Err(problem) => Err(RenderErrorReason::Other(format!("{}: {problem}", self.name)).into()),
        }
    }
}
