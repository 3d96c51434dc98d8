//! The template languages that profiles can be written in.

use osm_api::profile::TemplateEngine;

use crate::engine::Engine;
use crate::go_templates::GoTemplateEngine;
use crate::handlebars::HandlebarsEngine;
use crate::verbatim::Verbatim;

/// The engine of a language.
pub(crate) fn engine(language: TemplateEngine) -> &'static dyn Engine {
    match language {
        TemplateEngine::GoTemplate => &GoTemplateEngine,
        TemplateEngine::Handlebars => &HandlebarsEngine,
        TemplateEngine::None => &Verbatim,
    }
}
