//! The engine `None`: every text is taken as it is.

use crate::budget::Budget;
use crate::engine::{Compiled, Engine, Failure, Inputs, Located, Parts, Sources};
use crate::rendered_text::RenderedText;

pub(crate) struct Verbatim;

impl Engine for Verbatim {
    fn library(&self) -> &'static Parts {
        const { &Parts::new() }
    }

    fn check<'s>(&self, _: &'s str) -> Result<Vec<&'s str>, Located> {
        Ok(Vec::new())
    }

    fn compile(&self, sources: &Sources<'_>, _: &Budget<'_>) -> Result<Box<dyn Compiled>, Failure> {
        let texts = sources.texts.iter();
        let texts = texts.map(|source| (source.place.clone(), source.text.to_owned()));
        Ok(Box::new(Texts(texts.collect())))
    }
}

/// Names and texts of one stage.
struct Texts(Vec<(String, String)>);

impl Compiled for Texts {
    fn render(&self, inputs: &Inputs<'_>, budget: &Budget<'_>) -> Result<Vec<RenderedText>, Failure> {
        let verbatim = |(name, text): &(String, String)| {
            let charged = budget.step(1).and_then(|()| budget.write(text.len()));
            let rendered = charged.map_err(|error| error.to_string());
            rendered
                .and_then(|()| inputs.late_bound.text(text.clone()))
                .map_err(|problem| Failure::of_text(name, Located::nowhere(problem)))
        };
        self.0.iter().map(verbatim).collect()
    }
}
