//! `defaultProfiles`: which default profiles osp-controller installs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::profile::OperatingSystem;

/// Default profiles.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultProfiles {
    /// Whether default profiles are installed at all.
    pub enabled: bool,
    /// Operating systems whose default profiles are not installed.
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
