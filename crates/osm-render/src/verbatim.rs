//! The engine `None`: every text is taken as it is.

use crate::budget::Budget;
use crate::engine::{Compiled, Engine, Failure, Inputs, Sources};
use crate::rendered_text::RenderedText;

pub(crate) struct Verbatim;

impl Engine for Verbatim {
    fn compile(&self, sources: &Sources<'_>, _: &Budget<'_>) -> Result<Box<dyn Compiled>, Failure> {
        let texts = sources.texts.iter().map(|source| source.text.to_owned());
        Ok(Box::new(Texts(texts.collect())))
    }
}

/// The texts of one stage.
struct Texts(Vec<String>);

impl Compiled for Texts {
    fn render(&self, inputs: &Inputs<'_>, budget: &Budget<'_>) -> Result<Vec<RenderedText>, Failure> {
        let verbatim = |text: &String| {
            budget.step(1)?;
            budget.write(text.len())?;
            Ok(inputs.late_bound_values.text(text.clone())?)
        };
        let texts = self.0.iter().enumerate();
        let texts = texts.map(|(n, text)| verbatim(text).map_err(|failure: Failure| failure.in_text(n)));
        texts.collect()
    }
}
