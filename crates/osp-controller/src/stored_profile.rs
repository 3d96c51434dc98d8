//! A profile as the API server has it, also if it can't be decoded as a whole.

use std::ops::Deref;

use osm_api::profile::{OperatingSystem, ProfileConfig, ProvisioningUtility, TemplateEngine};
use osm_api::{OperatingSystemProfile, OperatingSystemProfileSpec, Reason};
use osm_render::validate::Refusal;
use osm_runtime::object::Unreadable;
use serde::Deserialize;

/// What is needed of the spec of a profile that can't be decoded.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    version: String,
    extends: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct StoredProfile {
    profile: OperatingSystemProfile,
    /// Why the profile can't be decoded. Then it has only what can be.
    unreadable: Option<String>,
}

impl StoredProfile {
    /// A profile that can't be decoded. Its status is kept, because a refused edit must not take away what
    /// pools use.
    pub fn unreadable(unreadable: &Unreadable) -> Self {
        let Head { version, extends } = unreadable.part("spec");
        // The profile is refused, or replaced if it is a default profile, so that nothing reads the rest of
        // the spec.
        let spec = OperatingSystemProfileSpec {
            os_name: OperatingSystem::Ubuntu,
            os_version: String::new(),
            version,
            supported_cloud_providers: Vec::new(),
            bootstrap_config: ProfileConfig::default(),
            provisioning_config: ProfileConfig::default(),
            provisioning_utility: ProvisioningUtility::default(),
            template_engine: TemplateEngine::default(),
            extends,
        };
        let mut profile = OperatingSystemProfile::new("", spec);
        profile.metadata = unreadable.metadata.clone();
        profile.status = Some(unreadable.part("status"));
        Self {
            profile,
            unreadable: Some(unreadable.problem.clone()),
        }
    }

    /// Why the profile is refused without a look at its templates.
    pub fn refusal(&self) -> Option<Refusal> {
        self.unreadable.as_ref().map(|problem| Refusal {
            reason: Reason::ObjectUnreadable,
            message: format!("the profile can't be read: {problem}"),
            position: None,
        })
    }
}

impl From<OperatingSystemProfile> for StoredProfile {
    /// Drops what is never read. Annotations stay, because restoring a default profile writes the metadata
    /// back.
    fn from(mut profile: OperatingSystemProfile) -> Self {
        profile.metadata.managed_fields = None;
        Self {
            profile,
            unreadable: None,
        }
    }
}

impl Deref for StoredProfile {
    type Target = OperatingSystemProfile;

    fn deref(&self) -> &OperatingSystemProfile {
        &self.profile
    }
}
