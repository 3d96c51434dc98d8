//! What a template language must be able to do, so that profiles can be written in it.
//!
//! Everything here is neutral: sources are names and texts, late-bound values and downloads are placed by one implementation for all
//! languages, and every engine works within the same [`Budget`]. The languages are listed in [`crate::engines`].

use osm_api::pool::Pool;
use osm_api::settings::Settings;
use serde_json::Value;

use crate::budget::{Budget, Exhausted};
use crate::downloads::Catalogue;
use crate::error::TemplatePosition;
use crate::rendered_text::{Placements, RenderedText};
use osm_api::ClusterEndpoint;

pub(crate) trait Engine: Sync {
    /// Parses the templates of one stage, and checks how they include each other. The first one that is wrong fails.
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

/// A text that is rendered. A failure names it by its number, because the place of each would take much memory.
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
    pub(crate) late_bound: &'a Placements<'a>,
    pub(crate) downloads: &'a Catalogue<'a>,
}

/// Something wrong at a place in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Located {
    /// Line, from 1.
    pub(crate) line: Option<usize>,
    /// Column, from 1.
    pub(crate) column: Option<usize>,
    /// Never repeats data: a value may be a credential.
    pub(crate) problem: String,
}

impl Located {
    /// The position inside a template, and the problem.
    pub(crate) fn inside(self, template: String) -> (TemplatePosition, String) {
        let position = TemplatePosition {
            template,
            line: self.line,
            column: self.column,
        };
        (position, self.problem)
    }

    pub(crate) fn nowhere(problem: impl Into<String>) -> Self {
        Self {
            line: None,
            column: None,
            problem: problem.into(),
        }
    }
}

/// A template that can't be compiled or rendered.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Name of the template in which the problem is, unless that is the text.
    pub(crate) template: Option<String>,
    /// Number of the text in [`Sources::texts`] that was compiled or rendered, if it was one.
    pub(crate) text: Option<usize>,
    pub(crate) at: Located,
}

impl Failure {
    /// The failure of a template with this name.
    pub(crate) fn of_template(name: &str, at: Located) -> Self {
        Self {
            template: Some(name.to_owned()),
            ..at.into()
        }
    }

    /// While the text with this number was compiled or rendered.
    pub(crate) fn in_text(self, number: usize) -> Self {
        Self {
            text: Some(number),
            ..self
        }
    }
}

impl From<Located> for Failure {
    fn from(at: Located) -> Self {
        Self {
            template: None,
            text: None,
            at,
        }
    }
}

impl From<String> for Failure {
    fn from(problem: String) -> Self {
        Located::nowhere(problem).into()
    }
}

impl From<Exhausted> for Failure {
    fn from(exhausted: Exhausted) -> Self {
        exhausted.to_string().into()
    }
}
