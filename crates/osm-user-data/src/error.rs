//! The errors of writing a document. No message repeats a value, because it may be a credential.

use osm_api::reason::Reason;

/// Why user data can't be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserDataError {
    #[error("the late-bound value {0:?} is missing; this is a bug, please report it")]
    MissingValue(String),
    #[error(
        "the late-bound value {0:?} contains characters that are not allowed with as=\"raw\" (only letters, digits and ._~+/=- are); use as=\"shell\", \"yaml\", \"json\", \"toml\" or \"b64\" in the template"
    )]
    NotRaw(String),
    #[error(
        "the late-bound value {0:?} has a NUL character, which no shell can hold; remove it from the value"
    )]
    Nul(String),
    #[error("{place}: unknown or damaged reference to a late-bound value; correct the profile")]
    LateBoundValueUnknown { place: String },
    #[error("{place} can't be written as YAML; correct the profile")]
    Unwritable { place: String },
    #[error("{place}: {problem}")]
    Unfit { place: String, problem: String },
    #[error(
        "{place}: with its late-bound values the document has more than {limit} bytes; refer to smaller values"
    )]
    FilledTooLarge { place: String, limit: usize },
}

impl UserDataError {
    /// Reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::MissingValue(_) => Reason::LateBoundValueMissing,
            Self::NotRaw(_) | Self::Nul(_) => Reason::LateBoundValueInvalid,
            Self::LateBoundValueUnknown { .. } => Reason::LateBoundValueUnknown,
            Self::Unwritable { .. } | Self::Unfit { .. } => Reason::UserDataInvalid,
            Self::FilledTooLarge { .. } => Reason::UserDataTooLarge,
        }
    }
}
