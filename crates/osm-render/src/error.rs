//! What can go wrong, with a closed set of reasons for conditions, events and metrics.
//!
//! No message repeats template data: a value may be a credential.

use osm_api::profile::ProvisioningUtility;

/// A place in a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplatePosition {
    /// Path of the template inside the spec, such as `provisioningConfig.files[3] (/opt/bin/setup)`.
    pub template: String,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column, from 1.
    pub column: Option<usize>,
}

impl std::fmt::Display for TemplatePosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.template)?;
        match (self.line, self.column) {
            (Some(line), Some(column)) => write!(f, ", line {line}, column {column}"),
            (Some(line), None) => write!(f, ", line {line}"),
            _ => Ok(()),
        }
    }
}

/// Why a profile can't be accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ProfileError {
    #[error(
        "the profile extends {0:?}, which this version can't do yet: copy what it needs from there and remove spec.extends"
    )]
    ExtendsUnsupported(String),
    #[error(
        "the profile is written in Go's template language (spec.templateEngine GoTemplate, which is the default); this version renders Handlebars and None: rewrite its templates and set spec.templateEngine"
    )]
    TemplateEngineUnsupported,
    #[error("the profile has {bytes} bytes, more than the {limit} that can be stored: make it smaller")]
    ContentTooLarge { bytes: usize, limit: usize },
    #[error("spec.{path}: {problem}")]
    Invalid { path: String, problem: String },
    #[error("{position}: {problem}")]
    Template { position: TemplatePosition, problem: String },
    #[error("spec.{path}: the text contains {prefix:?}, which is reserved for late-bound values: remove it", prefix = crate::RESERVED_PREFIX)]
    ReservedText { path: String },
}

impl ProfileError {
    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ExtendsUnsupported(_) => "ExtendsUnsupported",
            Self::TemplateEngineUnsupported => "TemplateEngineUnsupported",
            Self::ContentTooLarge { .. } => "ContentTooLarge",
            Self::Invalid { .. } => "ProfileInvalid",
            Self::Template { .. } => "TemplateInvalid",
            Self::ReservedText { .. } => "ReservedText",
        }
    }
}

/// Why a pool can't be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum RenderError {
    #[error("the profile is for {profile}, the pool's machines run {pool}: name a profile that fits in the MachineDeployment's annotation {annotation}", annotation = osm_api::names::PROFILE)]
    UnsupportedOperatingSystem { profile: String, pool: String },
    #[error(
        "the profile supports {}, the pool's cloud provider is {pool}: add it to the profile's supportedCloudProviders or name another profile",
        .supported.join(", ")
    )]
    UnsupportedCloudProvider { supported: Vec<String>, pool: String },
    #[error("the profile is for {profile}, the pool's machines use {pool}: name a profile for {pool} in the MachineDeployment's annotation {annotation}, or change operatingSystemSpec.provisioningUtility", annotation = osm_api::names::PROFILE)]
    UnsupportedProvisioningUtility { profile: ProvisioningUtility, pool: ProvisioningUtility },
    #[error("the MachineDeployment's network: {problem}")]
    UnsupportedNetwork { problem: String },
    #[error("the settings' {}", .problems.join("; the settings' "))]
    KubeletSettings { problems: Vec<String> },
    #[error("{position}: {problem}")]
    Template { position: TemplatePosition, problem: String },
    #[error("{place} contains {prefix:?}, which is reserved for late-bound values: remove it", prefix = crate::RESERVED_PREFIX)]
    ReservedText { place: String },
    #[error("{place} contains {name}, which machine-controller replaces by the name of each machine: remove it", name = osm_api::names::MACHINE_NAME_PLACEHOLDER)]
    MachineName { place: String },
    #[error(
        "the rendered configuration has {bytes} bytes, more than the {limit} that can be stored: make the profile or the settings smaller"
    )]
    ContentTooLarge { bytes: usize, limit: usize },
    #[error(
        "the bootstrap user data has {bytes} bytes, {cloud} takes at most {limit}: move files to the profile's provisioningConfig or shorten them"
    )]
    UserDataTooLarge { bytes: usize, limit: usize, cloud: String },
    #[error("the user data can't be written: {0}")]
    UserData(#[from] UserDataError),
    #[error("with the sample pool {sample}: {error}")]
    Sample { sample: String, error: Box<RenderError> },
}

impl RenderError {
    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::UnsupportedOperatingSystem { .. } => "UnsupportedOperatingSystem",
            Self::UnsupportedCloudProvider { .. } => "UnsupportedCloudProvider",
            Self::UnsupportedProvisioningUtility { .. } => "UnsupportedProvisioningUtility",
            Self::UnsupportedNetwork { .. } => "UnsupportedNetwork",
            Self::KubeletSettings { .. } => "InvalidKubeletSettings",
            Self::Template { .. } => "TemplateFailed",
            Self::ReservedText { .. } | Self::MachineName { .. } => "ReservedText",
            Self::ContentTooLarge { .. } => "ContentTooLarge",
            Self::UserDataTooLarge { .. } => "UserDataTooLarge",
            Self::UserData(error) => error.reason(),
            Self::Sample { error, .. } => error.reason(),
        }
    }
}

/// Why user data can't be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum UserDataError {
    #[error("the value of {0:?} is missing")]
    MissingValue(String),
    #[error(
        "the value of {0:?} stands where only letters, digits and ._~+/=- can: let the template say as=\"shell\", \"yaml\", \"json\", \"toml\" or \"b64\""
    )]
    NotRaw(String),
    #[error("the value of {0:?} has a NUL character, which no shell can hold: take it out of there")]
    Nul(String),
    #[error("{place} holds a late-bound value that spec.lateBound does not name, or a damaged one")]
    UnknownMarker { place: String },
    #[error("{place} can't be written as YAML")]
    Unwritable { place: String },
    #[error("{place}: {problem}")]
    Unfit { place: String, problem: String },
}

impl UserDataError {
    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::MissingValue(_) => "LateBoundValueMissing",
            Self::NotRaw(_) | Self::Nul(_) => "LateBoundValueNotRaw",
            Self::UnknownMarker { .. } => "UnknownMarker",
            Self::Unwritable { .. } | Self::Unfit { .. } => "UserDataInvalid",
        }
    }
}
