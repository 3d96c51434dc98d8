//! The interface of a template language in which profiles can be written.
//!
//! Everything here is neutral: sources are names and texts, late-bound values and downloads are placed by one
//! implementation for all languages, and every engine works within the same [`Budget`]. The languages are
//! listed in [`crate::engines`].

use osm_api::pool::Pool;
use osm_api::settings::Settings;
use serde_json::Value;

use crate::budget::{Budget, Exhausted};
use crate::downloads::Catalogue;
use crate::rendered_text::{Placements, RenderedText};
use osm_api::ClusterEndpoint;

pub(crate) trait Engine: Sync {
    /// Parses the templates of one stage, and checks how they include each other. The first one that is wrong
    /// fails.
    fn compile(&self, sources: &Sources<'_>, budget: &Budget<'_>) -> Result<Box<dyn Compiled>, Failure>;
}

/// The compiled templates of one stage.
pub(crate) trait Compiled: Send + Sync {
    /// Renders every text of the stage, in the order of [`Sources::texts`].
    fn render(&self, inputs: &Inputs<'_>, budget: &Budget<'_>) -> Result<Vec<RenderedText>, Failure>;
}

/// The templates of one stage, each a name and a text.
pub(crate) struct Sources<'a> {
    /// Those that others can include.
    pub(crate) partials: Vec<(&'a str, &'a str)>,
    /// Those that are rendered.
    pub(crate) texts: Vec<Source<'a>>,
}

/// A text that is rendered. A failure names it by its number, because the place of each would take much
/// memory.
pub(crate) struct Source<'a> {
    pub(crate) text: &'a str,
    /// Whether it is the content of a file, and not of a unit or a module.
    pub(crate) in_file: bool,
}

/// What the templates of one stage are rendered with.
pub(crate) struct Inputs<'a> {
    /// What pool, settings and cluster mean, in one tree.
    pub(crate) data: &'a Value,
    pub(crate) pool: &'a Pool,
    pub(crate) settings: &'a Settings,
    pub(crate) cluster: &'a ClusterEndpoint,
    pub(crate) late_bound_values: &'a Placements<'a>,
    pub(crate) downloads: &'a Catalogue<'a>,
}

/// A template that can't be compiled or rendered.
#[derive(Debug, Default)]
pub(crate) struct Failure {
    /// Name of the template in which the problem is, unless that is the text.
    pub(crate) template: Option<String>,
    /// Number of the text in [`Sources::texts`] that was compiled or rendered, if it was one.
    pub(crate) text: Option<usize>,
    /// Line, from 1.
    pub(crate) line: Option<usize>,
    /// Column, from 1.
    pub(crate) column: Option<usize>,
    /// Never repeats data: a value may be a credential.
    pub(crate) problem: String,
}

impl Failure {
    /// In the template with this name, unless one that it includes has added its own.
    pub(crate) fn in_template(mut self, name: &str) -> Self {
        self.template.get_or_insert_with(|| name.to_owned());
        self
    }

    /// While the text with this number was compiled or rendered.
    pub(crate) fn in_text(mut self, number: usize) -> Self {
        self.text = Some(number);
        self
    }

    /// At this place, unless something inside has added its own.
    pub(crate) fn at(mut self, line: usize, column: usize) -> Self {
        if self.line.is_none() {
            (self.line, self.column) = (Some(line), Some(column));
        }
        self
    }
}

impl From<String> for Failure {
    fn from(problem: String) -> Self {
        Self {
            problem,
            ..Self::default()
        }
    }
}

impl From<&str> for Failure {
    fn from(problem: &str) -> Self {
        problem.to_owned().into()
    }
}

impl From<Exhausted> for Failure {
    fn from(exhausted: Exhausted) -> Self {
        exhausted.to_string().into()
    }
}
