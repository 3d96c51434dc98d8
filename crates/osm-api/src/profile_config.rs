//! One stage of a profile: what it adds to a machine, and what it changes of the profile that it extends.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::files_and_units::{DropIn, FileContent, default_permissions};
use crate::preserved::{preserved_items, preserved_object};

/// One stage of a profile.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileConfig {
    /// Container runtimes with their files and templates. Only `containerd` is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported_container_runtimes: Vec<ContainerRuntime>,
    /// Named templates that files may include.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub templates: BTreeMap<String, String>,
    /// Named templates that replace those of the profile that this one extends.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replace_templates: BTreeMap<String, String>,
    /// Names of templates that this profile does not take over from the profile that it extends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_templates: Vec<String>,
    /// systemd units on the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<ProfileUnit>,
    /// Files on the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ProfileFile>,
    /// Further cloud-init modules, by their names in a cloud-config.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "preserved_object")]
    pub modules: Option<Value>,
    /// Names of modules that this profile does not take over from the profile that it extends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_modules: Vec<String>,
    /// Commands that run before and after everything else in this stage. Only for `provisioningConfig`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
    /// Packages of the operating system to install. Only for `provisioningConfig`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// Kernel parameters, such as `vm.swappiness: 10`. Only for `provisioningConfig`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, SysctlValue>,
    /// Names of kernel parameters that this profile does not take over from `sysctls` of the profile that it
    /// extends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_sysctls: Vec<String>,
    /// Kernel modules to load, now and at every boot. Only for `provisioningConfig`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel_modules: Vec<String>,
}

/// Commands of a stage. Each is a string for a shell, or a list of words, as in `runcmd` of cloud-init.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
pub struct Commands {
    /// Commands that run before everything else in the stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "preserved_items")]
    pub before: Vec<Value>,
    /// Commands that run after everything else in the stage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "preserved_items")]
    pub after: Vec<Value>,
}

/// Value of a kernel parameter. Numbers need no quotes.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(untagged)]
#[allow(missing_docs)]
pub enum SysctlValue {
    Number(i64),
    Text(String),
}

impl std::fmt::Display for SysctlValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl JsonSchema for SysctlValue {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SysctlValue".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"x-kubernetes-int-or-string": true})
    }
}

/// A container runtime of a profile.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct ContainerRuntime {
    /// Name of the runtime. `docker` is accepted and ignored.
    pub name: ContainerRuntimeName,
    /// Files that this runtime needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ProfileFile>,
    /// Templates that this runtime needs. A template of the stage with the same name takes precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub templates: BTreeMap<String, String>,
}

/// Name of a container runtime.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum ContainerRuntimeName {
    Docker,
    Containerd,
}

/// A systemd unit of a profile.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ProfileUnit {
    /// Name with suffix, such as `kubelet.service`.
    pub name: String,
    /// Whether the unit is enabled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    /// Whether the unit is masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<bool>,
    /// Text of the unit. It is absent if only drop-ins are set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Drop-ins of the unit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drop_ins: Vec<DropIn>,
    /// Whether the unit replaces the one with this name of the profile that is extended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// Whether the profile does not take over the unit with this name from the profile that it extends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
}

/// A file of a profile.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
pub struct ProfileFile {
    /// Absolute path.
    pub path: String,
    /// Mode, written as its octal digits without a leading zero: 644, 755. 0 means 644.
    #[serde(default = "default_permissions")]
    pub permissions: i32,
    /// Content of the file. Only a file with `remove` has none.
    #[serde(default, skip_serializing_if = "FileContent::is_empty")]
    pub content: FileContent,
    /// Whether the file replaces the one with this path of the profile that is extended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// Whether the profile does not take over the file with this path from the profile that it extends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub remove: bool,
}
