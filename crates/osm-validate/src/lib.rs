//! Decides whether a profile can be accepted. osp-controller and `osmctl lint` use the same code, so that they agree.
//!
//! This crate is pure. Rendering the samples takes processor time and memory, so callers decide where and how often it runs.

mod modules;
mod refusal;

use osm_api::profile::AcceptedProfile;
use osm_render::{Profile, Rendered};

use crate::modules::ModulesValidator;
pub use crate::refusal::{Outcome, Refusal};

/// Compiles every template, renders the sample pools, and validates the modules of each.
///
/// # Errors
/// The first problem of the profile.
pub fn dry_run(accepted: &AcceptedProfile) -> Result<(), Refusal> {
    dry_run_with(&osm_render::compile(accepted)?, |_, _| ())
}

/// [`dry_run`] for a profile that is compiled already. It calls `look` with the label of each sample and its valid result.
///
/// # Errors
/// The first problem of the profile.
pub fn dry_run_with(profile: &Profile, mut look: impl FnMut(&str, &Rendered)) -> Result<(), Refusal> {
    let mut modules = ModulesValidator::new(profile.spec());
    osm_render::dry_run_with(profile, |sample, rendered| {
        modules.validate(sample, rendered)?;
        look(sample, rendered);
        Ok(())
    })
}
