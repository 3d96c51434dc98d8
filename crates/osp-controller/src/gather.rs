//! Reads everything that one reconcile needs. It sends no request, because the watches have all objects.

use std::sync::Arc;

use jiff::Timestamp;
use osm_api::settings::DefaultProfiles;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec};

use crate::default_profile;
use crate::refusal::Outcome;
use crate::state::State;

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// The time of the plan.
    pub now: Timestamp,
    /// Namespace of the profile.
    pub namespace: String,
    /// Name of the profile.
    pub name: String,
    /// The stored profile.
    pub stored: Option<Arc<OperatingSystemProfile>>,
    /// The default profile of this name. `None` if there is none, if the settings disable it, or if the settings, which could
    /// disable it, are not known yet.
    pub default: Option<OperatingSystemProfileSpec>,
    /// The outcome of validating the stored profile; `None` if the profile is not [kept](Self::kept).
    pub validation: Option<Outcome>,
}

impl Gathered {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The stored profile, unless it is being deleted or about to be replaced by the default. Only a kept profile is validated.
    pub fn kept(&self) -> Option<&Arc<OperatingSystemProfile>> {
        let stored = self
            .stored
            .as_ref()
            .filter(|stored| !default_profile::is_deleted(stored))?;
        default_profile::install(&self.name, Some(stored), self.default.as_ref())
            .is_none()
            .then_some(stored)
    }
}

/// Gathers for `namespace/name`, and validates the stored profile if it is kept.
pub async fn gather(state: &State, key: &str) -> Gathered {
    let stored = state.profile(key);
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    // Default profiles are installed only in the namespace of the installation.
    let settings = state
        .cluster
        .settings
        .borrow()
        .clone()
        .filter(|_| namespace == state.cluster.installation.namespace);
    let default =
        settings.and_then(|current| enabled(&state.defaults, name, &current.settings.default_profiles));
    let mut gathered = Gathered {
        now: state.process.environment.now(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        stored,
        default,
        validation: None,
    };
    if let Some(kept) = gathered.kept() {
        gathered.validation = Some(state.validator.validate(key, &kept.spec).await);
    } else if gathered.stored.is_none() {
        state.validator.forget(key);
    }
    // Validation may have taken seconds.
    gathered.now = state.process.environment.now();
    gathered
}

/// The default profile of this name, unless the settings disable it.
fn enabled(
    defaults: &[(String, OperatingSystemProfileSpec)],
    name: &str,
    settings: &DefaultProfiles,
) -> Option<OperatingSystemProfileSpec> {
    let (_, spec) = defaults.iter().find(|(default, _)| default == name)?;
    (settings.enabled && !settings.disabled.contains(&spec.os_name)).then(|| spec.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::profile;
    use osm_api::profile::OperatingSystem::{Flatcar, Ubuntu};

    #[test]
    fn settings_disable_all_defaults_or_those_of_a_system() {
        let defaults = [("osp-ubuntu".to_owned(), profile("v1.0.0"))];
        let is_enabled = |name, enabled_at_all, disabled: &[_]| {
            let settings = DefaultProfiles {
                enabled: enabled_at_all,
                disabled: disabled.to_vec(),
            };
            enabled(&defaults, name, &settings).is_some()
        };
        assert!(is_enabled("osp-ubuntu", true, &[]));
        assert!(is_enabled("osp-ubuntu", true, &[Flatcar]));
        assert!(!is_enabled("osp-ubuntu", true, &[Flatcar, Ubuntu]));
        assert!(!is_enabled("osp-ubuntu", false, &[]));
        assert!(!is_enabled("mine", true, &[]));
    }
}
