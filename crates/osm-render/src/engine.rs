//! What a template language must be able to do, so that profiles can be written in it.
//!
//! Everything here is neutral: sources are names and texts, late-bound values and downloads are placed by one implementation for all
//! languages, and every engine works within the same [`Budget`]. The languages are listed in [`crate::engines`].

use std::collections::BTreeMap;

use osm_api::pool::Pool;
use osm_api::profile::File;
use osm_api::settings::Settings;
use serde_json::Value;

use crate::Stage;
use crate::budget::Budget;
use crate::downloads::Catalogue;
use crate::rendered_text::{Placements, RenderedText};
use osm_api::ClusterEndpoint;

/// Texts of parts of the library by their names.
pub(crate) type Parts = BTreeMap<&'static str, String>;

pub(crate) trait Engine: Sync {
    /// Names and texts of the library's parts that are written in this language; each name starts with [`crate::library::PART_PREFIX`].
    fn library(&self) -> &'static Parts;

    /// Checks the bounds of one template before it is parsed, and lists the names of the templates that it includes itself.
    fn check<'s>(&self, source: &'s str) -> Result<Vec<&'s str>, Located>;

    /// Parses the templates of one stage, and checks how they include each other. The first one that is wrong fails.
    fn compile(&self, sources: &Sources<'_>, budget: &Budget<'_>) -> Result<Box<dyn Compiled>, Failure>;

    /// Whether a file is written although its template renders to nothing.
    fn keeps_empty_files(&self) -> bool {
        false
    }

    /// The kubelet's bootstrap kubeconfig, with a marker for its token, for nodes that fetch it from a Secret of its own.
    fn kubelet_kubeconfig(&self, _: &ClusterEndpoint) -> Option<String> {
        None
    }

    /// Files that every profile in this language gets in a stage, though it does not list them. They are rendered already.
    fn files(&self, _: Stage, _: &Settings) -> Vec<File> {
        Vec::new()
    }
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

/// A text that is rendered.
pub(crate) struct Source<'a> {
    /// Its place inside the spec, for messages only: keys can contain dots, so that two places can read the same.
    pub(crate) place: String,
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
    /// Name of the template in which the problem is.
    pub(crate) template: String,
    /// Name of the text that was being rendered, which may include the template.
    pub(crate) text: Option<String>,
    pub(crate) at: Located,
}

impl Failure {
    /// Something wrong in a text itself.
    pub(crate) fn of_text(place: &str, at: Located) -> Self {
        Self {
            template: place.to_owned(),
            text: Some(place.to_owned()),
            at,
        }
    }
}
