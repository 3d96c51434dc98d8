//! The two stages of a machine's setup, and where each is in a profile and in a content.

use osm_api::config::StageConfig;
use osm_api::content::Content;
use osm_api::profile::{OperatingSystemProfileSpec, ProfileConfig};

/// A stage of a machine's setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// What a new machine receives from its cloud. It fetches and applies the other stage.
    Bootstrap,
    /// What turns the machine into a worker node.
    Provisioning,
}

impl Stage {
    /// In the order in which a machine applies them.
    pub const ALL: [Self; 2] = [Self::Bootstrap, Self::Provisioning];

    /// Name of the stage's field in a spec.
    pub fn field(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrapConfig",
            Self::Provisioning => "provisioningConfig",
        }
    }

    pub fn config(self, spec: &OperatingSystemProfileSpec) -> &ProfileConfig {
        match self {
            Self::Bootstrap => &spec.bootstrap_config,
            Self::Provisioning => &spec.provisioning_config,
        }
    }

    /// The stage of a rendered content.
    pub fn of_content(self, content: &Content) -> &StageConfig {
        match self {
            Self::Bootstrap => &content.bootstrap_config,
            Self::Provisioning => &content.provisioning_config,
        }
    }

    pub fn config_mut(self, spec: &mut OperatingSystemProfileSpec) -> &mut ProfileConfig {
        match self {
            Self::Bootstrap => &mut spec.bootstrap_config,
            Self::Provisioning => &mut spec.provisioning_config,
        }
    }
}
