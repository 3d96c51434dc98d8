//! Reads everything that one reconcile needs. No request is made: the watches show it all.

use std::sync::Arc;

use jiff::Timestamp;
use osm_api::settings::DefaultProfiles;
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec};

use crate::judge::Judgement;
use crate::plan;
use crate::state::State;

/// What a plan is made from.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// The time that the plan goes by.
    pub now: Timestamp,
    /// Namespace of the profile.
    pub namespace: String,
    /// Name of the profile.
    pub name: String,
    /// The profile as it stands there.
    pub stored: Option<Arc<OperatingSystemProfile>>,
    /// The default profile that shall have this name. `None`: there is none, or it is switched off, or the settings,
    /// which could switch it off, are not known yet.
    pub default: Option<OperatingSystemProfileSpec>,
    /// What the stored profile is worth; `None` where it is missing, or about to be replaced.
    pub judgement: Option<Judgement>,
}

impl Gathered {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Gathers for `namespace/name`, and has the stored profile judged unless it won't stay.
pub async fn gather(state: &State, key: &str) -> Gathered {
    let stored = state.profile(key);
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    // Default profiles are installed in the installation's own namespace only.
    let settings = state.settings.borrow().clone().filter(|_| namespace == state.context.args.namespace);
    let default =
        settings.and_then(|current| wanted(&state.defaults, name, &current.settings.default_profiles));
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let mut gathered =
        Gathered { now: state.context.surroundings.now(), namespace, name, stored, default, judgement: None };
    if let Some(stored) = plan::stays(&gathered) {
        gathered.judgement = Some(state.judge.judge(key, &stored.spec).await);
    } else if gathered.stored.is_none() {
        state.judge.forget(key);
    }
    // Judging may have taken a while.
    gathered.now = state.context.surroundings.now();
    gathered
}

/// The default profile of this name, unless the settings switch it off.
fn wanted(
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
    fn defaults_are_switched_off_all_or_by_system() {
        let defaults = [("osp-ubuntu".to_owned(), profile("v1.0.0"))];
        let wanted = |name, enabled, disabled: &[_]| {
            wanted(&defaults, name, &DefaultProfiles { enabled, disabled: disabled.to_vec() }).is_some()
        };
        assert!(wanted("osp-ubuntu", true, &[]));
        assert!(wanted("osp-ubuntu", true, &[Flatcar]));
        assert!(!wanted("osp-ubuntu", true, &[Flatcar, Ubuntu]));
        assert!(!wanted("osp-ubuntu", false, &[]));
        assert!(!wanted("mine", true, &[]));
    }
}
