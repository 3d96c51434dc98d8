//! The template languages that profiles can be written in.

use osm_api::profile::TemplateEngine;

use crate::engine::Engine;
use crate::error::ProfileError;
use crate::handlebars::HandlebarsEngine;
use crate::verbatim::Verbatim;

/// `GoTemplate`, the default of the CRD, has no engine yet: profiles that ask for it are refused.
const ENGINES: [(TemplateEngine, &dyn Engine); 2] = [
    (TemplateEngine::None, &Verbatim),
    (TemplateEngine::Handlebars, &HandlebarsEngine),
];

/// The engine of a language.
///
/// # Errors
/// A language that no engine renders.
pub(crate) fn engine(language: TemplateEngine) -> Result<&'static dyn Engine, ProfileError> {
    let found = ENGINES
        .into_iter()
        .find_map(|(known, engine)| (known == language).then_some(engine));
    found.ok_or(ProfileError::TemplateEngineUnsupported)
}
