//! `defaultProfiles`: which default profiles osp-controller installs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::profile::OperatingSystem;

/// Default profiles.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultProfiles {
    /// Whether osp-controller installs default profiles.
    pub enabled: bool,
    /// Operating systems whose default profiles osp-controller does not install.
    pub disabled: Vec<OperatingSystem>,
}

impl Default for DefaultProfiles {
    fn default() -> Self {
        Self {
            enabled: true,
            disabled: Vec::new(),
        }
    }
}
