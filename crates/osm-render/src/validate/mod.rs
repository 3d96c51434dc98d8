//! Decides whether a profile can be accepted. osp-controller and `osmctl lint` use the same code, so that they agree.
//!
//! Rendering the samples takes processor time and memory, so callers decide where and how often it runs.

mod modules;
mod refusal;
mod suspicion;

use std::sync::atomic::AtomicBool;

use crate::{Profile, Rendered};
use osm_api::profile::AcceptedProfile;

use self::modules::Modules;
pub use self::refusal::{Outcome, Refusal};
pub use self::suspicion::{DecimalMode, decimal_modes, default_name, suspicions};

/// Compiles every template, renders the sample pools, and validates the modules of each.
///
/// # Errors
/// The first problem of the profile.
pub fn dry_run(accepted: &AcceptedProfile) -> Result<(), Refusal> {
    dry_run_unless(&AtomicBool::new(false), accepted)
}

/// [`dry_run`] that fails soon after another thread sets `cancelled`.
///
/// # Errors
/// The first problem of the profile, or that it was cancelled.
pub fn dry_run_unless(cancelled: &AtomicBool, accepted: &AcceptedProfile) -> Result<(), Refusal> {
    let mut modules = Modules::default();
    // The templates are dropped before the schema of modules is parsed, so that memory holds one of the two at a time.
    render_samples(cancelled, &crate::compile(accepted)?, &mut modules, |_, _| ())?;
    modules.validate()
}

/// [`dry_run`] for a profile that is compiled already. It calls `look` with the label of each sample and its result, before it validates
/// the modules of all samples.
///
/// # Errors
/// The first problem of the profile.
pub fn dry_run_with(profile: &Profile, look: impl FnMut(&str, &Rendered)) -> Result<(), Refusal> {
    let mut modules = Modules::default();
    render_samples(&AtomicBool::new(false), profile, &mut modules, look)?;
    modules.validate()
}

fn render_samples(
    cancelled: &AtomicBool,
    profile: &Profile,
    modules: &mut Modules,
    mut look: impl FnMut(&str, &Rendered),
) -> Result<(), Refusal> {
    crate::dry_run_with(cancelled, profile, |sample, rendered| {
        modules.note(sample, rendered);
        look(sample, rendered);
        Ok(())
    })
}
