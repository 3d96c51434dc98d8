//! Errors, with a closed set of reasons for conditions, Events and metrics.
//!
//! Each message names the place, the problem and the remedy. No message repeats template data, because a
//! value may be a credential.

use osm_api::Reason;
use osm_api::profile::ProvisioningUtility;
use osm_user_data::error::UserDataError;
use osm_user_data::late_bound::RESERVED_PREFIX;

/// A place in a template, for people to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplatePosition {
    /// Path of the template inside the spec, such as `provisioningConfig.files[3] (/opt/bin/setup)`.
    pub template: String,
    /// Counted from 1.
    pub line: Option<usize>,
    /// In characters, counted from 1.
    pub column: Option<usize>,
}

impl TemplatePosition {
    /// The start of a field.
    pub(crate) fn of_field(path: &str) -> Self {
        Self {
            template: path.to_owned(),
            line: None,
            column: None,
        }
    }
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
pub enum ProfileError {
    #[error(
        "the profile {base:?}, which {} names, does not exist in the profile's namespace or that of the installation; create it, or \
         correct the name",
        .extending.as_ref().map_or_else(|| "spec.extends".to_owned(), |name| format!("spec.extends of {name}"))
    )]
    ParentNotFound {
        /// The profile that extends it; `None` for the profile itself.
        extending: Option<String>,
        base: String,
    },
    #[error("the profile extends itself: {cycle}; remove spec.extends from one of these")]
    ExtendsItself { cycle: String },
    #[error("the profile extends more than {limit} profiles, one after the other; shorten the chain")]
    ChainTooLong { limit: usize },
    #[error(
        "{}spec.{path}: {problem}",
        .base.as_ref().map_or_else(String::new, |base| format!("in {base}, which the profile extends: "))
    )]
    Extends {
        /// The profile with the field; `None` for the profile itself.
        base: Option<String>,
        path: String,
        problem: String,
    },
    #[error("the profile has {bytes} bytes, but at most {limit} can be stored; make it smaller")]
    ContentTooLarge { bytes: usize, limit: usize },
    #[error("spec.{path}: {problem}")]
    Invalid { path: String, problem: String },
    #[error("{position}: {problem}")]
    Template {
        position: TemplatePosition,
        problem: String,
    },
    #[error("spec.{path} contains {prefix:?}, which is reserved for late-bound values; remove it", prefix = RESERVED_PREFIX)]
    ReservedText { path: String },
}

impl ProfileError {
    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::ParentNotFound { .. } => Reason::ParentNotFound,
            Self::ExtendsItself { .. } | Self::ChainTooLong { .. } | Self::Extends { .. } => {
                Reason::ExtendsInvalid
            }
            Self::ContentTooLarge { .. } => Reason::ContentTooLarge,
            Self::Invalid { .. } => Reason::ProfileInvalid,
            Self::Template { .. } => Reason::TemplateInvalid,
            Self::ReservedText { .. } => Reason::ReservedText,
        }
    }

    /// The place inside the spec that is wrong, if it is one.
    pub fn position(&self) -> Option<TemplatePosition> {
        match self {
            Self::ParentNotFound { extending: None, .. }
            | Self::ExtendsItself { .. }
            | Self::ChainTooLong { .. } => Some(TemplatePosition::of_field("extends")),
            Self::Extends { base: None, path, .. } => Some(TemplatePosition::of_field(path)),
            // Another profile is wrong.
            Self::ParentNotFound { .. } | Self::Extends { .. } => None,
            Self::ContentTooLarge { .. } => None,
            Self::Invalid { path, .. } | Self::ReservedText { path } => {
                Some(TemplatePosition::of_field(path))
            }
            Self::Template { position, .. } => Some(position.clone()),
        }
    }
}

/// Why a pool can't be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    #[error("the profile is for {profile}, but the machines run {pool}; select another profile in the MachineDeployment's annotation {annotation}", annotation = osm_api::names::PROFILE)]
    UnsupportedOperatingSystem { profile: String, pool: String },
    #[error(
        "the profile supports {}, but not the pool's cloud provider {pool}; add {pool} to the profile's supportedCloudProviders, or use another profile",
        .supported.join(", ")
    )]
    UnsupportedCloudProvider { supported: Vec<String>, pool: String },
    #[error("edge pools can't have Flatcar, since their script needs cloud-init; change operatingSystem")]
    NoCloudInit,
    #[error("the profile is for {profile}, but the machines use {pool}; select another profile in the MachineDeployment's annotation {annotation}, or change operatingSystemSpec.provisioningUtility", annotation = osm_api::names::PROFILE)]
    UnsupportedProvisioningUtility {
        profile: ProvisioningUtility,
        pool: ProvisioningUtility,
    },
    #[error("the MachineDeployment's network: {problem}")]
    UnsupportedNetwork { problem: String },
    #[error("kubelet.hostnameOverride of the settings is false, but {problem}")]
    HostnameUnpredictable { problem: String },
    #[error("the settings' {}", .problems.join("; the settings' "))]
    KubeletSettings { problems: Vec<String> },
    #[error("kubelet {version} would not start: {}", .problems.join("; "))]
    KubeletConfiguration { version: String, problems: Vec<String> },
    #[error("{position}: {problem}")]
    Template {
        position: TemplatePosition,
        problem: String,
    },
    #[error("{place} contains {prefix:?}, which is reserved for late-bound values; remove it", prefix = RESERVED_PREFIX)]
    ReservedText { place: String },
    #[error(
        "the rendered configuration has {bytes} bytes, but at most {limit} can be stored; make the profile or the settings smaller"
    )]
    ContentTooLarge { bytes: usize, limit: usize },
    #[error(
        "the bootstrap user data has {bytes} bytes, but {cloud} takes at most {limit}; move files to the profile's provisioningConfig, or shorten them"
    )]
    UserDataTooLarge {
        bytes: usize,
        limit: usize,
        cloud: String,
    },
    #[error(
        "the content refers to {found} Secrets and ConfigMaps, but {limit} is the limit; let several registries use the same Secret, or \
         remove registries from the settings of the pool"
    )]
    TooManySources { found: usize, limit: usize },
    #[error("the user data can't be written: {0}")]
    UserData(#[from] UserDataError),
}

impl RenderError {
    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::UnsupportedOperatingSystem { .. } => Reason::UnsupportedOperatingSystem,
            Self::UnsupportedCloudProvider { .. } | Self::NoCloudInit => Reason::UnsupportedCloudProvider,
            Self::UnsupportedProvisioningUtility { .. } => Reason::UnsupportedProvisioningUtility,
            Self::UnsupportedNetwork { .. } => Reason::UnsupportedNetwork,
            Self::HostnameUnpredictable { .. } => Reason::HostnameUnpredictable,
            Self::KubeletSettings { .. } | Self::KubeletConfiguration { .. } => {
                Reason::KubeletSettingsInvalid
            }
            Self::Template { .. } => Reason::TemplateFailed,
            Self::ReservedText { .. } => Reason::ReservedText,
            Self::ContentTooLarge { .. } => Reason::ContentTooLarge,
            Self::UserDataTooLarge { .. } => Reason::UserDataTooLarge,
            Self::TooManySources { .. } => Reason::TooManySources,
            Self::UserData(error) => error.reason(),
        }
    }

    /// The place inside the profile's spec that is wrong, if it is one. A file or unit may be given by its
    /// path on the machine.
    pub fn position(&self) -> Option<TemplatePosition> {
        match self {
            Self::Template { position, .. } => Some(position.clone()),
            Self::UserData(
                UserDataError::LateBoundValueUnknown { place }
                | UserDataError::Unwritable { place }
                | UserDataError::Unfit { place, .. },
            ) => Some(TemplatePosition::of_field(place)),
            _ => None,
        }
    }
}

pub(crate) fn invalid(path: impl Into<String>, problem: impl Into<String>) -> ProfileError {
    ProfileError::Invalid {
        path: path.into(),
        problem: problem.into(),
    }
}

/// What a profile says of the one that it extends and can't: until its caller knows better, it is the profile
/// itself.
pub(crate) fn extends(path: impl Into<String>, problem: impl Into<String>) -> ProfileError {
    ProfileError::Extends {
        base: None,
        path: path.into(),
        problem: problem.into(),
    }
}

/// An error with this path and problem unless `is_good`.
pub(crate) fn ensure(
    is_good: bool,
    path: impl Into<String>,
    problem: impl Into<String>,
) -> Result<(), ProfileError> {
    is_good.then_some(()).ok_or_else(|| invalid(path, problem))
}
