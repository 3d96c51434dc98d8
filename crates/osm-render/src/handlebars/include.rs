//! Including templates, without a copy of all data.
//!
//! For each inclusion, the crate copies the data that the included template sees, and each field that the template reads from the
//! copy once more. That takes longer than everything else in rendering, and no budget sees it. So every inclusion becomes a call
//! of [`Include`], which renders the template where it is included. It copies only parameters, and charges them.

use ::handlebars::{
    BlockContext, BlockParams, Context, Handlebars, Helper, HelperDef, HelperResult, Output, RenderContext,
    RenderError, RenderErrorReason, Renderable,
};

use super::Limited;
use super::blocks::scope;
use super::session::Session;

/// Renders the template that its first parameter names, with each line indented by the second. A third parameter is the data that
/// the template sees, and named parameters are fields in addition.
pub(super) struct Include<'a> {
    pub(super) session: &'a Session<'a>,
}

impl HelperDef for Include<'_> {
    fn call<'reg: 'rc, 'rc>(
        &self,
        helper: &Helper<'rc>,
        registry: &'reg Handlebars<'reg>,
        context: &'rc Context,
        rc: &mut RenderContext<'reg, 'rc>,
        out: &mut dyn Output,
    ) -> HelperResult {
        let text = |index| helper.param(index).and_then(|param| param.value().as_str());
        let (name, indent) = (text(0).unwrap_or_default(), text(1).unwrap_or_default());
        let template = registry.get_template(name);
        let template = template.ok_or_else(|| RenderErrorReason::PartialNotFound(name.to_owned()))?;
        let block = self.block(helper, rc)?;
        let has_block = block.is_some();
        block.into_iter().for_each(|block| rc.push_block(block));
        if indent.is_empty() {
            template.render(registry, context, rc, out)?;
        } else {
            let mut included = Limited::new(self.session.budget);
            template.render(registry, context, rc, &mut included)?;
            out.write(&indented(&included.text, indent))?;
        }
        if has_block {
            rc.pop_block();
        }
        Ok(())
    }
}

impl Include<'_> {
    /// What the parameters change of what the template sees.
    fn block<'rc>(
        &self,
        helper: &Helper<'rc>,
        rc: &RenderContext<'_, 'rc>,
    ) -> Result<Option<BlockContext<'rc>>, RenderError> {
        let (data, fields) = (helper.param(2), helper.hash());
        if data.is_none() && fields.is_empty() {
            return Ok(None);
        }
        let around = rc.block();
        let mut block = match (data, around) {
            (Some(data), _) if data.is_value_missing() => {
                return Err(RenderError::strict_error(data.relative_path()));
            }
            (Some(data), _) => scope(self.session, data, None)?,
            (None, Some(around)) => {
                let mut block = BlockContext::new();
                block.base_path_mut().clone_from(around.base_path());
                if let Some(value) = around.base_value() {
                    self.session.copies(value)?;
                    block.set_base_value(value.clone());
                }
                block
            }
            (None, None) => BlockContext::new(),
        };
        if let Some(around) = around {
            block.local_variables_mut().clone_from(around.local_variables());
        }
        let mut params = BlockParams::new();
        for (name, value) in fields {
            if value.is_value_missing() {
                return Err(RenderError::strict_error(value.relative_path()));
            }
            self.session.copies(value.value())?;
            params.add_value(name, value.value().clone())?;
        }
        block.set_block_params(params);
        Ok(Some(block))
    }
}

/// Indents every line that is not empty.
fn indented(text: &str, indent: &str) -> String {
    let line = |line: &str| match line.trim_end_matches(['\r', '\n']) {
        "" => line.to_owned(),
        _ => format!("{indent}{line}"),
    };
    text.split_inclusive('\n').map(line).collect()
}
