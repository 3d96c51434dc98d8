//! Renders a case, and compares the result with Go's.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use osm_gotemplate::TemplateSet;
use osm_gotemplate::budget::Limits;

use crate::case::Case;
use crate::data;
use crate::deviations::DEVIATIONS;

/// Generous: Go has no such limits. They only stop what would take minutes.
const STEPS: u64 = 20_000_000;
const BYTES: usize = 1 << 30;

/// What rendering a case gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What it renders.
    Output(String),
    /// The text of the error.
    Error(String),
    /// The budget did not suffice.
    Exhausted(String),
    /// It panics, or the case's data can't be read.
    Panic(String),
}

/// How a case compares.
#[derive(Debug)]
pub enum Verdict {
    /// It is what Go gives.
    Equal,
    /// It differs as it is meant to, for this reason.
    Meant(&'static str),
    /// It differs.
    Different(Difference),
}

/// A case and a result that is not Go's.
#[derive(Debug)]
pub struct Difference {
    /// The case, with Go's result.
    pub case: Case,
    /// Our result.
    pub ours: Outcome,
}

/// Renders a case, and compares the result with Go's.
#[must_use]
pub fn compare(case: &Case) -> Verdict {
    let ours = render(case);
    let equal = match &ours {
        Outcome::Output(text) => case.output.as_ref() == Some(text),
        Outcome::Error(text) => case.error.as_ref() == Some(text),
        Outcome::Exhausted(_) | Outcome::Panic(_) => false,
    };
    if equal {
        return Verdict::Equal;
    }
    if let Some(known) = DEVIATIONS.iter().find(|known| (known.matches)(case, &ours)) {
        return Verdict::Meant(known.reason);
    }
    Verdict::Different(Difference {
        case: case.clone(),
        ours,
    })
}

/// Parses the templates of a case, and executes the first.
#[must_use]
pub fn render(case: &Case) -> Outcome {
    let attempt = catch_unwind(AssertUnwindSafe(|| render_or_panic(case)));
    attempt.unwrap_or_else(|panic| {
        let message = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Outcome::Panic(message.unwrap_or_default())
    })
}

fn render_or_panic(case: &Case) -> Outcome {
    let data = match data::value(&case.data) {
        Ok(data) => data,
        Err(error) => return Outcome::Panic(format!("the data: {error:#}")),
    };
    let budget = Limits::new(STEPS, BYTES);
    let templates = case.named();
    let first = templates.first().map_or("", |(name, _)| name);
    let mut set = TemplateSet::new(first);
    for (name, text) in &templates {
        if let Err(error) = set.parse(name, text, &budget) {
            return failed(&error);
        }
    }
    match set.execute(first, &data, &budget) {
        Ok(output) => Outcome::Output(output),
        Err(error) => failed(&error),
    }
}

fn failed(error: &osm_gotemplate::Error) -> Outcome {
    if error.exhausted {
        Outcome::Exhausted(error.to_string())
    } else {
        Outcome::Error(error.to_string())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "case:  {}", self.case)?;
        match (&self.case.output, &self.case.error) {
            (Some(output), _) => writeln!(f, "  Go:    output {output:?}")?,
            (None, error) => writeln!(f, "  Go:    error  {:?}", error.as_deref().unwrap_or_default())?,
        }
        match &self.ours {
            Outcome::Output(output) => write!(f, "  ours:  output {output:?}"),
            Outcome::Error(error) => write!(f, "  ours:  error  {error:?}"),
            Outcome::Exhausted(error) => write!(f, "  ours:  too much: {error:?}"),
            Outcome::Panic(message) => write!(f, "  ours:  PANIC {message:?}"),
        }
    }
}
