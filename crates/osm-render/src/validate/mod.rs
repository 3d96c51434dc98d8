//! Decides whether a profile can be accepted. osp-controller and `osmctl lint` use the same code, so that
//! they agree.
//!
//! Rendering the samples takes processor time and memory, so callers decide where and how often it runs.

pub(crate) mod modules;
pub(crate) mod refusal;

use std::sync::atomic::AtomicBool;

use osm_api::profile::OperatingSystemProfileSpec;
use osm_user_data::stage::Stage;

use self::modules::Modules;
pub use self::modules::applied::skipped as skipped_modules;
pub use self::refusal::{Outcome, Refusal};
use crate::profile::{Profile, Rendered};
use crate::samples;

/// Renders the sample pools, and validates the modules of each.
///
/// # Errors
/// The first problem of the profile.
pub fn dry_run(profile: &Profile) -> Result<(), Refusal> {
    dry_run_with(&AtomicBool::new(false), profile, |_, _| ())
}

/// [`dry_run`] that calls `look` with the label of each sample and its result. It fails soon after another
/// thread sets `cancelled`.
///
/// # Errors
/// The first problem of the profile, or that it was cancelled.
pub fn dry_run_with(
    cancelled: &AtomicBool,
    profile: &Profile,
    mut look: impl FnMut(&str, &Rendered),
) -> Result<(), Refusal> {
    let mut modules = Modules::default();
    samples::render(cancelled, profile, |sample, rendered| {
        look(sample, rendered);
        modules.validate(sample, rendered)
    })
}

/// Modes whose decimal numbers people write by mistake: the number, and the mode that was meant.
const DECIMAL_MODES: [(i32, &str); 4] = [(416, "640"), (420, "644"), (436, "664"), (511, "777")];

/// Finds file permissions that were probably written as a decimal number: where they are, such as
/// `spec.bootstrapConfig.files[0].permissions`, and a warning.
pub fn decimal_modes(spec: &OperatingSystemProfileSpec) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for stage in Stage::ALL {
        for (index, file) in stage.config(spec).files.iter().enumerate() {
            let (path, number) = (&file.path, file.permissions);
            let meant = DECIMAL_MODES.iter().find(|(decimal, _)| *decimal == number);
            found.extend(meant.map(|(_, meant)| {
                let message = format!(
                    "{path}: permissions {number} means the mode 0{number}; it is also the decimal number of the mode 0{meant}; write the \
                     octal digits without a leading zero: {meant}"
                );
                (
                    format!("spec.{}.files[{index}].permissions", stage.field()),
                    message,
                )
            }));
        }
    }
    found
}

/// Describes a profile that has the name of a default profile, but other content.
pub fn default_name(name: &str) -> String {
    format!(
        "{name} is the name of a default profile; unless default profiles are disabled, osp-controller replaces this profile with it"
    )
}
