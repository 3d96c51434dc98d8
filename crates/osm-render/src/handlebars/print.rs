//! Printing a field: `{{pool.name}}`.

use ::handlebars::{
    Context, Handlebars, Helper, HelperDef, HelperResult, JsonRender, Output, RenderContext,
    RenderErrorReason,
};
use serde_json::Value;

use super::blocks::argument;
use super::element::PRINT;
use super::session::Session;

/// Prints a field. The crate would copy the field before a budget sees it.
pub(super) struct Print<'a> {
    pub(super) session: &'a Session<'a>,
}

impl HelperDef for Print<'_> {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        _: &'reg Handlebars<'reg>,
        _: &'rc Context,
        _: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let value = argument(self.session, helper, PRINT)?.value();
        if matches!(value, Value::Array(_) | Value::Object(_)) {
            let problem = "a list or a map can't be printed: use json, yaml, toml or join, or a loop";
            return Err(RenderErrorReason::Other(problem.to_owned()).into());
        }
        Ok(out.write(&value.render())?)
    }
}
